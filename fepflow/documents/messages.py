"""Messages about values: pydantic's errors reworded, with their places, and what an unknown name is likely to mean."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

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
"""Words that are booleans in YAML 1.1, and texts in YAML 1.2."""

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
    """Return the errors in `value`, one a location, in pydantic's order; no values are shown.

    `annotation` is the type that was validated, by which an unknown name gets a suggestion, and
    `elsewhere` what other tools' names mean here (`fepflow.suite.foreign_names`).

    A union complains once for each of its branches. Of those, the ones that got furthest into the value are what the
    user meant; if none got in, what must be is said in one sentence (`must be a text or a list`).
    """
    sentences: dict[DocumentPath, list[tuple[str, str | None]]] = {}
    sentence: tuple[str, str | None]
    for item in error.errors(include_url=False):
        if item["type"] not in _UNION_ONLY:
            location = _within(value, item["loc"])
            if item["type"] == "missing":
                location = (*location, item["loc"][-1])
            is_unknown = item["type"] == "extra_forbidden"
            if is_unknown and _stands_in_arguments(value, location):
                sentence = (f"{location[-1]} stands beside type and in arguments", "keep one of the two")
            else:
                known = names_at(annotation, location[:-1]) if is_unknown else []
                sentence = _sentence(item, known, elsewhere)
            sentences.setdefault(location, []).append(sentence)
    inner = {path[:length] for path in sentences for length in range(len(path))}
    return [
        ValidationMessage(
            path, _joined([message for message, _ in messages]), messages[0][1] if len(messages) == 1 else None
        )
        for path, messages in sentences.items()
        if path not in inner
    ]


def _stands_in_arguments(value: Any, location: DocumentPath) -> bool:
    """Return whether a key of a check is one of its arguments, too."""
    *parents, name = location
    for step in parents:
        value = value[step]
    arguments = value.get("arguments") if isinstance(value, dict) and "type" in value else None
    return isinstance(arguments, dict) and name in arguments


def _within(value: Any, location: DocumentPath) -> DocumentPath:
    """Return the part of pydantic's location that exists in the value (it also names branches of unions)."""
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


def _cure(kind: str, value: Any) -> str | None:
    """Return what to do about a value of another type than was asked for."""
    if value is None:
        return "nothing stands there"
    if kind == "string_type" and isinstance(value, bool | int | float):
        return "put it in quotes"
    if kind == "string_type" and isinstance(value, dict) and list(value.values()) == [None]:
        (name,) = value
        return f'in YAML {{ }} is a mapping: write "{name}", in quotes' if str(name).startswith("$") else None
    if not isinstance(value, str):
        return None
    if kind.startswith("bool") and value.lower() in _SWITCHES:
        return f"write {_SWITCHES[value.lower()]}, without quotes"
    if kind in _NUMBERS and _NUMBER.fullmatch(value):
        return "take the quotes off" if not value.endswith("%") else "write it as a fraction, such as 0.9"
    if kind in _MAPPINGS and (name := re.match(r"([\w-]+):[^\s/]", value)):
        return f"write a space after the colon: `{name[1]}: ...`"
    if kind == "list_type":
        return "write it in brackets: [ ]"
    return None


def _ours(message: str) -> str:
    """Return `Input should be less than 5` as `must be less than 5`."""
    text = re.sub(r"^(Input|String|List|Dictionary|Value) should ", "must ", message).replace(" after validation", "")
    return text[:1].lower() + text[1:]


def _joined(messages: Sequence[str]) -> str:
    more_specific = [message for message in messages if message not in _EXPECTED.values()]
    first, *others = dict.fromkeys(more_specific or messages)
    return " or ".join([first, *(message.removeprefix("must be ") for message in others)])


_MANY = 20
_LONGEST = 60
_SURE = 0.8
"""Likeness of names that can hardly be different ones: tests and test_cases are less alike."""


def closest(name: str, known: Sequence[str]) -> str | None:
    """Return the known name that was probably meant, or None."""
    return _closest(name[:_LONGEST], tuple(known))


def did_you_mean(name: str, known: Sequence[str], elsewhere: Mapping[str, str] | None = None) -> str:
    """Return advice for an unknown name; `elsewhere` says what other tools' names are called here."""
    return _advice(name[:_LONGEST], tuple(known), tuple((elsewhere or {}).items()))


@lru_cache(maxsize=1_000)  # the same error may have been made a hundred thousand times
def _advice(name: str, known: tuple[str, ...], called: tuple[tuple[str, str], ...]) -> str:
    if not _same(name, known) and (meant := dict(called).get(bare_name(name))):
        return meant
    if close := _closest(name, known):
        return f"did you mean {close}?"
    more = ", ..." if len(known) > _MANY else ""
    return f"known are {', '.join(known[:_MANY])}{more}" if known else "remove it"


@lru_cache(maxsize=1_000)
def _closest(name: str, known: tuple[str, ...]) -> str | None:
    alike = _same(name, known) or get_close_matches(name, known, 1)
    return next(iter(alike or (item for item in known if _words(item) & _words(name))), None)


def _same(name: str, known: tuple[str, ...]) -> list[str]:
    return [item for item in known if bare_name(item) == bare_name(name)] or get_close_matches(name, known, 1, _SURE)


def _words(name: str) -> set[str]:
    return {word for word in name.lower().split("_") if len(word) > 2}


def bare_name(name: str) -> str:
    """Return a name as `fepflow.suite.foreign_names` has it: in lower case, letters and digits only."""
    return "".join(char for char in name.lower() if char.isalnum())


def names_at(annotation: Any, path: DocumentPath) -> list[str]:
    """Return the field names of the models that `annotation` allows at `path`; an empty list without a model."""
    kinds = list(_alternatives(annotation))
    for step in path:
        kinds = [kind for parent in kinds for kind in _inside(parent, step)]
    return list(dict.fromkeys(name for kind in kinds for name in _fields(kind)))


def _alternatives(annotation: Any) -> Iterator[Any]:
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _alternatives(get_args(annotation)[0])
    elif origin in (Union, UnionType):
        for part in get_args(annotation):
            yield from _alternatives(part)
    else:
        yield annotation


def _inside(kind: Any, step: str | int) -> Iterator[Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, info in kind.model_fields.items():
            if step in (name, info.alias):
                yield from _alternatives(info.annotation)
    elif origin is dict and len(arguments) == 2:
        yield from _alternatives(arguments[1])
    elif origin is list and arguments:
        yield from _alternatives(arguments[0])


def _fields(kind: Any) -> Iterator[str]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield from (info.alias or name for name, info in kind.model_fields.items())
