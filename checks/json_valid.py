"""`json_valid`: a text is JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from fepflow.checks.base import OUTPUT, BaseCheck, JSONPath, PathText
from fepflow.checks.explanation import ResolvedArguments, first_errors
from fepflow.checks.schema_validation import Schema, validated


class JSONValidCheck(BaseCheck):
    """Pass if a text is valid JSON by the standard. Results: `{passed: bool, validation_errors: list}`.

    NaN, duplicate keys, numbers too large for a float and more than 100 levels are not valid. JSON with words or a
    code fence around it is not valid either. With a schema, the value must also fit the schema.
    """

    check_type: ClassVar[str] = "json_valid"

    text: str | JSONPath = Field(default=OUTPUT, description="Text to read.")
    json_schema: Schema | PathText | None = Field(
        default=None, alias="schema", description="JSON Schema of the value, as an object or as JSON text."
    )

    def __call__(self) -> dict[str, Any]:
        """Read, and validate."""
        return validated(self.json_schema or {}, self.text)  # type: ignore[arg-type]  # resolved: no path is left

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        return first_errors(results["validation_errors"], resolved["text"])
