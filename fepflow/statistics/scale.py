"""The range that a metric's values can lie in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """The range that a metric's values lie in, both ends included; `binary` if they are 0 and 1 and nothing between."""

    low: float
    high: float
    binary: bool = False

    def holds(self, value: float) -> bool:
        """Whether a value can be one of this metric."""
        return value in (self.low, self.high) if self.binary else self.low <= value <= self.high

    def share(self, value: float) -> float:
        """Where a value lies, from 0 at the low end to 1 at the high one; halved first, as a range may be huge."""
        return (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)

    def value(self, share: float) -> float:
        """The value at a `share` of the range."""
        return self.low * (1 - share) + self.high * share


PROPORTION = Scale(0.0, 1.0, binary=True)
"""Passed or not."""
