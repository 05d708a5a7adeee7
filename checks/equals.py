"""The check `equals`: two values of any kind are equal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, StrictBool

from fepflow.checks.base import EXPECTED, OUTPUT, BaseCheck, PathText
from fepflow.checks.explanation import ResolvedArguments, differing, unwanted
from fepflow.json.values import json_equal


class EqualsCheck(BaseCheck):
    """Pass if two values of any kind are equal. Results: `{passed: bool}`.

    Values are compared as JSON: `1` equals `1.0` but not `true`. The order of a list matters, the order of keys
    does not.
    """

    check_type: ClassVar[str] = "equals"

    actual: Any = Field(default=OUTPUT, description="Value to check.")
    expected: Any = Field(default=EXPECTED, description="Value to compare with.")
    negate: StrictBool | PathText = Field(default=False, description="Pass if the values differ.")

    def __call__(self) -> dict[str, Any]:
        """Compare."""
        return {"passed": json_equal(self.actual, self.expected) is not self.negate}

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        return (
            unwanted(resolved["actual"])
            if resolved.get("negate")
            else differing(resolved["actual"], resolved["expected"])
        )
