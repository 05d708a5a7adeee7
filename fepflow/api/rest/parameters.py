"""Parameters of requests, held against the schema that the document of the API has of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from fepflow.documents.did_you_mean import did_you_mean
from fepflow.errors import UserError
from fepflow.json.values import loads
from fepflow.text import brief, is_unicode, printable

_MAX_PARAMETERS = 20
_MANY_DIGITS = 15
_TYPES = {"integer": "a whole number", "string": "a text", "object": "an object"}


def query_schema(operation: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of an operation's query, as the schema of an object."""
    parameters = [each for each in operation.get("parameters", ()) if each["in"] == "query"]
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [each["name"] for each in parameters if each.get("required")],
        "properties": {each["name"]: each["schema"] for each in parameters},
    }


def parse_query(raw: bytes, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a query, with defaults. Raises UserError for what the schema does not allow."""
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_PARAMETERS)
    except ValueError:
        raise UserError(
            f"The query cannot be read: at most {_MAX_PARAMETERS} parameters, in UTF-8 and percent-encoded."
        ) from None
    values: dict[str, Any] = {}
    for name, text in pairs:
        if name in values:
            raise UserError(f"The parameter {_quoted(name)} stands twice: give it once.")
        is_number = schema["properties"].get(name, {}).get("type") == "integer"
        values[name] = _number(text) if is_number else text
    return _valid(values, schema, "parameter")


def _number(text: str) -> int | str:
    """A text of ASCII digits as a number; one of very many digits as one that no bounds have."""
    if not re.fullmatch(r"-?[0-9]+", text):
        return text
    return int(text) if len(text) <= _MANY_DIGITS else 10**_MANY_DIGITS * (-1 if text[0] == "-" else 1)


def parse_body(raw: bytes, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a JSON object, with defaults. Raises UserError for what the schema does not allow."""
    try:
        fields = loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        reason = "it nests too deep" if isinstance(error, RecursionError) else brief(str(error))
        raise UserError(f"The body is not valid JSON in UTF-8: {printable(reason)}.") from None
    return _valid(fields, schema, "field")


def _valid(values: Any, schema: Mapping[str, Any], kind: str) -> dict[str, Any]:
    for error in _Validator(schema).iter_errors(values):
        raise UserError(_sentence(error, schema, kind))
    for name, value in values.items():
        if isinstance(value, str) and not is_unicode(value):
            raise UserError(f"The {kind} {name} holds half of a surrogate pair, which is no character.")
        if isinstance(value, float):  # 20.0 is an integer to JSON Schema
            values[name] = int(value)
    defaults = {name: each["default"] for name, each in schema["properties"].items() if "default" in each}
    return {**defaults, **values}


def _sentence(error: ValidationError, schema: Mapping[str, Any], kind: str) -> str:
    known = list(schema["properties"])
    rule, limit = error.validator, error.validator_value
    if rule == "additionalProperties":
        name = next(name for name in error.instance if name not in known)
        advice = did_you_mean(name[:100], known) if known else "there are none here"
        return f"There is no {kind} {_quoted(name)} ({printable(advice)})."
    if rule == "required":
        missing = next(name for name in schema["required"] if name not in error.instance)
        return f"The {kind} {missing} is missing."
    if not error.path:
        return "The body must be a JSON object."
    rules = {
        "type": f"must be {_TYPES.get(str(limit), limit)}",
        "enum": f"must be one of {', '.join(map(str, limit))}" if rule == "enum" else "",
        "minimum": f"must be at least {limit}",
        "maximum": f"must be at most {limit}",
        "maxLength": f"must have at most {limit:,} characters" if rule == "maxLength" else "",
        "pattern": "must be ids of letters, digits, _ and -, separated by commas"
        if "," in str(limit)
        else "must not hold control characters",
    }
    return f"The {kind} {error.path[0]} {rules.get(str(rule), 'is not valid')}."


def _quoted(name: str) -> str:
    return printable(brief(repr(name), 60))


def _whole(validator: Any, pattern: str, text: Any, schema: Any) -> Iterator[ValidationError]:
    # Python's `$` matches before a last line feed, too.
    if isinstance(text, str) and not re.fullmatch(pattern, text):
        yield ValidationError("does not match")


_Validator = extend(Draft202012Validator, {"pattern": _whole})
