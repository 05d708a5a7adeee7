"""The check `exact_match`: two values are equal (FEP 2.3.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, StrictBool

from fepflow.checks.base import EXPECTED, OUTPUT, BaseCheck, PathText
from fepflow.checks.explanation import ResolvedArguments, differing, unwanted
from fepflow.json.values import json_equal


class ExactMatchCheck(BaseCheck):
    """Pass if the value equals the expected one. Results: `{passed: bool}`.

    Values other than texts are compared as JSON: `1` is not `true`, and the order of keys does not matter.
    """

    check_type: ClassVar[str] = "exact_match"

    actual: Any = Field(default=OUTPUT, description="Value to check.")
    expected: Any = Field(default=EXPECTED, description="Value to compare with.")
    negate: StrictBool | PathText = Field(default=False, description="Pass if the values differ.")
    case_sensitive: StrictBool | PathText = Field(default=True, description="Whether case matters in texts.")

    def __call__(self) -> dict[str, Any]:
        """Compare."""
        actual, expected = self.actual, self.expected
        if not self.case_sensitive and isinstance(actual, str) and isinstance(expected, str):
            actual, expected = actual.casefold(), expected.casefold()
        return {"passed": json_equal(actual, expected) is not self.negate}

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        if resolved.get("negate"):
            return unwanted(resolved["actual"])
        return differing(resolved["actual"], resolved["expected"], fold_case=resolved.get("case_sensitive") is False)
