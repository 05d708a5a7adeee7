"""A quantile of a metric's values, such as the median or the 95th percentile, bounded by order statistics.

Nothing is assumed of how the values are distributed. A value is an upper bound if the share of values at or below it
is shown to reach the quantile's level, by the exact interval of a proportion (Woodruff 1952), with test cases as what
was sampled. Without repeats that is the usual order statistic: of the 95th percentile the largest of 72 values, or the
197th of 200. What is missing counts as larger than all for the upper bound, as smaller for the lower one.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from fepflow.json.values import finite
from fepflow.statistics.estimate import Counts, Estimate, Method, Scale
from fepflow.statistics.means import UnitSums, refuse_contradictions
from fepflow.statistics.proportions import beta_cdf, z_score


@dataclass(frozen=True, slots=True)
class QuantileSample:
    """Values by test case, or by cluster, and the `level` (0 to 1) of the quantile that is wanted of them."""

    level: float
    values_by_case: Sequence[Sequence[float]]
    ordered: Sequence[float]
    counts: Counts
    scale: Scale | None

    @property
    def cases(self) -> int:
        """The number of test cases, as in `Sample`."""
        return len(self.values_by_case)

    def estimate(self, confidence: float) -> Estimate:
        """Implement `Sample.estimate`."""
        z_score(confidence)
        value = _nearest_rank(self.ordered, self.level)
        ends = (self.scale.low, self.scale.high) if self.scale else (-math.inf, math.inf)
        missing = self.counts.missing
        least = _nearest_rank([*[ends[0]] * missing, *self.ordered], self.level)
        most = _nearest_rank([*self.ordered, *[ends[1]] * missing], self.level)
        low, high = self._bounds(confidence)
        return Estimate(
            value,
            None,
            low,
            high,
            confidence,
            self._method,
            self.counts,
            finite(least),
            finite(most),
            sample=self,
        )

    def with_cases(self, cases: int, confidence: float) -> tuple[float | None, float | None]:
        """Implement `Sample.with_cases`."""
        n, worth = len(self.ordered), cases * self._worth_of_a_case(confidence)
        return self._ends(
            _first(n, lambda k: _shows(k / n, worth, 1 - self.level, confidence)),
            _first(n, lambda k: _shows(k / n, worth, self.level, confidence)),
        )

    @property
    def _method(self) -> Method:
        return "order-statistics-clustered" if self._repeated else "order-statistics"

    @property
    def _repeated(self) -> bool:
        return self.counts.clusters is not None or any(len(case) > 1 for case in self.values_by_case)

    def _bounds(self, confidence: float) -> tuple[float | None, float | None]:
        n, expected = len(self.ordered), self.counts.expected
        if self.counts.missing or not self._repeated:
            worth: float = self.counts.clusters.worth if self.counts.clusters else self.cases
            return self._ends(
                _first(n, lambda k: _shows(k / expected, worth, 1 - self.level, confidence)),
                _first(n, lambda k: _shows(k / expected, worth, self.level, confidence)),
            )
        return self._ends(
            _first(n, lambda k: self._clustered(n - k, 1 - self.level, confidence, above=True)),
            _first(n, lambda k: self._clustered(k - 1, self.level, confidence, above=False)),
        )

    def _ends(self, below: int | None, above: int | None) -> tuple[float | None, float | None]:
        """Return the bounds: `below` of the largest values are at or above the lower one, `above` of the least are at
        or below the upper one; an end of the scale where no number of values suffices."""
        low = (self.scale.low if self.scale else None) if below is None else self.ordered[-below]
        high = (self.scale.high if self.scale else None) if above is None else self.ordered[above - 1]
        return low, high

    def _clustered(self, index: int, level: float, confidence: float, *, above: bool) -> bool:
        """Return whether the share of values at or beyond the index reaches the level, with repeats of cases."""
        limit = self.ordered[index]
        counts = [sum(value >= limit if above else value <= limit for value in case) for case in self._answered]
        return _shows(sum(counts) / len(self.ordered), self._observations(counts, confidence), level, confidence)

    def _worth_of_a_case(self, confidence: float) -> float:
        """Return how many independent values a test case is worth, as seen at the quantile."""
        if not self._repeated:
            return 1.0
        limit = _nearest_rank(self.ordered, self.level)
        counts = [sum(value <= limit for value in case) for case in self._answered]
        return self._observations(counts, confidence) / len(counts)

    def _observations(self, counts: Sequence[int], confidence: float) -> float:
        """Return how many independent observations the values are worth, of which `counts` are counted in each case."""
        shares = [count / len(case) for count, case in zip(counts, self._answered, strict=True)]
        return min(UnitSums.of(shares, list(map(len, self._answered))).observations(confidence), len(self.ordered))

    @property
    def _answered(self) -> list[Sequence[float]]:
        return [case for case in self.values_by_case if case]


def quantile_estimate(
    values_by_case: Sequence[Sequence[float]],
    counts: Counts,
    level: float,
    confidence: float = 0.95,
    scale: Scale | None = None,
) -> Estimate:
    """Estimate a quantile of a metric from its values: one inner sequence per test case, one value per repeat;
    with `counts.clusters` one per cluster.

    `level` lies between 0 and 1: 0.5 is the median. The value is one of those given, by the nearest rank: the least
    that so large a share of them is at or below.
    Raises ValueError as `mean_estimate` does.
    """
    if not 0 < level < 1:
        raise ValueError(f"the level of a quantile is between 0 and 1, not {level}")
    z_score(confidence)
    ordered = sorted(map(float, chain.from_iterable(values_by_case)))
    refuse_contradictions(ordered, len(values_by_case), counts, scale)
    if not ordered:
        return Estimate.unknown(confidence, counts)
    return QuantileSample(level, values_by_case, ordered, counts, scale).estimate(confidence)


def _first(n: int, holds: Callable[[int], bool]) -> int | None:
    """Return the least k from 1 to n for which it holds, and then does for all larger ones; None if for no k."""
    k = bisect_left(range(1, n + 1), True, key=holds) + 1
    return k if k <= n else None


def _shows(share: float, n: float, level: float, confidence: float) -> bool:
    """Return whether a share seen in n observations shows that the true one is at least the level."""
    successes = share * n
    return successes > 0 and beta_cdf(level, successes, n - successes + 1) <= (1 - confidence) / 2


def _nearest_rank(ordered: Sequence[float], level: float) -> float:
    rank = math.ceil(level * len(ordered) - 1e-9)  # not 8 of 100 for 0.07
    return ordered[max(rank, 1) - 1]
