"""The check `schema_validation`: data fits a JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from fepflow.checks.base import OUTPUT, BaseCheck, PathText
from fepflow.checks.core.json_schema import Schema, schema_errors
from fepflow.checks.core.sentences import ResolvedArguments, first_errors
from fepflow.json.values import parse


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
