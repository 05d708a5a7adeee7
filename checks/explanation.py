"""Why a check did not pass, in a sentence, computed from its result, so that results of earlier runs have one, too.

Each check type defines it in `check_explanation`, from the parts of sentences here: values, quoted and cut around the
place that matters. A user's check returns its own sentence in its results, as `reason`, because its class may not be
installed where the result is read. A sentence is one line without control characters. It quotes agents, so escape it
where markup is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from os.path import commonprefix
from typing import Any

from fepflow.checks.registry import our_checks
from fepflow.json.values import json_equal
from fepflow.protocol.results import CheckResult, score_of
from fepflow.security.redaction import is_secret_name
from fepflow.text import as_json, cut, four_digits, one_line, printable

MAX_VALUE = 100
"""Characters of a value in a sentence."""

MAX_PART = 40
"""Characters of one of several values."""

MOST_ITEMS = 5
MOST_DIFFERENCES = 3
MOST_COMPARED = 20_000
"""Places of two values that are compared to say where they differ: some milliseconds."""

MAX_MESSAGE = 200

REDACTED = "***"

_ABSENT = object()
_POSITION = re.compile(r"at (?:line (\d+), )?column (\d+)$")

_BEFORE = 30
"""Characters that are shown in front of the place that matters."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A value that was too large to be kept with the result."""

    path: str

    def __str__(self) -> str:
        return f"(a large value at {self.path})"


class ResolvedArguments(Mapping[str, Any]):
    """Arguments of a check by name, as its result has them (FEP 2.3.4)."""

    def __init__(self, resolved: Mapping[str, Any]) -> None:
        self._resolved = {name: argument for name, argument in resolved.items() if isinstance(argument, dict)}

    def __getitem__(self, name: str) -> Any:
        argument = self._resolved[name]
        return argument["value"] if "value" in argument else LeftOut(self.path(name) or name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._resolved)

    def __len__(self) -> int:
        return len(self._resolved)

    def path(self, name: str) -> str | None:
        """Return the path that an argument was read from."""
        path = self._resolved.get(name, {}).get("jsonpath")
        return path if isinstance(path, str) else None

    def label(self, name: str) -> str:
        """Return the last name of an argument's path, to write before a value; empty for the output itself."""
        last = (self.path(name) or "").rpartition(".")[2]
        return f"{last} " if last.isidentifier() and last not in ("value", "expected", "input") else ""


def shown(value: Any, limit: int = MAX_VALUE, around: int | None = None) -> str:
    """Return a value on one line: a text in quotes, anything else as JSON. `around` is the place in a text to show.

    Control characters are escaped. Quotes inside a text are not, because answers in JSON are full of them.
    """
    if isinstance(value, LeftOut):
        return str(value)
    if not isinstance(value, str):
        return printable(as_json(value, limit))
    start = 0 if around is None or around < limit - _BEFORE else around - _BEFORE
    if 0 < len(value) - start < limit - _BEFORE:
        start = max(0, len(value) - limit)
    part = value[start : start + limit]
    before, after = "…" * (start > 0), "…" * (start + limit < len(value))
    return f'"{before}{_escaped(part)}{after}"'


def _escaped(text: str) -> str:
    for char, escape in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        text = text.replace(char, escape)
    return printable(text)


def listed(values: Iterable[Any] | LeftOut, most: int = MOST_ITEMS) -> str:
    """Return the first `most` values in a row."""
    if isinstance(values, LeftOut):
        return str(values)
    values = list(values)
    rest = len(values) - most
    parts = [shown(value, MAX_PART) for value in values[:most]]
    return ", ".join(parts) + (f" and {rest} more" if rest > 0 else "")


def subject(values: Sequence[Any]) -> str:
    """Return values as the subject of a sentence, with the verb."""
    return f"{listed(values)} {'is' if len(values) == 1 else 'are'}"


def number(value: Any) -> str:
    """Return a number as people write it: four digits, or all whole ones."""
    return four_digits(value) if isinstance(value, float) else shown(value)


def _compared(value: Any, bound: Any) -> tuple[str, str]:
    """Return a value and its bound, with all digits if four would make them look the same."""
    if number(value) != number(bound) or value == bound:
        return number(value), number(bound)
    return str(value), str(bound)


def out_of_bounds(value: Any, bounds: Mapping[str, Any], label: str = "") -> str:
    """Return the sentence about a number beyond `min_value` or `max_value`; with `negate`, about one between them."""
    low, high = bounds.get("min_value"), bounds.get("max_value")
    if not isinstance(value, int | float):
        return f"{label}{shown(value)} is not a number"
    if bounds.get("negate"):
        return f"{label}{_within(value, low, high)}, which is not wanted"
    if low is not None and not value > low and (value != low or bounds.get("min_inclusive") is False):
        text, limit = _compared(value, low)
        return f"{label}{text} is {'under' if value < low else 'not over'} {limit}"
    if high is not None:
        text, limit = _compared(value, high)
        return f"{label}{text} is {'over' if value > high else 'not under'} {limit}"
    return f"{label}{number(value)} is out of bounds"


def _within(value: Any, low: Any, high: Any) -> str:
    if low is None or high is None:
        text, limit = _compared(value, high if low is None else low)
        return f"{text} is {'at most' if low is None else 'at least'} {limit}"
    return f"{number(value)} is between {number(low)} and {number(high)}"


def differing(actual: Any, expected: Any, *, fold_case: bool = False) -> str:
    """Return the sentence about values that differ: with the place in long texts, and paths in objects and lists."""
    if isinstance(actual, str) and isinstance(expected, str):
        return _differing_texts(actual, expected, fold_case)
    if isinstance(actual, dict | list) and type(actual) is type(expected):
        places = islice(_differences(actual, expected, ""), MOST_COMPARED)
        if parts := list(islice(filter(None, places), MOST_DIFFERENCES + 1)):
            return "; ".join(parts[:MOST_DIFFERENCES]) + "; and more" * (len(parts) > MOST_DIFFERENCES)
    return f"got {shown(actual)}, wanted {shown(expected)}"


def _differing_texts(actual: str, expected: str, fold_case: bool) -> str:
    one, other = (actual.casefold(), expected.casefold()) if fold_case else (actual, expected)
    place = len(commonprefix([one, other]))  # noqa: RUF071  # texts, not paths
    sentence = f"got {shown(actual, around=place)}, wanted {shown(expected, around=place)}"
    if max(len(actual), len(expected)) > MAX_VALUE:
        sentence += f" (they differ from character {place + 1:,} on)"
    elif one.casefold() == other.casefold():
        sentence += " (they differ in upper and lower case only)"
    elif one.split() == other.split():
        sentence += " (they differ in white space only)"
    return sentence


def _differences(actual: Any, expected: Any, path: str) -> Iterator[str | None]:
    """Yield a part of the sentence for each place where two values differ, None for each where they do not."""
    if isinstance(actual, dict) and isinstance(expected, dict):
        for key in {**expected, **actual}:
            place = f"{path}.{key}" if path else str(key)
            yield from _differences(actual.get(key, _ABSENT), expected.get(key, _ABSENT), place)
    elif isinstance(actual, list) and isinstance(expected, list):
        for index, (one, other) in enumerate(zip_longest(actual, expected, fillvalue=_ABSENT)):
            yield from _differences(one, other, f"{path}[{index}]")
    elif actual is _ABSENT:
        yield f"{_place(path)} is missing, wanted {shown(expected, MAX_PART)}"
    elif expected is _ABSENT:
        yield f"{_place(path)} is not wanted, got {shown(actual, MAX_PART)}"
    elif json_equal(actual, expected):
        yield None
    else:
        yield f"{_place(path)}: got {shown(actual, MAX_PART)}, wanted {shown(expected, MAX_PART)}"


def _place(path: str) -> str:
    return printable(cut(path, MAX_PART))


def unwanted(value: Any) -> str:
    """Return the sentence about a value that should differ."""
    return f"got {shown(value)}, wanted anything else"


def without_phrases(text: str, missing: Sequence[str]) -> str:
    """Return the sentence about phrases that a text does not have."""
    place = text.casefold().find(missing[0].casefold())
    hint = " (there in other upper and lower case)" if place >= 0 and missing[0] not in text else ""
    return f"{subject(missing)} not in: {shown(text, around=place)}{hint}"


def with_phrases(text: str, found: Sequence[str]) -> str:
    """Return the sentence about phrases that a text has and should not have."""
    return f"{subject(found)} in: {shown(text, around=text.casefold().find(found[0].casefold()))}"


def without_match(text: Any, pattern: Any) -> str:
    """Return the sentence about a pattern that a text should match."""
    return f"{_pattern(pattern)} is not found in: {shown(text)}"


def with_match(text: Any, pattern: Any, place: int | None) -> str:
    """Return the sentence about a pattern that a text should not match."""
    return f"{_pattern(pattern)} is found in: {shown(text, around=place)}"


def _pattern(pattern: Any) -> str:
    return f"/{printable(cut(pattern, MAX_VALUE))}/" if isinstance(pattern, str) else shown(pattern)


def first_errors(errors: Sequence[str], data: Any) -> str:
    """Return the first of the errors of a JSON text or of a schema; of invalid JSON with the place in the text."""
    first, more = printable(cut(errors[0], MAX_MESSAGE)), f"; and {len(errors) - 1} more" if len(errors) > 1 else ""
    if not first.startswith("is not valid JSON") or not isinstance(data, str):
        return f"{first}{more}"
    position = _POSITION.search(first)
    line, column = (int(position[1] or 1), int(position[2])) if position else (1, 1)
    before = data.split("\n", line)[: line - 1]
    hint = " (extract: {fence: json} takes it out of a code fence)" if "```" in data else ""
    return f"{first}: {shown(data, around=sum(len(line) + 1 for line in before) + column - 1)}{hint}"


def without_reason(name: str, values: Mapping[str, Any]) -> str:
    """Return the sentence about a check without a reason, with the values that it got."""
    got = ", ".join(f"{printable(cut(key, MAX_PART))} {shown(value)}" for key, value in values.items())
    return f"{printable(cut(name, MAX_PART))} did not pass and gives no reason{f'; it got {got}' if got else ''}"


def redacted(value: Any) -> Any:
    """Return a JSON value in which members with a secret's name are hidden."""
    if isinstance(value, dict):
        return {key: REDACTED if is_secret_name(str(key)) else redacted(item) for key, item in value.items()}
    return [redacted(item) for item in value] if isinstance(value, list) else value


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
