"""`schema_validation`: data fits a JSON Schema (2020-12), by the `jsonschema` library. No reference is fetched.

The formats `date`, `date-time`, `email`, `ipv4`, `ipv6` and `uuid` are checked; the standard leaves others to remarks.
The library searches patterns with `re`, which cannot be stopped, so keywords with patterns are our own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache, partial
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import attrs
from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from jsonschema_specifications import REGISTRY
from pydantic import BaseModel, BeforeValidator, Field
from referencing.exceptions import Unresolvable

from fepflow.checks.base import OUTPUT, BaseCheck, PathText
from fepflow.checks.core.patterns import MAX_PATTERN, search
from fepflow.checks.explanation import ResolvedArguments, first_errors
from fepflow.documents.messages import closest
from fepflow.errors import CheckArgumentsError, CheckTimeoutError, dotted
from fepflow.json.values import is_small, parse
from fepflow.time_limit import IN_LOOP, NotInLoopError, within

TIME_LIMIT = 1.0
"""Seconds that one validation may take."""

READ_LIMIT = 10.0
"""Seconds that reading a schema may take: an author's schema may be large."""

MAX_ERRORS = 20
MAX_MESSAGE = 300
KEYWORDS = frozenset(Draft202012Validator.VALIDATORS) | {"then", "else", "minContains", "maxContains"}
"""Words with which a schema restricts values, or that belong to one of them."""

_OTHER_WORDS = frozenset(
    [
        *("$anchor", "$comment", "$dynamicAnchor", "$id", "$schema", "$vocabulary", "contentEncoding"),
        *("contentMediaType", "contentSchema", "default", "deprecated", "description", "discriminator", "example"),
        *("examples", "externalDocs", "id", "nullable", "readOnly", "title", "writeOnly", "xml"),
    ]
)
"""Words that restrict nothing, as they should: of the standard, and of OpenAPI."""

FORMATS = ("date", "date-time", "email", "ipv4", "ipv6", "uuid")

_QUICK_PAIRS, _QUICK_CHARACTERS = 10_000, 4_000
"""Parts of a schema times parts of the data that are validated in milliseconds, and characters of the data."""

_REPEATING = ("$ref", "$dynamicRef", "unevaluatedProperties", "unevaluatedItems", "pattern", "patternProperties")
"""Keywords with which validating may take long however small the data is."""

_MAX_NAME = 1_000
"""Characters of a name that the library itself searches for patterns, for unevaluatedProperties."""


def read_schema(value: Any) -> Any:
    """Return a schema, which may be an object, a JSON text or a pydantic model class, as an object.

    Raises ValueError for an invalid schema.
    """
    if isinstance(value, type) and issubclass(value, BaseModel):
        value = value.model_json_schema()
    if isinstance(value, str):
        try:
            value = parse(value)
        except ValueError as error:
            raise ValueError(f"must be a JSON Schema: this text is not valid JSON: {error}") from None
    if isinstance(value, dict):
        _compiled(value)
    return value


def misspelt_keywords(schema: Any) -> Iterator[tuple[str, str]]:
    """Yield the unknown words in a schema and its parts that are like a keyword, each with the keyword."""
    for name, value in schema.items() if isinstance(schema, dict) else ():
        parts: Iterable[Any] = ()
        if name in ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"):
            parts = value.values() if isinstance(value, dict) else ()
        elif name in KEYWORDS:
            is_data = name in ("const", "enum", "required", "dependentRequired")
            parts = () if is_data else value if isinstance(value, list) else (value,)
        elif name not in _OTHER_WORDS and (meant := closest(name, sorted(KEYWORDS))):
            yield name, meant
        for part in parts:
            yield from misspelt_keywords(part)


if TYPE_CHECKING:
    Schema = Mapping[str, Any] | str | type[BaseModel]
else:
    Schema = Annotated[dict[str, Any], BeforeValidator(read_schema, json_schema_input_type=dict[str, Any] | str)]
"""Type of a field whose value `read_schema` reads; the field holds the object."""


def _is_quick(schema: dict[str, Any], data: Any) -> bool:
    """Return whether applying the schema to this data is bound to take milliseconds.

    Without references each part of a schema meets each part of the data once at most.
    """
    text = json.dumps(schema, default=repr)
    if any(f'"{keyword}"' in text for keyword in _REPEATING):
        return False
    nodes = _QUICK_PAIRS // (1 + text.count(":") + text.count(","))
    values = sum(map(data.count, ",[{")) if isinstance(data, str) else 0  # of JSON text
    return values <= nodes and is_small(data, nodes, _QUICK_CHARACTERS)


def schema_errors(schema: dict[str, Any], data: Any) -> list[str]:
    """Return the first 20 errors of the data by the schema, `place: message` each; they may quote the data.

    Raises CheckArgumentsError for a schema that cannot be followed, and CheckTimeoutError after a second (in the event
    loop NotInLoopError at once, if it may take long).
    """
    quick = _is_quick(schema, data)
    if not quick and IN_LOOP.get():
        raise NotInLoopError
    work = partial(_first_errors, _compiled(schema), data, MAX_ERRORS)
    try:
        return work() if quick else within(TIME_LIMIT, work)
    except TimeoutError:
        raise CheckTimeoutError(f"the schema took longer than {TIME_LIMIT:g} s on this data") from None
    except Unresolvable as error:
        raise CheckArgumentsError(f"the schema refers to {error.ref}, which is not in it (none is fetched)") from None
    except RecursionError:
        raise CheckArgumentsError("the schema refers to itself without end, or the data nests too deep") from None


def _first_errors(validator: Any, data: Any, most: int) -> list[str]:
    return [_sentence(error) for error in islice(validator.iter_errors(data), most)]


def _sentence(error: ValidationError) -> str:
    message = error.message if len(error.message) <= MAX_MESSAGE else error.message[:MAX_MESSAGE] + "…"
    location = dotted(tuple(error.absolute_path))
    return f"{location}: {message}" if location else message


def _compiled(schema: dict[str, Any]) -> Any:
    return _compiled_text(json.dumps(schema, default=repr))


@lru_cache(maxsize=256)
def _compiled_text(text: str) -> Any:
    schema = json.loads(text)
    patterns = list(_patterns(schema))
    if any(len(pattern) > MAX_PATTERN for pattern in patterns):
        raise ValueError(f"must be a JSON Schema with patterns of up to {MAX_PATTERN:,} characters")
    # Beside that keyword the library itself searches names, by `re`.
    if '"unevaluatedProperties"' in text and not all(map(_is_simple, _patterns(schema, of_names=True))):
        raise ValueError("must be a JSON Schema with simple patterns, beside unevaluatedProperties")
    # As the library's `check_schema`, which takes 50 s for a schema of 1 MB.
    try:
        errors = within(READ_LIMIT, partial(_first_errors, _META_VALIDATOR, schema, 1))
    except TimeoutError:
        raise CheckTimeoutError(f"the schema took longer than {READ_LIMIT:g} s to be read") from None
    except RecursionError:
        raise ValueError("must be a JSON Schema: it nests too deep") from None
    if errors:
        raise ValueError(f"must be a JSON Schema: {errors[0]}")
    return _Validator(schema, registry=REGISTRY, format_checker=FormatChecker(FORMATS))


def _patterns(schema: Any, *, of_names: bool = False) -> Iterator[str]:
    """Yield the patterns of a schema, or only the patterns for names of members."""
    if isinstance(schema, dict):
        if isinstance(schema.get("pattern"), str) and not of_names:
            yield schema["pattern"]
        if isinstance(schema.get("patternProperties"), dict):
            yield from schema["patternProperties"]
    children = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    for child in children:
        yield from _patterns(child, of_names=of_names)


def _is_simple(pattern: str) -> bool:
    """Return whether `re` searches a name of _MAX_NAME characters in milliseconds: only one part is repeated."""
    return sum(map(pattern.count, "*+{")) <= 1 and ")*" not in pattern and ")+" not in pattern and ")?" not in pattern


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
    if validator.is_type(instance, "object") and any(len(name) > _MAX_NAME for name in instance):
        raise CheckArgumentsError(f"unevaluatedProperties takes names of up to {_MAX_NAME:,} characters")
    yield from Draft202012Validator.VALIDATORS["unevaluatedProperties"](validator, allowed, instance, schema) or ()


def _multiple_of(validator: Any, factor: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Compare as both are written. The library divides floats, for which 19.99 is no multiple of 0.01."""
    if not validator.is_type(instance, "number"):
        return
    try:
        is_multiple = _exact(instance) % _exact(factor) == 0
    except ValueError:  # infinity and NaN
        is_multiple = False
    if not is_multiple:
        yield ValidationError(f"{instance!r} is not a multiple of {factor!r}")


def _exact(number: float) -> Fraction:
    """Return a number as it is written: 0.1 is a tenth. Raises ValueError for infinity and NaN.

    The digits of an int may be too many for decimals.
    """
    return Fraction(number if isinstance(number, int) else repr(float(number)))


def _has(pattern: str, text: str) -> bool:
    return search(pattern, 0, text)


_Validator: Any = extend(
    Draft202012Validator,
    {
        "multipleOf": _multiple_of,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "unevaluatedProperties": _unevaluated_properties,
    },
)
# The library's own takes another class, without our keywords, for a part of a schema that names its dialect.
_Validator.evolve = lambda self, **changes: attrs.evolve(self, **changes)
_META_VALIDATOR = _Validator(Draft202012Validator.META_SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER)


class SchemaValidationCheck(BaseCheck):
    """Pass if data fits a JSON Schema (2020-12). Results: `{passed: bool, validation_errors: list}`.

    A text is read as JSON first, and fails if it is not JSON. The schema is an object, a JSON text or, from code, a
    pydantic model class, whose JSON Schema is used. References are followed only inside the schema. The formats
    `date`, `date-time`, `email`, `ipv4`, `ipv6` and `uuid` are checked. The results list the first 20 errors, each
    as `place: message`.
    """

    check_type: ClassVar[str] = "schema_validation"

    json_schema: Schema | PathText = Field(alias="schema", description="JSON Schema, as an object or as JSON text.")
    data: Any = Field(default=OUTPUT, description="Value to validate; a text is read as JSON.")

    def __call__(self) -> dict[str, Any]:
        """Validate."""
        return validated(self.json_schema, self.data)  # type: ignore[arg-type]  # resolved: no path is left

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        return first_errors(results["validation_errors"], resolved["data"])


def validated(schema: dict[str, Any], data: Any) -> dict[str, Any]:
    """Return the results of validating `data`, or the JSON that it is the text of."""
    if isinstance(data, BaseModel):
        data = data.model_dump(mode="json")
    if isinstance(data, str):
        try:
            data = parse(data)
        except ValueError as error:
            return {"passed": False, "validation_errors": [f"is not valid JSON: {error}"]}
    errors = schema_errors(schema, data)
    return {"passed": not errors, "validation_errors": errors}
