"""`set_equal`: two collections have the same items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from fepflow.checks.base import EXPECTED, OUTPUT
from fepflow.checks.explanation import ResolvedArguments, shown, subject, unwanted
from fepflow.checks.subset import Items, MembershipCheck


class SetEqualCheck(MembershipCheck):
    """Pass if two collections are equal as sets. Results: `{passed: bool, missing: list, unexpected: list}`.

    Each must have all items of the other one.
    """

    check_type: ClassVar[str] = "set_equal"

    actual: Items = Field(default=OUTPUT, description="Collection to check.")
    expected: Items = Field(default=EXPECTED, description="Required items; no others are allowed.")

    def __call__(self) -> dict[str, Any]:
        """Compare."""
        _, missing = self._split(self.expected, self.actual)
        _, unexpected = self._split(self.actual, self.expected)
        passed = self._verdict(not missing and not unexpected)
        return {"passed": passed, "missing": missing, "unexpected": unexpected}

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        if resolved.get("negate"):
            return unwanted(resolved["actual"])
        parts = [f"{subject(results[name])} {name}" for name in ("missing", "unexpected") if results[name]]
        return f"{'; '.join(parts)}; got {shown(resolved['actual'])}"
