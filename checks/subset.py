"""`subset`: a collection has all required items; and the base of all checks that compare collections as sets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, StrictBool

from fepflow.checks.base import EXPECTED, OUTPUT, BaseCheck, JSONPath, PathText
from fepflow.checks.explanation import ResolvedArguments, listed, shown, subject
from fepflow.json.values import json_key


def _as_list(value: Any) -> Any:
    # A set from code gets an order that is the same in every process.
    return sorted(value, key=repr) if isinstance(value, set | frozenset) else value


if TYPE_CHECKING:
    Items = Collection[Any] | JSONPath  # of which a text is one, that of a path
else:
    Items = Annotated[list[Any] | JSONPath, BeforeValidator(_as_list, json_schema_input_type=list[Any] | JSONPath)]


class MembershipCheck(BaseCheck):
    """Base of the checks that compare collections as sets.

    Elements are equal as JSON values are: `1` is not `true`. `case_sensitive` is about elements that are texts.
    """

    case_sensitive: StrictBool | PathText = Field(default=True, description="Whether case matters in texts.")
    negate: StrictBool | PathText = Field(default=False, description="Pass if the check would fail.")

    def _split(self, items: Any, others: Any) -> tuple[list[Any], list[Any]]:
        """Return the distinct elements of `items` that are among `others`, and the remaining ones, in their order."""
        fold = not self.case_sensitive
        present = {json_key(other, fold_case=fold) for other in others}
        different = {json_key(item, fold_case=fold): item for item in reversed(items)}
        present_items = [item for key, item in different.items() if key in present]
        missing = [item for key, item in different.items() if key not in present]
        return present_items[::-1], missing[::-1]

    def _verdict(self, holds: bool) -> bool:
        return holds is not self.negate


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
