"""Parts of the sentences that say why a check failed: values, quoted and cut around the place that matters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from os.path import commonprefix
from typing import Any

from fepflow.json.values import json_equal
from fepflow.security.secret_names import is_secret_name
from fepflow.text import as_json, cut, four_digits, printable

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
