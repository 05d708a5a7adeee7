"""What the results of a check have, as far as its type says it: which paths a metric can take numbers from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fepflow.checks.models.voting import resolved_schema
from fepflow.checks.registry import find_check, is_ours
from fepflow.errors import CheckArgumentsError
from fepflow.protocol.check import Check

NUMBER, OTHER, ANY = "number", "other", "any"
"""What is a number or a boolean, what is neither, and what may be either."""

_PASSED = {"passed": NUMBER}
_SHAPES: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(("exact_match", "contains", "regex", "text_match", "threshold"), _PASSED),
    **dict.fromkeys(("equals", "is_empty", "attribute_exists"), _PASSED),
    "subset": {**_PASSED, "missing": OTHER, "found": OTHER},
    "superset": {**_PASSED, "unexpected": OTHER, "found": OTHER},
    "set_equal": {**_PASSED, "missing": OTHER, "unexpected": OTHER},
    "disjoint": {**_PASSED, "overlapping": OTHER},
    "json_valid": {**_PASSED, "validation_errors": OTHER},
    "schema_validation": {**_PASSED, "validation_errors": OTHER},
    "tool_usage": {**_PASSED, "count": NUMBER, "missing": OTHER},
}
"""The fields of the results, by check type."""


def result_shape(check: Check) -> Mapping[str, Any] | None:
    """The fields of a check's results, by name, each a kind or fields again; None if they are not known."""
    try:
        if not is_ours(find_check(check.type, check.version)):
            return None
    except CheckArgumentsError:
        return None
    if check.type == "semantic_similarity":
        response = {"score": NUMBER, **(_PASSED if check.arguments.get("threshold") is not None else {})}
        return {"response": response, "metadata": ANY}
    if check.type == "llm_judge":
        schema = check.arguments.get("response_format")
        return {"response": _of_schema(schema, schema), "metadata": ANY}
    return _SHAPES.get(check.type)


def _of_schema(member: Any, schema: Any) -> Mapping[str, Any] | str:
    if not isinstance(member, dict) or not isinstance(schema, dict) or any(word in member for word in _BRANCHES):
        return ANY
    member = resolved_schema(member, schema)
    kind, properties = member.get("type"), member.get("properties")
    if kind in ("number", "integer", "boolean"):
        return NUMBER
    if kind in ("string", "array"):
        return OTHER
    is_open = bool(member.get("additionalProperties")) or "patternProperties" in member
    if kind not in ("object", None) or not isinstance(properties, dict) or not properties or is_open:
        return ANY
    return {name: _of_schema(part, schema) for name, part in properties.items()}


_BRANCHES = ("anyOf", "oneOf", "allOf", "if")
