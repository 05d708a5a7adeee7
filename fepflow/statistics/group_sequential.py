"""Intervals that hold at a few looks, planned beforehand, at equal parts of a sample.

Each look may spend a part of the error that the whole sample is allowed: hardly any at first, most of it at the end, as
O'Brien and Fleming have it (Lan and DeMets 1983). So the last look is almost as sharp as if it were the only one. The
boundaries are computed by recursive integration over what could have been seen before (Armitage, McPherson and Rowe
1969). An interval at a look is the usual one, at the confidence of the look's boundary (a repeated confidence interval,
Jennison and Turnbull 1989).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from statistics import NormalDist

from fepflow.statistics.distributions import boundary
from fepflow.statistics.estimate import Estimate, Method
from fepflow.statistics.proportions import z_score

MOST_LOOKS = 10

_POINTS = 100
"""Intervals of Simpson's rule across what goes on; twice as many change the boundaries by less than 1e-5."""

_FARTHEST = 8.0
"""A z-score that is never reached: the boundary of a look that may spend next to nothing."""

_NORMAL = NormalDist()


@lru_cache(maxsize=64)
def boundaries(looks: int, confidence: float = 0.95) -> tuple[float, ...]:
    """Return the z-score at each look beyond which a two-sided interval of this confidence excludes a value: 4.333,
    2.963, 2.359 and 2.014 for four looks at 95 %. Raises ValueError unless there are 1 to 10 looks."""
    if not 1 <= looks <= MOST_LOOKS:
        raise ValueError(f"boundaries are those of 1 to {MOST_LOOKS} looks, not {looks}")
    z_score(confidence)
    spent = [_spent((1 - confidence) / 2, look / looks) for look in range(1, looks + 1)]
    step = math.sqrt(1 / looks)
    limits: list[float] = []
    points, weights = [0.0], [1.0]  # the sum of increments so far, while no look has stopped it, and its density
    for look, (before, by_now) in enumerate(pairwise([0.0, *spent]), start=1):
        limit = _limit(points, weights, step, by_now - before, math.sqrt(look / looks))
        limits.append(limit)
        points, weights = _next(points, weights, step, limit * math.sqrt(look / looks))
    return tuple(limits)


def _spent(error: float, time: float) -> float:
    """Return how much of the one-sided error may be spent by this part of the sample."""
    return 2 * _NORMAL.cdf(-_NORMAL.inv_cdf(1 - error / 2) / math.sqrt(time))


def _limit(points: list[float], weights: list[float], step: float, error: float, root: float) -> float:
    """Return the z-score above which the next sum lies with so large a probability; `root` is the square root of the
    part of the sample."""

    def beyond(limit: float) -> float:
        return math.fsum(
            weight * _NORMAL.cdf((point - limit * root) / step) for point, weight in zip(points, weights, strict=True)
        )

    return boundary(lambda limit: beyond(limit) > error, 0.0, _FARTHEST)


def _next(points: list[float], weights: list[float], step: float, limit: float) -> tuple[list[float], list[float]]:
    """Return the sums that the next look does not stop, with their probabilities by Simpson's rule."""
    width = 2 * limit / _POINTS
    grid = [-limit + index * width for index in range(_POINTS + 1)]
    simpson = [width / 3 * (1 if index in (0, _POINTS) else 4 if index % 2 else 2) for index in range(_POINTS + 1)]
    scale = 1 / (step * math.sqrt(2 * math.pi))
    densities = [
        scale
        * math.fsum(
            weight * math.exp(-(((value - point) / step) ** 2) / 2)
            for point, weight in zip(points, weights, strict=True)
        )
        for value in grid
    ]
    return grid, [part * density for part, density in zip(simpson, densities, strict=True)]


@dataclass(frozen=True, slots=True)
class GroupSequentialSample:
    """A sample at one of several planned looks. `plain` is its estimate as if nobody had looked before."""

    plain: Estimate
    look: int
    looks: int

    @property
    def cases(self) -> int:
        """The number of test cases, as in `Sample`."""
        assert self.plain.sample is not None
        return self.plain.sample.cases

    def estimate(self, confidence: float) -> Estimate:
        """Implement `Sample.estimate`."""
        nominal = nominal_confidence(self.look, self.looks, confidence)
        method: Method = self.plain.method if self.plain.is_corrected else "sequential-few-looks"
        return replace(self.plain.at(nominal), confidence=confidence, method=method, sample=self)

    def with_cases(self, cases: int, confidence: float) -> tuple[float | None, float | None]:
        """Implement `Sample.with_cases`, for the last look."""
        assert self.plain.sample is not None
        return self.plain.sample.with_cases(cases, nominal_confidence(self.looks, self.looks, confidence))


def nominal_confidence(look: int, looks: int, confidence: float) -> float:
    """Return the confidence of the plain interval at one of the planned `looks`, counted from 1."""
    return 1 - 2 * _NORMAL.cdf(-boundaries(looks, confidence)[look - 1])


def group_sequential_estimate(plain: Estimate, look: int, looks: int) -> Estimate:
    """Return the estimate with an interval that holds at all planned looks, at the `look`, counted from 1. Without a
    value or an interval it is returned as it is."""
    if plain.value is None or plain.sample is None:
        return plain
    return GroupSequentialSample(plain, look, looks).estimate(plain.confidence)
