"""Why a result is no pass: what one check found. Text of agents is in it as it came: escape it to show it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fepflow.protocol.results import CheckResult

OUTPUT_PATH = "$.output.value"

MAX_LINE = 300

_SEPARATOR = ", "


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a check found, by name, in the order in which it is shown.

    `results` are the check's own (a model's response in place of what is around it), without the pass or fail and
    without what is empty. `arguments` are those that were given and are not the defaults, without the output.
    `error` is the sentence of a check that ended in error.
    """

    results: Mapping[str, Any]
    arguments: Mapping[str, Any]
    error: str | None = None

    def line(self, limit: int = MAX_LINE) -> str:
        """On one line of at most about `limit` characters; the longest parts are cut first. Empty if nothing is known.

        A model that gave a response has its question left out: it is in `lines`.
        """
        if self.error is not None:
            return cut(_one_line(self.error), limit)
        arguments = {} if self.results and self._is_of_model else self.arguments
        names = [*self.results, *arguments]
        texts = [_text_of(value, limit) for value in self.results.values()]
        texts += [as_json(value, limit) for value in arguments.values()]
        room = limit - sum(len(name) + len(": ") for name in names) - len(_SEPARATOR) * (len(names) - 1)
        values = fit(texts, max(room, 0))
        return cut(_SEPARATOR.join(f"{name}: {value}" for name, value in zip(names, values, strict=True)), limit)

    def lines(self, limit: int | None = None) -> list[str]:
        """In full: a line for each thing, results first; each value cut to `limit` characters, or whole."""
        if self.error is not None:
            return [cut(line, limit) for line in self.error.splitlines()] or [""]
        results = [f"{name}: {cut(text, limit)}" for name, value in self.results.items() for text in _items(value)]
        return results + [f"{name}: {as_json(value, limit)}" for name, value in self.arguments.items()]

    @property
    def _is_of_model(self) -> bool:
        return "prompt" in self.arguments


def explain(check: CheckResult, *, with_output: bool = False) -> Explanation:
    """What a check found. With `with_output`, where the output is not shown beside it, it is an argument, too.

    The output is included where a check had no other argument and no other result.
    """
    if check.error is not None:
        return Explanation({}, {}, check.error.message)
    results = results_of(check)
    arguments = _arguments_of(check, with_output=with_output)
    if not results and not arguments and not with_output:
        arguments = _arguments_of(check, with_output=True)
    return Explanation(results, arguments)


def results_of(check: CheckResult) -> dict[str, Any]:
    """The results of a check that say more than pass or fail: what they hold, or the response of a model in them."""
    response = check.results.get("response")
    results = response if isinstance(response, dict) else check.results
    details = {name: value for name, value in results.items() if value not in (None, "", [], {})}
    if check.passed is not None:
        details.pop("passed", None)
    return details


def _arguments_of(check: CheckResult, *, with_output: bool) -> dict[str, Any]:
    arguments = check.resolved_arguments or {}
    given = (check.metadata or {}).get("arguments_given")
    if not isinstance(given, list):  # a result of before this was kept
        given = [name for name, argument in arguments.items() if not _is_off(argument)]
    details: dict[str, Any] = {}
    for name in given:
        argument = arguments.get(name, {"value": None})
        value, path = argument["value"], argument.get("jsonpath")
        if path != OUTPUT_PATH or with_output:
            details[f"{name} ({path})" if path and value is None else name] = value
    return details


def _is_off(argument: dict[str, Any]) -> bool:
    """Whether it is nothing, or a switch that is off: the defaults of most check types."""
    return "jsonpath" not in argument and (argument["value"] is None or argument["value"] is False)


def fit(texts: Sequence[str], room: int) -> list[str]:
    """Cut texts so that together they have at most about `room` characters: the longest first, short ones never."""
    limit = max(map(len, texts), default=0)
    left, unplaced = room, len(texts)
    if sum(map(len, texts)) > room:
        for length in sorted(map(len, texts)):
            if length * unplaced > left:
                limit = left // unplaced
                break
            left -= length
            unplaced -= 1
    return [cut(text, max(limit, 1)) for text in texts]


def cut(text: str, limit: int | None) -> str:
    """The text, or its beginning and an ellipsis, `limit` characters together."""
    return text if limit is None or len(text) <= limit else f"{text[: limit - 1]}…"


def as_json(value: Any, limit: int | None = None) -> str:
    """A value as JSON on one line, as long as a text cut to `limit`: of a huge value no more is written down."""
    parts: list[str] = []
    length = 0
    try:
        for part in _ENCODER.iterencode(value):
            parts.append(part)
            length += len(part)
            if limit is not None and length > limit:
                break
    except (TypeError, ValueError, RecursionError):  # from code: what contains itself, or has odd keys
        return cut(_one_line(repr(value)), limit)
    return cut("".join(parts), limit)


_ENCODER = json.JSONEncoder(ensure_ascii=False, default=repr)


def _text_of(value: Any, limit: int | None) -> str:
    """A result on one line: a text, or several, as prose."""
    if isinstance(value, str):
        return _one_line(value if limit is None else value[: 4 * limit])
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "; ".join(_one_line(item) for item in value)
    return as_json(value, limit)


def _items(value: Any) -> Iterator[str]:
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        yield from map(_one_line, value)
    else:
        yield _text_of(value, None)


def _one_line(text: str) -> str:
    return " ".join(text.split())
