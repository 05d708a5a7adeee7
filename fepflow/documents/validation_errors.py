"""Pydantic's validation errors reworded: what is expected, and where in the user's document."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from fepflow.documents.did_you_mean import did_you_mean, names_at
from fepflow.errors import DocumentPath, ValidationMessage

_EXPECTED = {
    "string_type": "must be a text",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "string_too_short": "must not be empty",
    "finite_number": "must be a finite number",
}

_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}

_PATTERNS = {
    "^[A-Za-z0-9_-]+$": "may hold letters, digits, _ and - only",
    "^(0|[1-9]": "must be a semantic version, such as 1.2.0",
    "^[A-Za-z_]": "must be the name of an environment variable",
    r"^[^:]+:": "must read like agent.py:answer or package.module:answer",
}
"""Messages for a text that does not match, by how the pattern starts."""

_SWITCHES = {"yes": "true", "on": "true", "true": "true", "no": "false", "off": "false", "false": "false"}
"""What YAML 1.1 took for booleans, and YAML 1.2 for texts."""

_NUMBERS = ("int_type", "int_parsing", "float_type", "float_parsing")
_MAPPINGS = ("dict_type", "model_type", "model_attributes_type")
_NUMBER = re.compile(r"\s*[+-]?\d+(\.\d+)?\s*%?")

_UNION_ONLY = ("is_instance_of",)
"""Complaints of a union's branch that was never meant: an argument that could have been a path object."""


_KINDS = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}


def kind_name(value: Any) -> str:
    """Return the kind of a JSON value, for a message: `a list`, `null`; the name of another type."""
    return "null" if value is None else _KINDS.get(type(value), type(value).__name__)


def validation_messages(
    value: Any, error: ValidationError, annotation: Any = None, elsewhere: Mapping[str, str] | None = None
) -> list[ValidationMessage]:
    """The errors in `value`, one a location, in pydantic's order; no values are shown.

    `annotation` is the type that was validated, by which an unknown name gets a suggestion, and
    `elsewhere` what other tools' names mean here (`fepflow.suite.foreign_names`).

    A union complains once for each of its branches. Of those, the ones that got furthest into the value are what the
    user meant; if none got in, what must be is said in one sentence (`must be a text or a list`).
    """
    found: dict[DocumentPath, list[tuple[str, str | None]]] = {}
    for item in error.errors(include_url=False):
        if item["type"] not in _UNION_ONLY:
            location = _within(value, item["loc"])
            if item["type"] == "missing":
                location = (*location, item["loc"][-1])
            known = names_at(annotation, location[:-1]) if item["type"] == "extra_forbidden" else []
            found.setdefault(location, []).append(_sentence(item, known, elsewhere))
    inner = {path[:length] for path in found for length in range(len(path))}
    return [
        ValidationMessage(
            path, _joined([message for message, _ in messages]), messages[0][1] if len(messages) == 1 else None
        )
        for path, messages in found.items()
        if path not in inner
    ]


def _within(value: Any, location: DocumentPath) -> DocumentPath:
    """The part of pydantic's location that exists in the value (it also names branches of unions)."""
    path: list[str | int] = []
    for step in location:
        in_list = isinstance(value, list) and isinstance(step, int) and step < len(value)
        if in_list or (isinstance(value, dict) and step in value):
            value = value[step]
            path.append(step)
    return tuple(path)


def _sentence(item: Any, known: Sequence[str], elsewhere: Mapping[str, str] | None) -> tuple[str, str | None]:
    kind, context = item["type"], item.get("ctx", {})
    last = item["loc"][-1] if item["loc"] else ""
    if kind == "missing":
        return "is missing", "add it"
    if kind == "extra_forbidden":
        return f"{last} is not known here", did_you_mean(str(last), known, elsewhere)
    if kind == "value_error":
        return str(context["error"]), None
    if kind == "literal_error":
        expected = str(context["expected"])
        return f"must be one of {expected}" if " or " in expected else f"must be {expected}", None
    if kind in _BOUNDS:
        words, name = _BOUNDS[kind]
        return f"must be {words} {context[name]:g}", None
    if kind in _EXPECTED and (advice := _cure(kind, item["input"])):
        return _EXPECTED[kind], advice
    if kind == "string_pattern_mismatch":
        for start, message in _PATTERNS.items():
            if context["pattern"].startswith(start):
                return message, None
    return _EXPECTED.get(kind) or _ours(item["msg"]), None


def _cure(kind: str, given: Any) -> str | None:
    """What to do about a value of another type than was asked for."""
    if given is None:
        return "nothing stands there"
    if kind == "string_type" and isinstance(given, bool | int | float):
        return "put it in quotes"
    if kind == "string_type" and isinstance(given, dict) and list(given.values()) == [None]:
        (name,) = given
        return f'in YAML {{ }} is a mapping: write "{name}", in quotes' if str(name).startswith("$") else None
    if not isinstance(given, str):
        return None
    if kind.startswith("bool") and given.lower() in _SWITCHES:
        return f"write {_SWITCHES[given.lower()]}, without quotes"
    if kind in _NUMBERS and _NUMBER.fullmatch(given):
        return "take the quotes off" if not given.endswith("%") else "write it as a fraction, such as 0.9"
    if kind in _MAPPINGS and (name := re.match(r"([\w-]+):[^\s/]", given)):
        return f"write a space after the colon: `{name[1]}: ...`"
    if kind == "list_type":
        return "write it in brackets: [ ]"
    return None


def _ours(message: str) -> str:
    """`Input should be less than 5` as `must be less than 5`."""
    text = re.sub(r"^(Input|String|List|Dictionary|Value) should ", "must ", message).removesuffix(" after validation")
    return text[:1].lower() + text[1:]


def _joined(messages: Sequence[str]) -> str:
    more_specific = [message for message in messages if message not in _EXPECTED.values()]
    first, *others = dict.fromkeys(more_specific or messages)
    return " or ".join([first, *(message.removeprefix("must be ") for message in others)])
