"""Intervals that hold however often results are looked at while they arrive.

Bets are placed on the values: wealth that grows shows that their mean is not `m`. Each of 20 gamblers bets a constant
share of what is admissible, and the mean of their wealth is the e-process (Waudby-Smith and Ramdas 2024). If the mean
is at most `m`, the chance that it ever reaches 40 is at most 1 / 40 (Ville), however often one looks and whenever one
stops. The least bet is not small, so a mean that is close to `m` is never shown to be on its side: of 0.9, one of
0.905 is shown to be above in the end, one of 0.87 to be below, and one of 0.88 is not. The values are in [0, 1]: the
means of test cases, in random order; or each result, where the cases themselves are all that is asked about.

Clusters of cases count by their size: the mean is that of all results, so the sum of size (y - m) has to be zero at
most, and not that of y - m. A bet on a cluster is placed on size / largest size (y - m), which needs the largest size
that there can be, known before anything is drawn.

A few looks can be planned beforehand instead, at equal parts of a sample. Each may spend a part of the error that the
whole sample is allowed: hardly any at first, most of it at the end, as O'Brien and Fleming have it (Lan and DeMets
1983). So the last look is almost as sharp as if it were the only one. The boundaries are computed by recursive
integration over what could have been seen before (Armitage, McPherson and Rowe 1969). An interval at a look is the
usual one, at the confidence of the look's boundary (a repeated confidence interval, Jennison and Turnbull 1989).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, pairwise, repeat
from statistics import NormalDist

from fepflow.statistics.estimate import Estimate, Method, Scale
from fepflow.statistics.proportions import boundary, z_score

GAMBLERS = 20
_STEPS = 40
"""Halvings by which a bound is found: to 1e-12."""

_BINS = 20
"""Different values, at most one more, that a forecast is made of."""


@dataclass(frozen=True, slots=True)
class Values:
    """The different values, each with the number of times that it came and its weight, which is at most 1.

    Wealth is computed from it: the order of arrival does not matter.
    """

    entries: tuple[tuple[float, float, float], ...]

    @classmethod
    def of(cls, values: Iterable[float], weights: Iterable[float] | None = None) -> Values:
        """Count values in [0, 1], each of its weight; raise ValueError for others, and for NaN."""
        weighted = Counter(zip(values, weights or repeat(1.0), strict=False))
        for value, weight in weighted:
            if not (0 <= value <= 1 and 0 < weight <= 1):
                raise ValueError(f"values to be looked at one by one are from 0 to 1, not {value} of weight {weight}")
        return cls(tuple((value, count, weight) for (value, weight), count in weighted.items()))

    @classmethod
    def of_passes(cls, passed: int, failed: int) -> Values:
        """Return the values of results that passed (1) or failed (0)."""
        return cls(((0.0, failed, 1.0), (1.0, passed, 1.0)))

    @property
    def mirrored(self) -> Values:
        """Each value as its distance from 1."""
        return Values(tuple((1 - value, count, weight) for value, count, weight in self.entries))

    def roughly(self, factor: float) -> Values:
        """Return `factor` times as many values, rounded to a few different ones: enough for a forecast."""
        bins: dict[tuple[float, float], float] = {}
        for value, count, weight in self.entries:
            near = round(value * _BINS) / _BINS, math.ceil(weight * _BINS) / _BINS
            bins[near] = bins.get(near, 0) + count * factor
        return Values(tuple((value, count, weight) for (value, weight), count in bins.items()))

    @property
    def mean(self) -> float | None:
        """The mean of the values; None without values."""
        total = math.fsum(count * weight for _, count, weight in self.entries)
        return math.fsum(value * count * weight for value, count, weight in self.entries) / total if total else None


def log_e_above(values: Values, m: float) -> float:
    """Return the logarithm of the evidence that the mean is more than `m`, between 0 and 1; 0 before anything came.

    The evidence is the e-process e⁺(m) = mean over j = 1 … 20 of Π (1 + λ_j w (y - m)), with
    λ_j = (q_j - m) / (m (1 - m)) and q_j = m + (1 - m) j / 21, and the weights w. ValueError for an `m` at or
    beyond the ends.
    """
    if not 0 < m < 1:
        raise ValueError(f"a mean to bet against is between 0 and 1, not {m}")
    # λ_j = j / (21 m), so that 1 + λ_j w (y - m) = 1 + s w (y / m - 1) with the share s = j / 21 of what can be lost.
    shares = [number / (GAMBLERS + 1) for number in range(1, GAMBLERS + 1)]
    gains = [(count, weight * (y / m - 1)) for y, count, weight in values.entries]
    wealth = [math.fsum(count * math.log1p(s * gain) for count, gain in gains) for s in shares]
    most = max(wealth)
    return most + math.log(math.fsum(math.exp(log - most) for log in wealth) / GAMBLERS)


def is_shown_above(values: Values, m: float, confidence: float = 0.95) -> bool:
    """Return whether the mean is shown to be more than `m`, however often one looks, as by `confidence_sequence`."""
    return log_e_above(values, m) >= _log_limit(confidence)


def confidence_sequence(values: Values, confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval of means that the values do not speak against by now; all these intervals together hold the
    true mean.

    Ends are 0 and 1 until there is evidence. Either end is ever beyond the true mean with a chance of
    (1 - confidence) / 2 at most, however often one looks, as of a two-sided interval that is looked at once.
    """
    limit = _log_limit(confidence)
    mean = values.mean
    if mean is None:
        return 0.0, 1.0

    def least(shares: Values, share: float) -> float:
        return boundary(lambda m: 0 < m < 1 and log_e_above(shares, m) >= limit, 0.0, share, _STEPS)

    return least(values, mean), 1 - least(values.mirrored, 1 - mean)


def passes_in_a_row(minimum: float, confidence: float = 0.95) -> int:
    """Return the smallest number of passes, without a fail, that shows a minimum below 1: 52 for 0.9 at 95 %."""

    def show_it(passes: int) -> bool:
        return is_shown_above(Values.of_passes(passes, 0), minimum, confidence)

    many = 1
    while not show_it(many):
        many *= 2
    return bisect_left(range(many), True, lo=many // 2 + 1, key=show_it)


def confidence_of_look(confidence: float, look: int) -> float:
    """Return the confidence of the interval at a look, 1 for the first, so that all looks together err with a chance of
    1 - confidence at most: look k spends 6 / (π² k²) of it, and these shares add up to 1."""
    return 1 - (1 - confidence) * 6 / (math.pi * look) ** 2


def _log_limit(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence is between 0 and 1, for example 0.95; not {confidence}")
    return math.log(2 / (1 - confidence))


@dataclass(frozen=True, slots=True)
class SequentialSample:
    """Shares of the scale, from 0 to 1: of completed results (`seen`), and of all expected ones, with the missing at
    their least and at their most.

    `plain` is the estimate whose interval is replaced.
    """

    plain: Estimate
    scale: Scale
    method: Method
    cases: int
    seen: Values
    least: Values
    most: Values

    def estimate(self, confidence: float) -> Estimate:
        """Implement `Sample.estimate`."""
        low, high = confidence_sequence(self.least, confidence)[0], confidence_sequence(self.most, confidence)[1]
        value = self.plain.value
        assert value is not None
        return replace(
            self.plain,
            stderr=None if self.method == "sequential-these-cases" else self.plain.stderr,
            low=min(self.scale.value(low), value),
            high=max(self.scale.value(high), value),
            confidence=confidence,
            method=self.method,
            sample=self,
        )

    def with_cases(self, cases: int, confidence: float) -> tuple[float | None, float | None]:
        """Implement `Sample.with_cases`."""
        low, high = confidence_sequence(self.seen.roughly(cases / self.cases), confidence)
        return self.scale.value(low), self.scale.value(high)


@dataclass(frozen=True, slots=True)
class ClusterSizes:
    """The number of results that each cluster is to have, and the `largest` one that could have been drawn."""

    sizes: Sequence[int]
    largest: int


def sequential_estimate(
    plain: Estimate,
    values_by_case: Sequence[Sequence[float]],
    repeats: int,
    scale: Scale,
    *,
    these_cases: bool,
    clusters: ClusterSizes | None = None,
) -> Estimate:
    """Return the estimate with an interval that holds at every look.

    `values_by_case` is as for `mean_estimate`; each case was to have this number of `repeats`. With `clusters` it is by
    cluster. Without a value: as it is.
    """
    if plain.value is None:
        return plain
    shares = [[scale.share(value) for value in case] for case in values_by_case]
    if these_cases:
        results = list(chain.from_iterable(shares))
        missing = len(shares) * repeats - len(results)
        seen, least, most = (Values.of([*results, *repeat(end, count)]) for end, count in _ends(missing))
    else:
        sizes = clusters.sizes if clusters else [repeats] * len(shares)
        weights = [size / clusters.largest for size in sizes] if clusters else [1.0] * len(shares)
        answered = [(math.fsum(case) / len(case), weight) for case, weight in zip(shares, weights, strict=True) if case]
        seen = Values.of((value for value, _ in answered), [weight for _, weight in answered])
        least, most = (
            Values.of(
                (
                    min((math.fsum(case) + end * (size - len(case))) / size, 1.0)
                    for case, size in zip(shares, sizes, strict=True)
                ),
                weights,
            )
            for end in (0, 1)
        )
    method: Method = "sequential-clustered" if clusters else "sequential"
    method = "sequential-these-cases" if these_cases else method
    return SequentialSample(plain, scale, method, len(shares), seen, least, most).estimate(plain.confidence)


def _ends(missing: int) -> list[tuple[float, int]]:
    return [(0.0, 0), (0.0, missing), (1.0, missing)]


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
