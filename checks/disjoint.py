"""`disjoint`: a collection has no forbidden item."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from checks.core.set_checks import Items, MembershipCheck


class DisjointCheck(MembershipCheck):
    """Look for forbidden items in a collection. Results: `{passed: bool, overlapping: list}`.

    Passes when none of them is there.
    """

    check_type: ClassVar[str] = "disjoint"

    collection: Items = Field(description="Collection to check.")
    forbidden: Items = Field(description="Items that it must not have.")

    def __call__(self) -> dict[str, Any]:
        """Compare."""
        overlapping, _ = self._split(self.forbidden, self.collection)
        return {"passed": self._verdict(not overlapping), "overlapping": overlapping}
