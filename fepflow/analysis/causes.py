"""The causes of results that did not pass: equal messages counted once, and the command that shows their cases."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from fepflow.checks.explanation import MAX_SENTENCE, explain
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output
from fepflow.text import cut, printable

if TYPE_CHECKING:  # the pytest plugin counts causes, and has no store
    from fepflow.store.records import RunRecord
    from fepflow.store.store import Store

MAX_RESULTS = 2_000
"""Results that did not pass and are looked at: some tenths of a second."""

Kind = Literal["call", "error", "failed"]

MAX_CAUSES = 8
MAX_CASES = 3
"""Cases that are named of each cause."""
MAX_PATTERNS = 500
"""Different messages of one source that are counted. Others are counted together."""

_CASE = "\x00"
_ELLIPSIS = "…"
_VARYING = re.compile(
    f"({_CASE}"
    r"|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    r"|\b(?=[0-9A-Fa-f]*[0-9])[0-9A-Fa-f]{8,64}\b"
    r"|[0-9]+(?:[.,:][0-9]+)*)"
)
_QUOTED = re.compile(r"""('[^']*'|"[^"]*")""")
_RARE = 0.05
"""Share of a source's messages up to which a message that occurs several times is merged with others."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A cause: the number of its results, the check (empty for a failed call), and its first cases."""

    count: int
    kind: Kind
    check_id: str
    text: str
    case_ids: list[str]
    has_more_cases: bool

    def __str__(self) -> str:
        return f"{self.count} × {self.text}"

    @property
    def cases(self) -> str:
        """The ids of its first cases, for a text."""
        return ", ".join([*map(printable, self.case_ids), *["…"] * self.has_more_cases])


@dataclass(frozen=True, slots=True)
class CauseSummary:
    """The most frequent causes, and remarks about the others."""

    causes: list[Cause]
    remarks: list[str]

    def lines(self) -> list[str]:
        """Return each cause with its first cases on a line, then the remarks."""
        return [*(f"{cause} ({cause.cases})" for cause in self.causes), *self.remarks]


@dataclass(slots=True)
class _Pattern:
    """Messages that differ only in some values. `parts` are texts with values between them; `…` if a value differs."""

    parts: list[str]
    case_ids: list[str]
    count: int = 1

    @property
    def text(self) -> str:
        return "".join(self.parts)

    def merge(self, other: _Pattern) -> None:
        if len(self.parts) == len(other.parts):
            pairs = zip(self.parts, other.parts, strict=True)
            self.parts = [part if part == other_part else _ELLIPSIS for part, other_part in pairs]
        self.count += other.count
        # One more than are shown, to know that there are more.
        self.case_ids = list(dict.fromkeys([*self.case_ids, *other.case_ids]))[: MAX_CASES + 1]


class _Source:
    """The messages of one check, or of one kind of failed calls, merged where only numbers and ids differ."""

    def __init__(self) -> None:
        self.patterns: dict[tuple[str, ...], _Pattern] = {}
        self.others: list[_Pattern] = []
        """All messages beyond MAX_PATTERNS, as one."""
        self.count = 0

    def add(self, text: str, case_id: str) -> None:
        self.count += 1
        parts = _VARYING.split(text)
        key = tuple(parts[::2])
        pattern = _Pattern([case_id if part == _CASE else part for part in parts], [case_id])
        if key in self.patterns:
            self.patterns[key].merge(pattern)
        elif len(self.patterns) < MAX_PATTERNS:
            self.patterns[key] = pattern
        else:
            self.others = [_merged([*self.others, pattern])]

    def causes(self) -> Iterator[tuple[_Pattern, str]]:
        """Yield each cause and its text. Rare messages are merged where only numbers and quoted values differ."""
        rare: dict[tuple[str, ...], list[tuple[_Pattern, _Pattern]]] = {}
        for pattern in self.patterns.values():
            if pattern.count > max(1, self.count * _RARE):
                yield pattern, pattern.text
            else:
                quoted = _QUOTED.split(_ELLIPSIS.join(pattern.parts[::2]))
                pair = pattern, _Pattern(quoted, pattern.case_ids, pattern.count)
                rare.setdefault(tuple(quoted[::2]), []).append(pair)
        different: list[_Pattern] = []
        for pairs in rare.values():
            merged = _merged([without_numbers for _, without_numbers in pairs])
            values = merged.parts[1::2]
            if 0 < values.count(_ELLIPSIS) < len(values):
                yield merged, merged.text
            else:
                different += [pattern for pattern, _ in pairs]
        different += self.others
        if different:
            such_as = "different each time, such as: " if len(different) > 1 else ""
            yield _merged(different), such_as + different[0].text


def _merged(patterns: Sequence[_Pattern]) -> _Pattern:
    merged = replace(patterns[0])
    for pattern in patterns[1:]:
        merged.merge(pattern)
    return merged


class Causes:
    """A counter of causes, in limited memory however many results there are."""

    def __init__(self) -> None:
        self._sources: dict[tuple[Kind, str], _Source] = {}

    def add(self, case_id: str, output: Output | None, checks: Sequence[CheckResult]) -> None:
        """Count why one result did not pass. If the call failed, errors of its checks add nothing."""
        failure = None if output is None else output.failure
        if failure is not None:
            self._add("call", *_of_call(failure), case_id)
        for check in checks:
            if check.error is not None and failure is None:
                self._add("error", check.check_id, explain(check), case_id)
            elif check.passed is False:
                self._add("failed", check.check_id, explain(check), case_id)

    def _add(self, kind: Kind, source: str, text: str, case_id: str) -> None:
        text = " ".join(cut(text, MAX_SENTENCE).replace(_CASE, " ").split())
        if len(case_id) > 2 and case_id in text:
            text = re.sub(rf"(?<!\w){re.escape(case_id)}(?!\w)", _CASE, text)
        self._sources.setdefault((kind, source), _Source()).add(text, case_id)

    def most_frequent(self) -> list[Cause]:
        """Return all causes, the most frequent first."""
        causes = [
            Cause(
                pattern.count,
                kind,
                name if kind != "call" else "",
                _words(kind, name, text),
                pattern.case_ids[:MAX_CASES],
                len(pattern.case_ids) > MAX_CASES,
            )
            for (kind, name), source in self._sources.items()
            for pattern, text in source.causes()
        ]
        return sorted(causes, key=lambda cause: (-cause.count, cause.text))

    def summary(self, limit: int = MAX_CAUSES) -> CauseSummary:
        """Return the most frequent causes, and how many are left out."""
        causes = self.most_frequent()
        rest = causes[limit:]
        others, times = len(rest), sum(cause.count for cause in rest)
        words = f"{others} other {'cause' if others == 1 else 'causes'}, {times} {'time' if times == 1 else 'times'}"
        remarks = [words] if rest else []
        return CauseSummary(causes[:limit], remarks)


def _of_call(failure: dict[str, Any]) -> tuple[str, str]:
    """Return the source and the text of a call's error. Errors of one HTTP status have the same source."""
    message = str(failure["message"])
    status, _, rest = message.partition(": ")
    return (status, rest) if failure.get("status") and status.startswith("HTTP ") else ("", message)


def _words(kind: Kind, name: str, text: str) -> str:
    if kind == "call":
        return ": ".join(part for part in (name, text) if part)
    if kind == "error":
        return f"{name}: error: {text}"
    return f"{name}: {text or 'failed'}"


def causes_of(store: Store, run: RunRecord, limit: int = MAX_CAUSES, *, max_results: int = MAX_RESULTS) -> CauseSummary:
    """Summarize why results of a run did not pass; the most frequent causes first."""
    causes = Causes()
    failed = store.results.by_case(run.id, failed_only=True, whole=False)
    for result in islice(failed, max_results):
        causes.add(result.case.id, result.output, result.checks)
    summary = causes.summary(limit)
    if next(failed, None) is not None:
        summary.remarks.append(f"(of the first {max_results:,} results that did not pass)")
    return summary


def show_command(run: RunRecord, cause: Cause) -> str:
    """Return the command that shows the cases of a cause: the only one, or all that did not pass its check."""
    if len(cause.case_ids) == 1:
        return f"fepflow show {run.id[:8]} --case {shlex.quote(cause.case_ids[0])}"
    options = ["--errors"] * (cause.kind != "failed") + [f"--check {shlex.quote(cause.check_id)}"] * bool(
        cause.check_id
    )
    return f"fepflow show {run.id[:8]} {' '.join(options)}"
