"""The check `declared`: the result of an MCP tool fits the tool's outputSchema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from fepflow.checks.base import MISSING, BaseCheck, JSONPath
from fepflow.checks.explanation import ResolvedArguments, first_errors
from fepflow.checks.schema_validation import schema_errors
from fepflow.errors import CheckArgumentsError

_REFUSAL, _ERROR = "refusal", "error"


class DeclaredCheck(BaseCheck):
    """Pass if an MCP tool's result fits the tool's own `outputSchema`. Results:
    `{passed: bool, validation_errors: list}`.

    It needs no arguments: `{type: declared}` reads what a target with `mcp` reports about each call. A result without
    `structuredContent` fails, and so does an error of the tool, unless the test case expects one (`is_error: true` in
    its input). If the tool has no `outputSchema`, the check ends in an error. References are followed only inside the
    schema.
    """

    check_type: ClassVar[str] = "declared"
    check_optional_paths: ClassVar[frozenset[str]] = frozenset({"schema", "data", "outcome"})

    json_schema: Any = Field(
        alias="schema", default=JSONPath("$.output.metadata.outputSchema"), description="Path of the schema."
    )
    data: Any = Field(
        default=JSONPath("$.output.metadata.structuredContent"), description="Path of the structured result."
    )
    outcome: Any = Field(
        default=JSONPath("$.output.metadata.outcome"), description="Path of `answer`, `error` or `refusal`."
    )

    def __call__(self) -> dict[str, Any]:
        """Validate."""
        if not isinstance(self.json_schema, dict):
            advice = "use this check where the tool declares one, else equals, contains or schema_validation"
            raise CheckArgumentsError(f"the tool declares no outputSchema, or one of more than 100 kB ({advice})")
        if self.outcome == _REFUSAL:
            return {"passed": True, "validation_errors": []}
        if self.outcome == _ERROR:
            return _failed("the tool answered with an error")
        if self.data is MISSING:
            return _failed("the result has no structuredContent, which a tool with an outputSchema must give")
        try:
            errors = schema_errors(self.json_schema, self.data)
        except ValueError as error:
            raise CheckArgumentsError(f"the tool's outputSchema {error}") from None
        return {"passed": not errors, "validation_errors": errors}

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        return first_errors(results["validation_errors"], resolved["data"])


def _failed(why: str) -> dict[str, Any]:
    return {"passed": False, "validation_errors": [why]}
