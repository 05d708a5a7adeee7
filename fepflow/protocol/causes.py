"""Why many results are no passes, summed up: each cause once, the most frequent first.

Messages that differ only in numbers, ids or the test case's id are one cause; what differs is shown as `…`. Judges and
plugins give a reason of its own for each case: reasons that occur only once for the same check are merged, with one
example. Text of agents is in it as it came: escape it to show it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from fepflow.protocol.explanation import Explanation, cut, explain
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output

Kind = Literal["call", "error", "failed"]

MAX_TEXT = 200
MAX_CAUSES = 8
MAX_PATTERNS = 500
"""Different messages of one source that are counted; the rest is counted with those that occur once."""

_CASE = "\x00"
_ELLIPSIS = "…"
_VARYING = re.compile(
    f"({_CASE}"
    r"|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    r"|\b(?=[0-9A-Fa-f]*[0-9])[0-9A-Fa-f]{8,64}\b"
    r"|[0-9]+(?:[.,:][0-9]+)*)"
)
_QUOTED = re.compile(r"""('[^']*'|"[^"]*")""")


@dataclass(slots=True)
class _Pattern:
    """Messages that differ only in the values of the same slots; `slots` are those of the first."""

    text: str
    case_id: str
    slots: list[str]
    varying: set[int] = field(default_factory=set)
    count: int = 1

    def add(self, slots: list[str]) -> None:
        self.count += 1
        self.varying |= {index for index, slot in enumerate(slots) if slot != self.slots[index]}

    def shown(self, pattern: re.Pattern[str]) -> str:
        parts = pattern.split(self.text)
        if self.count > 1:
            for index, slot in enumerate(self.slots):
                if index in self.varying or slot == _CASE:
                    parts[2 * index + 1] = _ELLIPSIS
        return "".join(parts).replace(_CASE, self.case_id)


class _Source:
    """The messages of one check, or of one way in which calls fail."""

    def __init__(self) -> None:
        self.patterns: dict[tuple[str, ...], _Pattern] = {}
        self.others: _Pattern | None = None

    def add(self, text: str, case_id: str) -> None:
        parts = _VARYING.split(text)
        key = tuple(parts[::2])
        if key in self.patterns:
            self.patterns[key].add(parts[1::2])
        elif len(self.patterns) < MAX_PATTERNS:
            self.patterns[key] = _Pattern(text, case_id, parts[1::2])
        elif self.others is None:
            self.others = _Pattern(text, case_id, parts[1::2])
        else:
            self.others.count += 1

    def details(self) -> Iterator[tuple[int, str]]:
        """Count and text of each cause."""
        single = [pattern for pattern in self.patterns.values() if pattern.count == 1]
        for pattern in self.patterns.values():
            if pattern.count > 1:
                yield pattern.count, pattern.shown(_VARYING)
        different: list[_Pattern] = []
        for alike in _by_quotes(single):
            if alike.count > 1:
                yield alike.count, alike.shown(_QUOTED)
            else:
                different.append(alike)
        if self.others is not None:
            different.append(self.others)
        if count := sum(pattern.count for pattern in different):
            first = different[0]
            such_as = "different each time, such as: " if count > 1 else ""
            yield count, such_as + first.text.replace(_CASE, first.case_id)


def _by_quotes(single: Sequence[_Pattern]) -> list[_Pattern]:
    """What is said once each, taken together where it is the same but for numbers and quoted values."""
    groups: dict[tuple[str, ...], _Pattern] = {}
    for pattern in single:
        parts = _QUOTED.split(_VARYING.sub(_ELLIPSIS, pattern.text))
        key = tuple(parts[::2])
        if key not in groups:
            groups[key] = _Pattern(pattern.text, pattern.case_id, parts[1::2])
        else:
            if groups[key].count == 1:
                groups[key].text = _VARYING.sub(_ELLIPSIS, groups[key].text)
            groups[key].add(parts[1::2])
    return list(groups.values())


class Causes:
    """Counts causes, in bounded memory however many results there are."""

    def __init__(self) -> None:
        self._sources: dict[tuple[Kind, str], _Source] = {}

    def add(self, case_id: str, output: Output | None, checks: Sequence[CheckResult]) -> None:
        """Count what kept one result from passing. Of a call that failed, errors of checks have nothing more to say."""
        failure = None if output is None else output.failure
        if failure is not None:
            self._add("call", *_of_call(failure), case_id)
        for check in checks:
            if check.error is not None and failure is None:
                self._add("error", check.check_id, check.error.message, case_id)
            elif check.passed is False:
                self._add("failed", check.check_id, _finding(check), case_id)

    def _add(self, kind: Kind, source: str, text: str, case_id: str) -> None:
        text = " ".join(cut(text, MAX_TEXT).replace(_CASE, " ").split())
        if len(case_id) > 2 and case_id in text:
            text = re.sub(rf"(?<!\w){re.escape(case_id)}(?!\w)", _CASE, text)
        self._sources.setdefault((kind, source), _Source()).add(text, case_id)

    def most_frequent(self) -> list[tuple[int, str]]:
        """All causes: how many results each one has, and what it is, in one line."""
        causes = [
            (count, _words(kind, name, text))
            for (kind, name), source in self._sources.items()
            for count, text in source.details()
        ]
        return sorted(causes, key=lambda cause: (-cause[0], cause[1]))

    def lines(self, limit: int = MAX_CAUSES) -> list[str]:
        """The most frequent causes, one a line, and how many are left out."""
        causes = self.most_frequent()
        details = [f"{count} × {text}" for count, text in causes[:limit]]
        if rest := causes[limit:]:
            details.append(f"{sum(count for count, _ in rest)} × {len(rest)} other causes")
        return details


def _of_call(failure: dict[str, Any]) -> tuple[str, str]:
    """The source and the rest of a call's error: those of one HTTP status are merged."""
    message = str(failure["message"])
    status, _, rest = message.partition(": ")
    return (status, rest) if failure.get("status") and status.startswith("HTTP ") else ("", message)


def _finding(check: CheckResult) -> str:
    """What a failed check found: what it says of it; else its numbers, beside its arguments.

    A resolved value differs from case to case, so the path itself is shown.
    """
    whole = explain(check)
    details = {name: value for name, value in whole.results.items() if not isinstance(value, int | float)}
    if details:
        return Explanation(details, {}).line(MAX_TEXT)
    given = check.resolved_arguments or {}
    arguments = {name: given.get(name, {}).get("jsonpath", value) for name, value in whole.arguments.items()}
    return Explanation({**whole.results, **arguments}, {}).line(MAX_TEXT)


def _words(kind: Kind, name: str, text: str) -> str:
    if kind == "call":
        return ": ".join(part for part in (name, text) if part)
    if kind == "error":
        return f"{name}: error: {text}"
    return f"{name}: {text or 'failed'}"
