"""The mean of a metric, with its interval.

There are three kinds of mean, by the values that are possible, never by those that occur. A *proportion* (the
share that passed) gets Wilson's score interval. A mean of scores with a known range gets an interval of the same form,
with the effective number of observations that their spread allows; a gate judges it by one that also allows for their
skewness (`Moments`). A mean of unbounded values gets a t interval, which describes it and decides nothing.

Repeats of one test case are not independent observations: test cases are what was sampled, so all are clustered. Where
test cases belong together (questions about one document), their clusters are what was sampled: everything here that
is said of a case and its repeats then holds for a cluster and all its results.

Nothing that was expected leaves the denominator. What is missing (an error, a skip, a check that never ran) is taken
at the worst end of the range for the low bound, at the best for the high one; without a range there are no bounds.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, repeat
from math import comb
from typing import NamedTuple

from fepflow.json.values import finite
from fepflow.statistics.estimate import PROPORTION, UNBOUNDED, Counts, Estimate, Method, Scale
from fepflow.statistics.proportions import IntervalKind, interval_of, t_quantile, z_score

UNSEEN = 2
"""Bad scores that are taken to be possible, and did not come."""


class Moments(NamedTuple):
    """The number of scores from 0 to 1, and the means of them, of their squares and of their cubes.

    `cube` is None where it is not known: then the scores are taken to lean as far as they can.

    A sample of good scores looks alike until the first bad one comes: of scores that are 0.91, or 0 for one in ninety,
    a spread measured by the sample shows a mean of 0.9 up to 6.6 % of the time, where 2.5 % is promised. So the spread
    is that which the scores would have if their mean were at the bound, as in Wilson's interval: a lower mean comes
    from more of the bad scores, by as much as the scores lean to that side (their third moment). Two bad scores that
    did not come are counted for that. Of scores that are 0 or one other number it is Wilson's interval, times that
    number.
    """

    number: float
    mean: float
    square: float
    cube: float | None

    @classmethod
    def of(cls, scores: Sequence[float]) -> Moments:
        """Compute the moments of at least one score."""
        n = len(scores)
        mean, square, cube = (math.fsum(score**power for score in scores) / n for power in (1, 2, 3))
        return cls(n, mean, square, cube)

    def low(self, kind: IntervalKind, confidence: float, factor: float = 1.0) -> float:
        """Return the low bound of the mean; with a `factor`, that of that many times as many scores.

        The exact kind, and scores that lean to an unknown side, get that of the worst case: each score is 0 or one
        other number, the mean of squares divided by the mean.
        """
        n = self.number * factor
        if self.mean <= 0:
            return 0.0
        if self.cube is None or kind == "clopper-pearson":
            other = max(min(self.square / self.mean, 1.0), self.mean)
            return other * interval_of(kind, self.mean / other, n, confidence)[0]
        return self._by_lean(n, self.cube, z_score(confidence) ** 2 / n)

    def _by_lean(self, n: float, cube: float, t: float) -> float:
        """Solve (mean - m)² = t (variance + slope (mean - m) - (mean - m)²) for m."""
        spread = (n + UNSEEN) * self.square - n * self.mean**2
        lean = ((n + UNSEEN) * cube - n * self.mean * self.square) / spread if spread > 0 else 0.0
        variance = max(self.square - self.mean**2, 0.0)
        half = t * (2 * self.mean - lean) / (1 + t) / 2
        return max(self.mean - half - math.sqrt(half**2 + t * variance / (1 + t)), 0.0)


@dataclass(frozen=True, slots=True)
class Sums:
    """Summary of a metric's values, from which an interval of any confidence is computed.

    Shares are values by their place in the scale, from 0 to 1: `share` is the mean of those that completed,
    `least_share` and `most_share` that of all expected ones, with what is missing at its least and most. `units`
    sums up the shares of the cases that have `answered`; `values` is the number of values. `scores` are the moments of
    these shares and of their distances from 1, if the values are scores of independent cases.
    """

    scale: Scale | None
    kind: IntervalKind
    counts: Counts
    cases: int
    answered: int
    values: int
    repeated: bool
    value: float
    stderr: float | None
    least: float | None
    most: float | None
    share: float
    least_share: float
    most_share: float
    units: UnitSums
    scores: tuple[Moments, Moments] | None = None

    def estimate(self, confidence: float) -> Estimate:
        """Implement `Sample.estimate`."""
        low, high = self._bounds(confidence)
        return Estimate(
            self.value,
            self.stderr,
            low,
            high,
            confidence,
            self.method,
            self.counts,
            self.least,
            self.most,
            UNBOUNDED if self.scale is None else None,
            None,
            self,
        )

    @property
    def method(self) -> Method:
        """The method of the interval."""
        if self.scale is None:
            return "t-clustered" if self.repeated else "t"
        if not self.scale.binary:
            if self.counts.clusters:
                return "bounded-clustered"
            methods: dict[IntervalKind, Method] = {"skewed": "bounded-skewed", "clopper-pearson": "bounded-exact"}
            return methods.get(self.kind, "bounded")
        if self.kind != "clopper-pearson":
            return "wilson-clustered" if self.repeated else "wilson"
        return "clopper-pearson-clustered" if self.repeated else "clopper-pearson"

    def with_cases(self, cases: int, confidence: float) -> tuple[float | None, float | None]:
        """Implement `Sample.with_cases`."""
        if self.scale is None:
            return None, None
        if self.scores is not None and self.kind != "wilson":
            low, high = self._score_bounds(self.scores, confidence, cases / self.answered)
        else:
            n = self.effective(confidence, cases / self.answered)
            low, high = interval_of(self.kind, self.share, n, confidence)
        return self.scale.value(low), self.scale.value(high)

    def _bounds(self, confidence: float) -> tuple[float | None, float | None]:
        if self.scale is None:
            return (None, None) if self.counts.missing else self._t_bounds(confidence)
        if self.scores is not None and self.kind != "wilson" and not self.counts.missing:
            low, high = self._score_bounds(self.scores, confidence)
        else:
            n = self.effective(confidence)
            low, _ = interval_of(self.kind, self.least_share, n, confidence)
            _, high = interval_of(self.kind, self.most_share, n, confidence)
        low, high = self.scale.value(low), self.scale.value(high)
        return min(low, self.value), max(high, self.value)

    def _score_bounds(
        self, scores: tuple[Moments, Moments], confidence: float, factor: float = 1.0
    ) -> tuple[float, float]:
        shares, distances = scores
        return shares.low(self.kind, confidence, factor), 1 - distances.low(self.kind, confidence, factor)

    def _t_bounds(self, confidence: float) -> tuple[float | None, float | None]:
        if self.stderr is None:
            return None, None
        margin = t_quantile((1 + confidence) / 2, self.answered - 1) * self.stderr
        return finite(self.value - margin), finite(self.value + margin)

    def effective(self, confidence: float, factor: float | None = None) -> float:
        """Return how many independent observations of 0 or 1 the values are worth; with a `factor`, those of a complete
        sample of that many times as many cases.

        With results missing each case counts once: the missing ones might have differed from its other repeats.

        Repeats of yes and no are worth their number at most.
        """
        if factor is None:
            if self.counts.missing:
                return self.counts.clusters.worth if self.counts.clusters else self.cases
            factor = 1.0
        worth = self.units.observations(confidence, factor)
        return min(worth, self.values * factor) if self.scale and self.scale.binary else worth


class UnitSums(NamedTuple):
    """Sums over the mean shares p of cases, or of clusters.

    Those of different sizes are worth a smaller `number` of equal size, (sum of sizes)² / sum of squared sizes (Kish
    1965), and the sums are those of that number of cases: `shares` that of p, weighed by sizes; `larger` by how much
    more it would be with squared sizes as weights; `within` that of p (1 - p), with these.
    """

    number: float
    shares: float
    larger: float
    within: float

    @classmethod
    def of(cls, shares: Sequence[float], sizes: Sequence[int]) -> UnitSums:
        """Sum up cases with these mean shares, and these numbers of values."""
        squares = [size * size for size in sizes]
        number = sum(sizes) ** 2 / sum(squares)
        share, share_by_squares = _weighed(shares, sizes), _weighed(shares, squares)
        within = _weighed([share_of_case * (1 - share_of_case) for share_of_case in shares], squares)
        return cls(number, number * share, number * (share_by_squares - share), number * within)

    def observations(self, confidence: float, factor: float = 1.0) -> float:
        """Return how many independent observations of 0 or 1 the values are worth; with a `factor`, those of
        that many times as many cases.

        Cases whose values are all at either end of the scale are worth one each; values in between, and repeats that
        scatter within their case, more: number / (1 - W / T), with W the mean variance within a case, taken as that of
        a coin with the case's mean, and T the variance in all. Where large cases have other means than small ones, the
        mean of all values varies by more (or less), for which `larger` allows.

        Agreement seen in a few cases is weak evidence, and none at all when every result is the same. So W and T are
        taken with z² cases more, half all 0 and half all 1, as in the centre of Wilson's interval. That also keeps the
        low bound from rising when a value falls.
        """
        z2 = z_score(confidence) ** 2
        number = self.number * factor
        centre = (self.shares * factor + z2 / 2) / (number + z2)
        explained = (self.within - self.larger * (1 - 2 * centre)) * factor / (number + z2)
        spread = centre * (1 - centre)  # 0 if all are at one end of the scale, and the confidence is near 0
        rest = 1 - explained / spread if spread else 1.0
        return number / max(rest, sys.float_info.epsilon)  # 0 if all are at the centre, and the confidence is near 0


def _weighed(values: Sequence[float], weights: Sequence[int]) -> float:
    return math.fsum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)


def mean_estimate(
    values_by_case: Sequence[Sequence[float]],
    counts: Counts,
    confidence: float = 0.95,
    scale: Scale | None = None,
    kind: IntervalKind = "wilson",
) -> Estimate:
    """Estimate the mean of a metric from its values: one inner sequence per test case, one value per repeat.

    A test case whose results are all missing belongs in it too, as an empty sequence: the number of sequences is the
    number of test cases in the sample. With `counts.clusters` the sequences are these, with the values of all their
    cases. Every value weighs the same, `value` is their plain mean. `scale` is the range
    of the values, None if it is not known.

    Raises ValueError: a value that is not finite or not on the scale, `counts` that contradict the values, a
    confidence outside (0, 1).
    """
    z_score(confidence)
    values = [float(value) for value in chain.from_iterable(values_by_case)]
    refuse_contradictions(values, len(values_by_case), counts, scale)
    if not values:
        return Estimate.unknown(confidence, counts)
    answered = [case for case in values_by_case if case]
    stderr = clustered_stderr(answered)
    shares = [[scale.share(value) for value in case] for case in answered] if scale else []
    means = [math.fsum(case) / len(case) for case in shares]
    least, most = (
        (mean([*values, *repeat(end, counts.missing)]) for end in (scale.low, scale.high)) if scale else (None, None)
    )
    total = math.fsum(chain.from_iterable(shares))
    is_score = scale is not None and not scale.binary and counts.clusters is None
    return Sums(
        scale=scale,
        kind=kind,
        counts=counts,
        cases=len(values_by_case),
        answered=len(answered),
        values=len(values),
        repeated=counts.clusters is not None or any(len(case) > 1 for case in answered),
        value=mean(values),
        stderr=stderr,
        least=least,
        most=most,
        share=total / len(values),
        least_share=total / counts.expected,
        most_share=(total + counts.missing) / counts.expected,
        units=UnitSums.of(means, list(map(len, answered))) if scale else UnitSums(0, 0, 0, 0),
        scores=(Moments.of(means), Moments.of([1 - share for share in means])) if is_score else None,
    ).estimate(confidence)


class CaseValue(NamedTuple):
    """The value of one test case over its repeats: over those that are there (None without any), and at the least and
    the most that it can be with those that are missing."""

    value: float | None
    least: float
    most: float


def estimate_of_cases(
    cases: Sequence[CaseValue],
    counts: Counts,
    confidence: float = 0.95,
    scale: Scale = PROPORTION,
    kind: IntervalKind = "wilson",
    cluster_numbers: Sequence[int] | None = None,
) -> Estimate:
    """Estimate the mean of one value a test case, of all that are in the sample; `counts` are of cases, too.

    A case whose value is not known for sure is missing. `cluster_numbers` says for each case which of `counts.clusters`
    it belongs to. Raises ValueError for one that is not on the scale.
    """
    numbers = range(len(cases)) if cluster_numbers is None else cluster_numbers
    answered = by_unit([case.value for case in cases], numbers)
    known = sum(map(len, answered))
    estimate = mean_estimate(answered, Counts(known, known, clusters=counts.clusters), confidence, scale)
    if not answered:
        return replace(estimate, counts=counts)
    assert isinstance(estimate.sample, Sums)
    ends = [mean([case.least for case in cases]), mean([case.most for case in cases])]
    return replace(
        estimate.sample,
        kind=kind,
        counts=counts,
        cases=len(set(numbers)),
        least=ends[0],
        most=ends[1],
        least_share=scale.share(ends[0]),
        most_share=scale.share(ends[1]),
    ).estimate(confidence)


def by_unit(values: Iterable[float | None], numbers: Iterable[int]) -> list[list[float]]:
    """Group values by the numbers of their cases, or clusters; None is left out."""
    groups: dict[int, list[float]] = {}
    for value, number in zip(values, numbers, strict=True):
        if value is not None:
            groups.setdefault(number, []).append(value)
    return list(groups.values())


def refuse_contradictions(values: list[float], cases: int, counts: Counts, scale: Scale | None) -> None:
    """Raise ValueError for values that are not finite or not on the scale, or that `counts` contradict."""
    if not all(map(math.isfinite, values)):
        raise ValueError("a value is NaN or infinite: count it as an error instead")
    if scale is not None and not all(map(scale.holds, values)):
        raise ValueError(f"a value is not within {scale.low} and {scale.high}: count it as an error instead")
    if len(values) != counts.completed:
        raise ValueError(f"{len(values)} values, but {counts.completed} completed")
    if cases > counts.expected:
        raise ValueError(f"{cases} test cases, but only {counts.expected} results expected")


def mean(values: Sequence[float]) -> float:
    """Return the mean of at least one number."""
    exponent = _exponent(values)
    scaled = math.fsum(math.ldexp(value, -exponent) for value in values) / len(values)
    return min(max(math.ldexp(scaled, exponent), min(values)), max(values))


def clustered_stderr(values_by_case: Sequence[Sequence[float]]) -> float | None:
    """Return the standard error of the mean, clustered by the inner sequences; with one value a case the usual s /
    sqrt(n).

    None for a single test case: between what was never compared, there is no spread to see.
    """
    exponent = _exponent(chain.from_iterable(values_by_case))
    scaled = [[math.ldexp(value, -exponent) for value in case] for case in values_by_case if case]
    cases, n = len(scaled), sum(map(len, scaled))
    if cases < 2:
        return None
    centre = math.fsum(chain.from_iterable(scaled)) / n
    residuals = [math.fsum(value - centre for value in case) for case in scaled]
    return _unscaled(math.sqrt(cases / (cases - 1) * math.fsum(sum**2 for sum in residuals)) / n, exponent)


def _exponent(values: Iterable[float]) -> int:
    return math.frexp(max(map(abs, values), default=0.0))[1]


def _unscaled(value: float, exponent: int) -> float | None:
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return None


def pass_at_k(n: int, passed: int, k: int) -> float:
    """Return the chance that at least one of k results passes, drawn from n of which `passed` did (Chen et al. 2021).

    ValueError unless 1 <= k <= n.
    """
    _refuse(n, k)
    return 1 - comb(n - passed, k) / comb(n, k)


def pass_hat_k(n: int, passed: int, k: int) -> float:
    """Return the chance that all of k results pass, drawn from n of which `passed` did: pass^k (Yao et al. 2024)."""
    _refuse(n, k)
    return comb(passed, k) / comb(n, k)


def k_of_repeats(passes: Sequence[float], repeats: int, k: int, *, every: bool) -> CaseValue:
    """Return pass^k of a case if `every` of the k has to pass, else pass@k; 1 is a pass, 0 a fail."""
    function = pass_hat_k if every else pass_at_k
    passed, missing = round(sum(passes)), repeats - len(passes)
    value = function(len(passes), passed, k) if len(passes) >= k else None
    return CaseValue(value, function(repeats, passed, k), function(repeats, passed + missing, k))


def majority(passes: Sequence[float], repeats: int) -> CaseValue:
    """Return 1 if more than half of the repeats pass, else 0."""
    passed, missing = round(sum(passes)), repeats - len(passes)
    value = float(2 * passed > len(passes)) if passes else None
    return CaseValue(value, float(2 * passed > repeats), float(2 * (passed + missing) > repeats))


def passes_needed(share: float, repeats: int) -> int:
    """Return how many of the repeats are at least this share of them: 4 of 5 are 0.8."""
    return math.ceil(Fraction(str(share)) * repeats)  # in floats, 7 of 100 would be less than 0.07


def each_at(passes: Sequence[float], repeats: int, share: float) -> CaseValue:
    """Return 1 if at least this share of the repeats passes, else 0."""
    passed, missing = round(sum(passes)), repeats - len(passes)
    needed = passes_needed(share, repeats)
    value = float(passed >= passes_needed(share, len(passes))) if passes else None
    return CaseValue(value, float(passed >= needed), float(passed + missing >= needed))


def worst(values: Sequence[float], repeats: int, scale: Scale) -> CaseValue:
    """Return the least of a case's values."""
    least = min(values, default=scale.high)
    return CaseValue(least if values else None, least if len(values) == repeats else scale.low, least)


def _refuse(n: int, k: int) -> None:
    if not 1 <= k <= n:
        raise ValueError(f"{k} of {n} results cannot be drawn")
