"""`subset`: a collection has all required items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from fepflow.checks.base import EXPECTED, OUTPUT
from fepflow.checks.core.sentences import ResolvedArguments, listed, shown, subject
from fepflow.checks.core.set_checks import Items, MembershipCheck


class SubsetCheck(MembershipCheck):
    """Pass if a collection has all required items. Results: `{passed: bool, missing: list, found: list}`.

    The collection may have other items as well.
    """

    check_type: ClassVar[str] = "subset"

    collection: Items = Field(default=OUTPUT, description="Collection to check.")
    required: Items = Field(default=EXPECTED, description="Required items.")

    def __call__(self) -> dict[str, Any]:
        """Compare."""
        present, missing = self._split(self.required, self.collection)
        return {"passed": self._verdict(not missing), "missing": missing, "found": present}

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        if resolved.get("negate"):
            return f"all of {listed(results['found'])} are in: {shown(resolved['collection'])}"
        return f"{subject(results['missing'])} missing from: {shown(resolved['collection'])}"
