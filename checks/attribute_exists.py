"""The check `attribute_exists`: a path matches anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, StrictBool, ValidationInfo, WithJsonSchema, field_validator

from fepflow.checks.base import MISSING, PATH_SCHEMA, RESOLVED, BaseCheck, JSONPath, PathText
from fepflow.checks.explanation import MAX_VALUE, ResolvedArguments, shown
from fepflow.text import cut, printable


class AttributeExistsCheck(BaseCheck):
    """Pass if a path matches anything. Results: `{passed: bool}`.

    A null value exists. A path that matches nothing is a fail here, not an error.
    """

    check_type: ClassVar[str] = "attribute_exists"
    check_optional_paths: ClassVar[frozenset[str]] = frozenset({"path"})

    path: Annotated[Any, WithJsonSchema(PATH_SCHEMA)] = Field(description="JSONPath to look up.")
    negate: StrictBool | PathText = Field(default=False, description="Pass if the path matches nothing.")

    @field_validator("path")
    @classmethod
    def _is_path(cls, path: Any, info: ValidationInfo) -> Any:
        if info.context is not RESOLVED and not isinstance(path, JSONPath):
            raise ValueError("must be a JSONPath, a text that starts with $.")
        return path

    def __call__(self) -> dict[str, Any]:
        """Look the path up."""
        return {"passed": (self.path is not MISSING) is not self.negate}

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        path = printable(cut(resolved.path("path") or "the path", MAX_VALUE))
        return f"{path} is there: {shown(resolved['path'])}" if resolved.get("negate") else f"{path} is not there"
