"""JSON Schema 2020-12, by the `jsonschema` library: no reference is fetched, and no pattern runs away.

The formats that are checked are `date`, `date-time`, `email`, `ipv4`, `ipv6` and `uuid`; others are remarks, as the
standard has it. The library searches patterns with `re`, and compares each unique or unevaluated item with each; here
the guard of the `regex` check does the one, and sets do the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from itertools import islice
from time import monotonic
from typing import Any

import attrs
from jsonschema import Draft202012Validator, FormatChecker
from jsonschema._utils import (  # what is evaluated; no public API says it
    find_evaluated_item_indexes_by_schema,
    find_evaluated_property_keys_by_schema,
)
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from jsonschema_specifications import REGISTRY
from referencing.exceptions import Unresolvable

from fepflow.checks.core.safe_regex import MAX_PATTERN, is_cheap, search
from fepflow.errors import CheckArgumentsError, CheckTimeoutError, dotted
from fepflow.json.equality import json_key

TIME_LIMIT = 1.0
"""Seconds that one validation may take."""

READ_LIMIT = 10.0
"""Seconds that reading a schema may take: an author's own one may be large."""

MAX_ERRORS = 20
MAX_MESSAGE = 300
_NAME_LENGTH = 1_000
"""Characters up to which a member's name is searched by the library itself, for unevaluatedProperties."""

_QUICK_PAIRS = 10_000
"""Parts of a schema times parts of the data that are validated in milliseconds."""

_REPEATING = ("$ref", "$dynamicRef", "unevaluatedProperties", "unevaluatedItems")

FORMATS = ("date", "date-time", "email", "ipv4", "ipv6", "uuid")

Keyword = Callable[[Any, Any, Any, Any], Iterator[ValidationError] | None]
"""Of a validator, the keyword's value, the instance and the schema around the keyword: its errors."""

_deadline: ContextVar[tuple[float, str]] = ContextVar("json_schema_deadline")
"""When time is up, and the sentence that says so."""


class CompiledSchema:
    """A schema that is one, ready to be applied."""

    def __init__(self, schema: dict[str, Any]) -> None:
        """Raises ValueError for what is no schema."""
        self._patterns = list(_patterns(schema))
        if any(len(pattern) > MAX_PATTERN for pattern in self._patterns):
            raise ValueError(f"must be a JSON Schema with patterns of up to {MAX_PATTERN:,} characters")
        if _has_keyword(schema, "unevaluatedProperties") and not self.is_quick_up_to(_NAME_LENGTH):
            raise ValueError("must be a JSON Schema with simple patterns, beside unevaluatedProperties")
        try:
            with _time_limit(READ_LIMIT, "the schema took longer than {:g} s to be read"):
                # As the library's `check_schema`, which takes 50 s for a schema of 1 MB.
                error = next(_META_VALIDATOR.iter_errors(schema), None)
        except RecursionError:
            raise ValueError("must be a JSON Schema: it nests too deep") from None
        if error is not None:
            raise ValueError(f"must be a JSON Schema: {_sentence(error)}")
        self._nodes = 0 if _refers(schema) else _node_count(schema)
        self._validator = _Validator(schema, registry=REGISTRY, format_checker=FormatChecker(FORMATS))

    def is_quick_up_to(self, characters: int) -> bool:
        """Whether no pattern of it can take long on a text of this length."""
        return all(is_cheap(pattern, 0, characters) for pattern in self._patterns)

    def is_quick_for(self, nodes: int) -> bool:
        """Return whether data of so many nodes is bound to be validated in milliseconds.

        Without references each part of a schema meets each part of the data once at most.
        """
        return 0 < self._nodes * nodes <= _QUICK_PAIRS

    def errors(self, data: Any) -> list[str]:
        """See fepflow.checks.core.json_schema.schema_errors."""
        try:
            with _time_limit(TIME_LIMIT, "the schema took longer than {:g} s on this data"):
                return [_sentence(error) for error in islice(self._validator.iter_errors(data), MAX_ERRORS)]
        except Unresolvable as error:
            raise CheckArgumentsError(
                f"the schema refers to {error.ref}, which is not in it (none is fetched)"
            ) from None
        except RecursionError:
            raise CheckArgumentsError("the schema refers to itself without end, or the data nests too deep") from None


@lru_cache(maxsize=256)
def compile_schema(text: str) -> CompiledSchema:
    """Compile a schema, given as JSON text; raises ValueError for what is no schema."""
    return CompiledSchema(json.loads(text))


def _sentence(error: ValidationError) -> str:
    message = error.message if len(error.message) <= MAX_MESSAGE else error.message[:MAX_MESSAGE] + "…"
    location = dotted(tuple(error.absolute_path))
    return f"{location}: {message}" if location else message


def _patterns(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        if isinstance(schema.get("patternProperties"), dict):
            yield from schema["patternProperties"]
    children = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    for child in children:
        yield from _patterns(child)


def _refers(schema: Any) -> bool:
    """Return whether a schema may apply a part of itself more than once at the same place."""
    return any(_has_keyword(schema, word) for word in _REPEATING)


def _node_count(value: Any) -> int:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_node_count, children))


def _has_keyword(schema: Any, keyword: str) -> bool:
    children = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    return (isinstance(schema, dict) and keyword in schema) or any(_has_keyword(child, keyword) for child in children)


@contextmanager
def _time_limit(seconds: float, sentence: str) -> Iterator[None]:
    """Start the clock that keywords look at."""
    token = _deadline.set((monotonic() + seconds, sentence.format(seconds)))
    try:
        yield
    finally:
        _deadline.reset(token)


def _remaining() -> float:
    deadline, sentence = _deadline.get()
    left = deadline - monotonic()
    if left <= 0:
        raise CheckTimeoutError(sentence)
    return left


def _watched(keyword: Keyword) -> Keyword:
    """The same keyword, looking at the clock first."""

    def watched(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[ValidationError] | None:
        _remaining()
        return keyword(validator, value, instance, schema)

    return watched


def _has(pattern: str, text: str) -> bool:
    return search(pattern, 0, text, _remaining())


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not _has(pattern, instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "object"):
        for pattern, subschema in patterns.items():
            for name, value in instance.items():
                if _has(pattern, name):
                    yield from validator.descend(value, subschema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    others = [name for name in instance if name not in named and not any(_has(pattern, name) for pattern in patterns)]
    if validator.is_type(allowed, "object"):
        for name in others:
            yield from validator.descend(instance[name], allowed, path=name)
    elif not allowed and others:
        yield ValidationError(f"not allowed here: {', '.join(map(repr, others))}")


def _unevaluated_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    if any(len(name) > _NAME_LENGTH for name in instance):
        raise CheckArgumentsError(f"unevaluatedProperties takes names of up to {_NAME_LENGTH:,} characters")
    # What `allowed` itself permits is among the evaluated.
    evaluated = set(find_evaluated_property_keys_by_schema(validator, _WatchedNames(instance), schema))
    if others := [name for name in instance if name not in evaluated]:
        yield ValidationError(f"unevaluated, and not allowed here: {', '.join(map(repr, others))}")


class _WatchedNames(dict[str, Any]):
    """An object that looks at the clock for each name: the library searches names for patterns by itself."""

    def __iter__(self) -> Iterator[str]:
        for name in super().__iter__():
            _remaining()
            yield name


def _unevaluated_items(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "array"):
        evaluated = set(find_evaluated_item_indexes_by_schema(validator, instance, schema))
        if others := [index for index in range(len(instance)) if index not in evaluated]:
            yield ValidationError(f"unevaluated, and not allowed here: items {', '.join(map(str, others))}")


def _unique_items(validator: Any, unique: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if unique and validator.is_type(instance, "array") and len({json_key(item) for item in instance}) < len(instance):
        yield ValidationError("has an item twice")


_OURS: dict[str, Keyword] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "unevaluatedProperties": _unevaluated_properties,
    "unevaluatedItems": _unevaluated_items,
    "uniqueItems": _unique_items,
}
_Validator = extend(
    Draft202012Validator,
    {name: _watched(keyword) for name, keyword in {**Draft202012Validator.VALIDATORS, **_OURS}.items()},
)


def _evolve(validator: Any, **changes: Any) -> Any:
    """Return a validator of the same class.

    The library's own takes another one, without our limits, for a part of a schema that names its dialect.
    """
    return attrs.evolve(validator, **changes)


_Validator.evolve = _evolve
_META_VALIDATOR = _Validator(Draft202012Validator.META_SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER)
