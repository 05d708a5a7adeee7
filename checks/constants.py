"""Names of the check types, for those who like constants better than strings; each equals its string."""

from __future__ import annotations

from enum import StrEnum


class CheckType(StrEnum):
    """The check types that come with fepflow."""

    EXACT_MATCH = "exact_match"
    CONTAINS = "contains"
    REGEX = "regex"
    THRESHOLD = "threshold"
    EQUALS = "equals"
    IS_EMPTY = "is_empty"
    ATTRIBUTE_EXISTS = "attribute_exists"
    SUBSET = "subset"
    SUPERSET = "superset"
    SET_EQUAL = "set_equal"
    DISJOINT = "disjoint"
    JSON_VALID = "json_valid"
    SCHEMA_VALIDATION = "schema_validation"
    TOOL_USAGE = "tool_usage"
    TEXT_MATCH = "text_match"
    CUSTOM_FUNCTION = "custom_function"
    SEMANTIC_SIMILARITY = "semantic_similarity"
    LLM_JUDGE = "llm_judge"
