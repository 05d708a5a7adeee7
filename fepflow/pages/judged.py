"""The question of a check to a model, and the model's answer, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fepflow.protocol.results import CheckResult
from fepflow.text import four_digits

_ASKED = ("prompt", "criteria")
"""Arguments that hold the question of a judge, the first that is there."""

Words = str | list[dict[str, str]]
"""A value in words: a text, or what each of several objects says."""


class JudgedView(NamedTuple):
    """A judge's question, None if the result does not have it; its answer by field; and what each sample said."""

    asked: str | None
    answer: list[tuple[str, Words]]
    votes: list[str]


def judged_view(check: CheckResult) -> JudgedView | None:
    """Return what a judge was asked and answered; None for a check that asked none, or that has no answer."""
    response = check.results.get("response")
    if not isinstance(response, dict):
        return None
    arguments = check.resolved_arguments or {}
    texts = (arguments[name].get("value") for name in _ASKED if isinstance(arguments.get(name), dict))
    asked = next((text for text in texts if isinstance(text, str)), None)
    answer = [(_name(name), in_words(value)) for name, value in response.items() if value is not None]
    return JudgedView(asked, answer, list(_votes(check.results.get("metadata"))))


def in_words(value: Any) -> Words:
    """Return a value of an answer in words."""
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return [{_name(name): _plain(part) for name, part in item.items() if part is not None} for item in value]
    return _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return four_digits(value)
    if isinstance(value, list):
        return "; ".join(map(_plain, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{_name(name)}: {_plain(part)}" for name, part in value.items()) or "none"
    return "none" if value is None else str(value)


def _votes(metadata: Any) -> Iterator[str]:
    """Yield what each sample, or each judge of a jury, said."""
    details = metadata.get("jury") or metadata.get("samples") if isinstance(metadata, Mapping) else None
    said = details.get("said") if isinstance(details, Mapping) else None
    for number, sample in enumerate(said if isinstance(said, list) else (), 1):
        if isinstance(sample, Mapping):
            name = sample.get("judge", f"sample {number}")
            rest = {field: value for field, value in sample.items() if field != "judge"}
            yield f"{_plain(name)}: {_plain(rest)}"


def _name(name: str) -> str:
    return str(name).replace("_", " ")
