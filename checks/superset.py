"""`superset`: a collection has allowed items only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from fepflow.checks.base import EXPECTED, OUTPUT
from fepflow.checks.explanation import ResolvedArguments, listed, shown, subject
from fepflow.checks.subset import Items, MembershipCheck


class SupersetCheck(MembershipCheck):
    """Pass if a collection has only allowed items. Results: `{passed: bool, unexpected: list, found: list}`.

    An empty collection passes.
    """

    check_type: ClassVar[str] = "superset"

    collection: Items = Field(default=OUTPUT, description="Collection to check.")
    allowed: Items = Field(default=EXPECTED, description="Allowed items.")

    def __call__(self) -> dict[str, Any]:
        """Compare."""
        present, unexpected = self._split(self.collection, self.allowed)
        return {"passed": self._verdict(not unexpected), "unexpected": unexpected, "found": present}

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        if resolved.get("negate"):
            return f"all of {shown(resolved['collection'])} are allowed, which is not wanted"
        return f"{subject(results['unexpected'])} not among what is allowed: {listed(resolved['allowed'])}"
