"""Why a check did not pass, in a sentence, computed from its result, so that results of earlier runs have one, too.

Each check type defines it in `check_explanation`. A user's check returns its own sentence in its results, as `reason`,
because its class may not be installed where the result is read. A sentence is one line without control characters. It
quotes agents, so escape it where markup is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from fepflow.checks.core.sentences import MAX_PART, ResolvedArguments, number, redacted, shown, without_reason
from fepflow.checks.registry import our_checks
from fepflow.protocol.results import CheckResult, score_of
from fepflow.protocol.test_case import Output
from fepflow.security.secret_names import is_secret_name
from fepflow.text import cut, one_line, printable

MAX_SENTENCE = 300

REASONS = (
    *("reason", "explanation", "reasoning", "rationale", "justification", "message", "feedback", "comment"),
    *("critique", "analysis"),
)
"""Names of results that hold a sentence. The first that exists is used."""

_MAX_REASON = 240
_PLACEHOLDER = re.compile(r"\$\{(\w{1,200}+)[^}]{0,500}+\}")
_OUTPUT = "$.output.value"


def explain(check: CheckResult) -> str:
    """Return a sentence with the values that the check wanted and got; for a passed check, the results."""
    if check.error is not None:
        return _line(_PLACEHOLDER.sub(r"\1", check.error.message), MAX_SENTENCE)
    if check.status == "skip":
        return "the check was skipped"
    reason = _reason(check)
    if check.passed is False and reason is None:
        sentence = _from_its_type(check)
        under = _under_pass_at(check, sentence or "")
        sentence = ": ".join(filter(None, (under, sentence)))
        return cut(sentence or _from_results(check) or _from_arguments(check), MAX_SENTENCE)
    return cut(reason or _from_results(check), MAX_SENTENCE)


def complaint(check: CheckResult) -> str | None:
    """Return why a check did not pass, also if it ended in an error or gave no verdict; None for a pass."""
    if check.error is not None:
        return f"{check.error.type}: {explain(check)}"
    if check.status == "completed" and check.passed is None:
        return f"gave neither pass nor fail, but {explain(check) or 'nothing'}"
    return None if check.passed else explain(check)


def findings(check: CheckResult, limit: int) -> list[str]:
    """Return results beyond pass or fail in full, each on a line, unless the sentence has them."""
    if check.error is not None:
        message = _PLACEHOLDER.sub(r"\1", check.error.message)
        return [] if message == explain(check) else [cut(printable(line), limit) for line in message.splitlines()]
    lines: list[str] = []
    sentence = explain(check)
    for name, value in _results_of(check).items():
        several = value if isinstance(value, list) and all(isinstance(item, str) for item in value) else [value]
        texts = [_of_result(item, limit) for item in several]
        lines += [f"{_name(name)}: {text}" for text in texts if text not in sentence]
    return lines


def arguments_of(check: CheckResult, limit: int) -> list[str]:
    """Return the check's arguments, each on a line, without the output itself, configuration and defaults."""
    resolved = ResolvedArguments(check.resolved_arguments or {})
    arguments = {name: value for name, value in _about(check).items() if resolved.path(name) != _OUTPUT}
    return [f"{_name(name)}: {_of_result(value, limit)}" for name, value in arguments.items()]


def _under_pass_at(check: CheckResult, sentence: str) -> str:
    """Return the words for a score below a given `pass_at`; empty if the sentence has them."""
    least = (check.resolved_arguments or {}).get("pass_at", {}).get("value")
    score = score_of(check)
    is_number = isinstance(least, int | float) and not isinstance(least, bool)
    if score is None or not is_number or score >= least or number(score) in sentence:
        return ""
    if any(least == check_class.check_pass_at for check_class in our_checks(check.check_type)):
        return ""
    return f"score {number(score)} is under {number(least)}"


def _from_its_type(check: CheckResult) -> str | None:
    """Return the sentence of the check's type; None for types or results that are not fepflow's."""
    version = (check.metadata or {}).get("check_version")
    for check_class in our_checks(check.check_type):
        if version in (None, check_class.check_version):
            try:
                return check_class.check_explanation(ResolvedArguments(check.resolved_arguments or {}), check.results)
            except Exception:  # others may have written the result: it has whatever it has
                return None
    return None


def _reason(check: CheckResult) -> str | None:
    """Return the sentence among the results, with the score beside it."""
    results = _results_of(check)
    texts = (results[name] for name in REASONS if name in results)
    reason = next((text for text in texts if isinstance(text, str) and text.strip()), None)
    if reason is None:
        return None
    score = score_of(check)
    return _line(reason, _MAX_REASON) + ("" if score is None else f" (score {number(score)})")


def _from_results(check: CheckResult) -> str:
    """Return the results by name."""
    results = _results_of(check).items()
    return ", ".join(f"{_name(name)}: {_of_result(value, MAX_SENTENCE // 2)}" for name, value in results)


def _from_arguments(check: CheckResult) -> str:
    """Describe a check without a reason by the values that it got."""
    arguments = _about(check)
    looked_up = {
        name: value for name, value in arguments.items() if ResolvedArguments(check.resolved_arguments or {}).path(name)
    }
    return without_reason(check.check_type, looked_up or arguments)


def _about(check: CheckResult) -> dict[str, Any]:
    """Return the arguments that describe a check: without models, keys and functions, and unset switches."""
    resolved = ResolvedArguments(check.resolved_arguments or {})
    arguments = {name: redacted(resolved[name]) for name in resolved if not _is_configuration(name)}
    return {name: value for name, value in arguments.items() if value not in (None, {}) and value is not False}


def _results_of(check: CheckResult) -> dict[str, Any]:
    """Return the results that say more than pass or fail, perhaps from the response of a model."""
    response = check.results.get("response")
    results = response if isinstance(response, dict) else check.results
    results = {name: value for name, value in results.items() if value not in (None, "", [], {})}
    if check.passed is not None:
        results.pop("passed", None)
    return results


def _of_result(value: Any, limit: int) -> str:
    if isinstance(value, str):
        return _line(value, limit)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return cut("; ".join(_line(item, limit) for item in value), limit)
    return number(value) if isinstance(value, float) else shown(value, limit)


def _name(name: str) -> str:
    return printable(cut(name, MAX_PART))


def _is_configuration(name: str) -> bool:
    """Return whether an argument is configuration, not content: a model, its key, a function."""
    return name.endswith(("_config", "_function")) or name in ("judges", "jury") or is_secret_name(name)


def _line(text: str, limit: int) -> str:
    return one_line(text[: 4 * limit], limit)


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
