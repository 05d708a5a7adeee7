"""The check `is_empty`: a value is empty."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Any, ClassVar

from pydantic import Field, StrictBool

from fepflow.checks.base import OUTPUT, BaseCheck, PathText
from fepflow.checks.explanation import ResolvedArguments, shown


class IsEmptyCheck(BaseCheck):
    """Pass if a value is empty. Results: `{passed: bool}`.

    Null, a text of white space, and an object or list without members are empty. Numbers and booleans never are.
    """

    check_type: ClassVar[str] = "is_empty"

    value: Any = Field(default=OUTPUT, description="Value to check.")
    negate: StrictBool | PathText = Field(default=False, description="Pass if the value is not empty.")
    strip_whitespace: StrictBool | PathText = Field(
        default=True, description="Whether a text of only white space is empty."
    )

    def __call__(self) -> dict[str, Any]:
        """Look."""
        value = self.value
        if isinstance(value, str) and self.strip_whitespace:
            value = value.strip()
        is_empty = value is None or (isinstance(value, Sized) and len(value) == 0)
        return {"passed": is_empty is not self.negate}

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        return f"got {shown(resolved['value'])}, wanted {'something' if resolved.get('negate') else 'nothing'}"
