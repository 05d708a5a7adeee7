"""The check `disjoint`: a collection has no forbidden item."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from fepflow.checks.base import OUTPUT
from fepflow.checks.explanation import ResolvedArguments, listed, shown, subject
from fepflow.checks.subset import Items, MembershipCheck


class DisjointCheck(MembershipCheck):
    """Pass if a collection has no forbidden item. Results: `{passed: bool, overlapping: list}`.

    `overlapping` lists the forbidden items in the collection.
    """

    check_type: ClassVar[str] = "disjoint"

    collection: Items = Field(default=OUTPUT, description="Collection to check.")
    forbidden: Items = Field(description="Forbidden items.")

    def __call__(self) -> dict[str, Any]:
        """Compare."""
        overlapping, _ = self._split(self.forbidden, self.collection)
        return {"passed": self._verdict(not overlapping), "overlapping": overlapping}

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        if resolved.get("negate"):
            return f"none of {listed(resolved['forbidden'])} is in: {shown(resolved['collection'])}"
        return f"{subject(results['overlapping'])} forbidden, and in: {shown(resolved['collection'])}"
