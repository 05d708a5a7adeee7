"""A JSON Schema as strict providers want it, and their responses as the schema itself has them.

Strict providers want objects closed and every member required; one that may be left out is null instead. Models think
before they decide only if the reasons come first. What is asked for is such a schema; answers are validated against the
original one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from fepflow.json.schema_references import referred

_REASONS = re.compile(r"reason|rationale|explanation|analysis|thought|justification|critique", re.IGNORECASE)
_NOT_STRICT = frozenset(
    {"allOf", "not", "if", "then", "else", "patternProperties", "propertyNames", "dependentRequired"}
    | {"dependentSchemas", "prefixItems", "contains", "unevaluatedProperties", "$dynamicRef", "$anchor"}
)
_LEFT_OUT = frozenset({"default", "$schema", "$id", "$comment", "examples", "title", "additionalProperties"})
_MOST_LEVELS = 32
_MOST_STEPS = 10_000
"""Parts of a schema that are looked at: with references they are many more than are written."""


class _NotStrictError(Exception):
    """The schema says something that strict providers do not take."""


def strict(schema: dict[str, Any]) -> dict[str, Any] | None:
    """The schema as strict providers want it; None if it cannot be said so."""
    try:
        return _strict(schema, 0)
    except _NotStrictError:
        return None


def _strict(schema: Any, level: int) -> dict[str, Any]:
    if not isinstance(schema, dict) or level > _MOST_LEVELS or _NOT_STRICT & schema.keys():
        raise _NotStrictError
    result: dict[str, Any] = {}
    for word, value in schema.items():
        if word in _LEFT_OUT:
            continue
        if word in ("$defs", "definitions"):
            result[word] = {name: _strict(item, level + 1) for name, item in value.items()}
        elif word in ("anyOf", "oneOf"):
            result["anyOf"] = [_strict(item, level + 1) for item in value]
        elif word == "items":
            result[word] = _strict(value, level + 1)
        elif word not in ("properties", "required"):
            result[word] = value
    if "properties" in schema or schema.get("type") == "object":
        result |= _closed(schema, level)
    return result


def _closed(schema: dict[str, Any], level: int) -> dict[str, Any]:
    members, required = schema.get("properties"), schema.get("required", [])
    if not members or isinstance(schema.get("additionalProperties"), dict) or not set(required) <= members.keys():
        raise _NotStrictError  # any object at all: strict providers have no word for it
    adapted = {name: _strict(item, level + 1) for name, item in members.items()}
    wanted = {name: item if name in required else _nullable(item) for name, item in adapted.items()}
    names = sorted(wanted, key=lambda name: not _REASONS.search(name))
    return {"properties": {name: wanted[name] for name in names}, "required": names, "additionalProperties": False}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    kind = schema.get("type")
    if isinstance(kind, str) and "enum" not in schema and "const" not in schema:
        return {**schema, "type": kind if kind == "null" else [kind, "null"]}
    if isinstance(kind, list) and "null" in kind:
        return schema
    return {"anyOf": [schema, {"type": "null"}]}


def without_nulls(value: Any, schema: Any) -> Any:
    """A response to the strict schema without the fields that are null because they could not be left out."""
    return _without_nulls(value, schema, schema, 0, iter(range(_MOST_STEPS)))


def _without_nulls(value: Any, schema: Any, root: Any, level: int, steps: Iterator[int]) -> Any:
    if next(steps, None) is None:
        return value
    if isinstance(schema, dict) and str(schema.get("$ref", "")).startswith("#/"):
        schema = referred(root, schema["$ref"])
    if not isinstance(schema, dict) or level > _MOST_LEVELS:
        return value
    for branch in [*schema.get("anyOf", []), *schema.get("oneOf", [])]:
        value = _without_nulls(value, branch, root, level + 1, steps)
    if isinstance(value, list):
        return [_without_nulls(item, schema.get("items"), root, level + 1, steps) for item in value]
    if not isinstance(value, dict):
        return value
    members = schema.get("properties", {})
    cleaned = {
        name: item
        for name, item in value.items()
        if item is not None or name not in members or name in schema.get("required", []) or _takes_null(members[name])
    }
    return {name: _without_nulls(item, members.get(name), root, level + 1, steps) for name, item in cleaned.items()}


def _takes_null(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return True
    branches = [*schema.get("anyOf", []), *schema.get("oneOf", [])]
    if branches:
        return any(_takes_null(branch) for branch in branches)
    if "$ref" in schema or "const" in schema:
        return schema.get("const", 0) is None
    kind = schema.get("type")
    return (None in schema["enum"]) if "enum" in schema else kind is None or kind == "null" or "null" in kind
