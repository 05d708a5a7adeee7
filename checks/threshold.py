"""`threshold`: a number lies within bounds (FEP 2.3.5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, ConfigDict, Field, StrictBool, model_validator

from fepflow.checks.base import OUTPUT, BaseCheck, JSONPath, PathText, finite_number
from fepflow.checks.explanation import ResolvedArguments, out_of_bounds


def _number(value: Any) -> Any:
    return value if isinstance(value, JSONPath) else finite_number(value)


Number = Annotated[int | float | PathText, BeforeValidator(_number)]


class ThresholdCheck(BaseCheck):
    """Pass if a number is within a minimum, a maximum, or both. Results: `{passed: bool}`.

    With `negate`, the check passes if at least one limit is violated.
    """

    model_config = ConfigDict(extra="forbid")

    check_type: ClassVar[str] = "threshold"

    value: Number = Field(default=OUTPUT, description="Number to check.")
    min_value: Number | None = Field(default=None, description="Smallest acceptable value.")
    max_value: Number | None = Field(default=None, description="Largest acceptable value.")
    min_inclusive: StrictBool | PathText = Field(default=True, description="Whether min_value itself is acceptable.")
    max_inclusive: StrictBool | PathText = Field(default=True, description="Whether max_value itself is acceptable.")
    negate: StrictBool | PathText = Field(default=False, description="Pass if the value is out of bounds.")

    @model_validator(mode="after")
    def _has_a_bound(self) -> ThresholdCheck:
        if self.min_value is None and self.max_value is None:
            raise ValueError("give min_value, max_value, or both")
        return self

    def __call__(self) -> dict[str, Any]:
        """Compare."""
        bounds = (self.min_value, self.max_value, self.min_inclusive, self.max_inclusive)
        return {"passed": is_within(self.value, *bounds) is not self.negate}

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        return out_of_bounds(resolved["value"], resolved, resolved.label("value"))


def is_within(value: Any, low: Any, high: Any, low_inclusive: Any, high_inclusive: Any) -> bool:
    """Return whether a number lies within bounds, of which either may be None."""
    high_enough = low is None or value > low or (bool(low_inclusive) and value == low)
    low_enough = high is None or value < high or (bool(high_inclusive) and value == high)
    return high_enough and low_enough
