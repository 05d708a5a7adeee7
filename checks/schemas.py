"""The shape of each check type: the JSON Schema of its arguments, and the fields of its results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from fepflow.checks.base import MODIFIERS, modifier_names
from fepflow.checks.core.modifiers import Extract
from fepflow.checks.models.voting import resolved_schema
from fepflow.checks.registry import SCORED_JUDGES, CheckType, find_check, is_ours, list_checks, list_versions
from fepflow.errors import CheckArgumentsError
from fepflow.protocol.check import CHECK_KEYS, SEMVER, Check
from fepflow.suite.models import suite_schema

MODIFIER_SCHEMAS: Mapping[str, Any] = {
    "extract": {**Extract.model_json_schema(by_alias=True), "description": "Part of the text that is checked."},
    "pass_at": {"type": "number", "description": "Least score that passes."},
    "any": {"type": "boolean", "description": "Whether a list of expected values holds alternatives."},
}
"""JSON Schemas of the arguments that every check type takes."""


class _Generator(GenerateJsonSchema):
    """A generator that leaves out functions, which have no JSON form."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  # as pydantic declares it

    def handle_invalid_for_json_schema(self, schema: core_schema.CoreSchema, error_info: str) -> JsonSchemaValue:
        """Take anything, as a user's own check may."""
        return {}


def check_schema(check_type: str, version: str | None = None, *, root: str = "#") -> dict[str, Any]:
    """Return the JSON Schema of checks of this type in a suite. Any argument may also be a path.

    `root` is the place of the schema in a document. Raises CheckArgumentsError for an unknown type or version.
    """
    check_class = find_check(check_type, version)
    template = f"{root}/$defs/{{model}}"
    arguments = check_class.model_json_schema(by_alias=True, ref_template=template, schema_generator=_Generator)
    definitions = arguments.pop("$defs", None)
    properties = {
        "type": {"const": check_type},
        "arguments": arguments,
        "version": {"type": "string", "pattern": SEMVER},
        "id": {"type": "string", "pattern": "^[A-Za-z0-9_-]+$", "maxLength": 100},
    }
    required = ["type", "arguments"] if arguments.get("required") else ["type"]
    schema = {"type": "object", "properties": properties, "required": required}
    return {**schema, "$defs": definitions} if definitions else schema


def _suite_check_schema(check_type: str, version: str, root: str) -> dict[str, Any]:
    """Return the JSON Schema of checks of this type in a suite, with arguments in `arguments` or beside `type`."""
    schema = check_schema(check_type, version, root=root)
    properties = schema["properties"]
    arguments = dict(properties["arguments"])
    required = arguments.pop("required", [])
    takes_any = arguments.get("additionalProperties") is True
    names = modifier_names(find_check(check_type, version))
    modifiers = {name: MODIFIER_SCHEMAS[name] for name in MODIFIERS if name in names}
    arguments["properties"] = {**arguments.get("properties", {}), **modifiers}
    arguments["additionalProperties"] = takes_any
    either = [
        {
            "anyOf": [
                {"required": [name]},
                {"properties": {"arguments": {"required": [name]}}, "required": ["arguments"]},
            ]
        }
        for name in required
        if name not in CHECK_KEYS
    ]
    beside = {name: item for name, item in arguments["properties"].items() if name not in CHECK_KEYS}
    schema |= {
        "properties": {**beside, **properties, "arguments": arguments, "turn": {"type": "integer", "minimum": 1}},
        "required": ["type"],
        "additionalProperties": takes_any,
    }
    return {**schema, "allOf": either} if either else schema


def complete_suite_schema() -> dict[str, Any]:
    """Return the JSON Schema of suite files, with the arguments of each known check type.

    A check of another type, such as one of the suite's plugins, may have any arguments.
    """
    schema = suite_schema()
    definitions = schema["$defs"]
    check = definitions["Check"]
    check["properties"]["type"] = {"anyOf": [{"enum": list_checks()}, {"type": "string", "minLength": 1}]}
    check["additionalProperties"] = True
    check["allOf"] = []
    for check_type in list_checks():
        latest = list_versions(check_type)[-1]
        for version in list_versions(check_type):
            name = f"{check_type}-{version}"
            definitions[name] = _suite_check_schema(check_type, version, f"#/$defs/{name}")
            asked = {"type": {"const": check_type}, "version": {"const": version}}
            required = ["type"] if version == latest else ["type", "version"]
            branch = {"if": {"properties": asked, "required": required}, "then": {"$ref": f"#/$defs/{name}"}}
            check["allOf"].append(branch)
    return schema


NUMBER, OTHER, ANY = "number", "other", "any"
"""JSON Schemas of numbers and booleans, of everything else, and of all values."""

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
    "declared": {**_PASSED, "validation_errors": OTHER},
    "tool_usage": {**_PASSED, "count": NUMBER, "missing": OTHER},
    "number": {**_PASSED, "found": OTHER},
    "text_distance": {**_PASSED, "score": NUMBER},
    "json_diff": {**_PASSED, "score": NUMBER, "fields": NUMBER, "differing": OTHER},
    "classification": {**_PASSED, "predicted": OTHER, "label": OTHER},
}
"""The fields of the results, by check type."""


def score_path(check: Check) -> str | None:
    """Return the path to the score of a check without pass or fail; None for other and unknown checks."""
    shape = result_shape(check)
    if shape is None or "passed" in shape:
        return None
    response = shape.get("response")
    if "score" in shape:
        return "$.score"
    has_score = isinstance(response, Mapping) and "score" in response and "passed" not in response
    return "$.response.score" if has_score else None


def result_shape(check: Check) -> Mapping[str, Any] | None:
    """Return the fields of a check's results, by name, each a kind or fields again; None if they are not known."""
    shape = _own_shape(check)
    if shape is None or check.arguments.get("pass_at") is None:
        return shape
    response = shape.get("response")
    if "score" not in shape and isinstance(response, Mapping):
        return {**shape, "response": {**response, **_PASSED}}
    return {**shape, **_PASSED}


def _own_shape(check: Check) -> Mapping[str, Any] | None:
    try:
        if not is_ours(find_check(check.type, check.version)):
            return None
    except CheckArgumentsError:
        return None
    if check.type == "semantic_similarity":
        response = {"score": NUMBER, **(_PASSED if check.arguments.get("threshold") is not None else {})}
        return {"response": response, "metadata": ANY}
    if check.type == "tool_usage" and check.arguments.get("expected") is not None:
        return {**_SHAPES[check.type], "unexpected": OTHER, "score": NUMBER}
    if check.type in SCORED_JUDGES:
        details = "contexts" if check.type == CheckType.CONTEXT_PRECISION else "claims"
        response = {**_PASSED, "score": NUMBER, "reason": OTHER}
        return {
            "response": response if check.type == CheckType.RUBRIC else {**response, details: OTHER},
            "metadata": ANY,
        }
    if check.type == CheckType.LLM_JUDGE:
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
