"""The requirements that a gate can have for one metric, and the judgement of an interval by them.

Each requirement judges all values from `low` to `high` at once: *pass* if every one of them meets it, *fail* if none
does, *inconclusive* where that depends on which one is the true one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from fepflow.evalguard.impact import assess, impact_range, severity, worst
from fepflow.evalguard.models import Range
from fepflow.statistics.estimate import Scale
from fepflow.statistics.proportions import IntervalKind, kind_for
from fepflow.suite.models import Gate, Impact
from fepflow.text import listed, number
from fepflow.verdict.verdict import Outcome


class Requirement(Protocol):
    """A condition on a metric's true value."""

    @property
    def rule(self) -> str:
        """The requirement in a few words, the same in every run."""

    @property
    def limit(self) -> float | None:
        """The number that values are compared with, if it has one."""

    def judge(self, low: float, high: float) -> Outcome:
        """Judge all values from `low` to `high`, both included."""

    def standing(self, value: float | None) -> str:
        """Return how one value compares with the requirement, in words; also for no value (None)."""

    def crossing(self, value: float, low: float, high: float) -> str:
        """Return which part of the interval around `value` is judged differently, in words."""


@dataclass(frozen=True)
class Bound:
    """A Requirement: the value is at least as large as the limit; if `is_maximum` at most."""

    limit: float
    is_maximum: bool = False

    @property
    def rule(self) -> str:
        """The requirement in a few words."""
        return f"at {'most' if self.is_maximum else 'least'} {number(self.limit)}"

    def judge(self, low: float, high: float) -> Outcome:
        """Implement `Requirement.judge`."""
        if self.is_maximum:
            return "pass" if high <= self.limit else "fail" if low > self.limit else "inconclusive"
        return "pass" if low >= self.limit else "fail" if high < self.limit else "inconclusive"

    def standing(self, value: float | None) -> str:
        """Implement `Requirement.standing`."""
        bound = f"the {'maximum' if self.is_maximum else 'minimum'} of {number(self.limit)}"
        if value is None:
            return f"cannot be compared with {bound}"
        holds, violates = ("keeps to", "is above") if self.is_maximum else ("reaches", "is below")
        return f"{holds if self.judge(value, value) == 'pass' else violates} {bound}"

    def crossing(self, value: float, low: float, high: float) -> str:
        """Implement `Requirement.crossing`."""
        passes = self.judge(value, value) == "pass"
        return "its interval begins below" if passes is not self.is_maximum else "its interval ends above"


@dataclass(frozen=True)
class ImpactAtMost:
    """A Requirement: the value's impact is at most `worst_allowed`.

    A value that no range holds neither meets nor violates it.
    """

    worst_allowed: Impact
    ranges: Sequence[Range]

    @property
    def rule(self) -> str:
        """The requirement in a few words."""
        return f"impact at most {self.worst_allowed}"

    @property
    def limit(self) -> None:
        """No single number: impacts are compared."""

    def judge(self, low: float, high: float) -> Outcome:
        """Implement `Requirement.judge`."""
        impacts = impact_range(low, high, self.ranges)
        allowed = {self._allows(impact) for impact in impacts.impacts}
        if impacts.gap or len(allowed) != 1:
            return "inconclusive"
        return "pass" if allowed == {True} else "fail"

    def standing(self, value: float | None) -> str:
        """Implement `Requirement.standing`."""
        assessment = assess(value, self.ranges)
        if assessment.impact is None:
            return f"has no impact: {assessment.reason}"
        return f"has the impact {assessment.impact}; {self.worst_allowed} is the worst allowed"

    def crossing(self, value: float, low: float, high: float) -> str:
        """Implement `Requirement.crossing`."""
        impacts = impact_range(low, high, self.ranges)
        impact = assess(value, self.ranges).impact
        others = [
            other for other in impacts.impacts if impact is None or self._allows(other) is not self._allows(impact)
        ]
        parts = [str(worst(others))] if others else []
        if impacts.gap:
            parts.append("values that no range holds")
        return f"its interval reaches {listed(parts)}"

    def _allows(self, impact: Impact) -> bool:
        return severity(impact) <= severity(self.worst_allowed)


def kind_of_requirements(gate: Gate, requirements: Sequence[Requirement], scale: Scale, n: float) -> IntervalKind:
    """Return the kind of interval by which `n` observations are judged by all of these requirements."""
    least = min((share for requirement in requirements for share in _shares_to_show(requirement, scale)), default=1.0)
    return kind_for(gate.interval, least, n, gate.pass_confidence)


def _shares_to_show(requirement: Requirement, scale: Scale) -> Iterator[float]:
    """Yield what values are to reach for a pass, as a share of the scale; for a maximum their distance from its top."""
    limits = {requirement.limit} if requirement.limit is not None else set()
    if isinstance(requirement, ImpactAtMost):
        limits = {bound for item in requirement.ranges for bound in (item.min, item.max) if bound is not None}
    for limit in limits:
        below, above = (math.nextafter(limit, end) for end in (-math.inf, math.inf))
        passes_below, passes_above = (requirement.judge(value, value) == "pass" for value in (below, above))
        if passes_below is not passes_above:
            yield scale.share(limit) if passes_above else 1 - scale.share(limit)
