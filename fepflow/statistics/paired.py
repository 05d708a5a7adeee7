"""The difference between two runs of the same test cases: new minus base, with its interval and a p-value.

What is sampled are test cases, so each gives one difference, that of its two means. Yes or no without repeats gets
Tango's score interval (1998). Repeats and scores get the interval of a mean of values with a known range, here from
minus to plus the range's width. So do cases that belong together, with their clusters as what was sampled, as Tango's
interval and McNemar's test are for independent cases. Values without a known range get Student's t, which describes
their difference and decides nothing: a few cases that break altogether among many that hardly change make it show "no
worse" up to one time in eight, where one in forty is promised.

Nothing leaves the denominator: a case that has no value in one of the runs could differ by as much as the range is
wide, whichever way. It counts at its worst for the low bound and at its best for the high one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from fepflow.statistics.estimate import UNBOUNDED, Clusters, Counts, Estimate, Method, Scale
from fepflow.statistics.judges import USELESS, JudgeLabels, youden_index
from fepflow.statistics.means import CaseValue, Sums, by_unit, clustered_stderr, mean, mean_estimate
from fepflow.statistics.proportions import boundary, mid_p_below, t_quantile, z_score
from fepflow.text import number


def tango_interval(improved: float, worsened: float, n: float, confidence: float = 0.95) -> tuple[float, float]:
    """Return Tango's score interval (1998) of the difference (improved - worsened) / n between paired proportions.

    `n` counts all pairs, also those that are the same in both; no number need be whole. ValueError for n <= 0.
    """
    if n <= 0:
        raise ValueError("there is nothing to compare")
    z = z_score(confidence)
    value = (improved - worsened) / n
    return (
        boundary(lambda low: tango_score(improved, worsened, n, low) > z, -1.0, value),
        boundary(lambda high: tango_score(improved, worsened, n, high) < -z, 1.0, value),
    )


def tango_score(improved: float, worsened: float, n: float, difference: float) -> float:
    """Return by how many standard errors pairs are above a true difference: at the low bound it is the z-score."""
    b = (2 * n - improved + worsened) * difference - improved - worsened
    c = -worsened * difference * (1 - difference)
    rate = (math.sqrt(max(b * b - 8 * n * c, 0.0)) - b) / (4 * n)
    variance = n * (2 * rate + difference * (1 - difference))
    above = improved - worsened - n * difference
    return above / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, above)


def mcnemar_mid_p(improved: float, worsened: float, missing: int = 0) -> float:
    """Return the two-sided mid-p-value of McNemar's test, with what is missing taken against either direction."""
    n = improved + worsened + missing
    if not n:
        return 1.0
    return min(2 * min(mid_p_below(improved + missing, n, 0.5), mid_p_below(worsened + missing, n, 0.5)), 1.0)


def difference(base: CaseValue, new: CaseValue, scale: Scale | None) -> CaseValue:
    """Return one case's difference. Without a value in one of the runs it could be as large as the `scale` is wide,
    either way; missing repeats could have been at either end of the scale."""
    width = scale.high - scale.low if scale else math.inf
    if base.value is None or new.value is None:
        return CaseValue(None, -width, width)
    least, value, most = new.least - base.most, new.value - base.value, new.most - base.least
    return CaseValue(*(min(max(bound, -width), width) for bound in (value, least, most)))


@dataclass(frozen=True, slots=True)
class _Complete:
    """The `n` differences of test cases, or of clusters, none of which is missing.

    If `binary`, `improved` and `worsened` give Tango's interval. `sums` give that of values with a range. Without
    `sums` it is a t interval by `stderr`.
    """

    n: int
    clustered: bool
    value: float
    improved: int
    worsened: int
    binary: bool
    stderr: float | None
    sums: Sums | None

    @property
    def method(self) -> Method:
        if self.binary:
            return "tango"
        if self.sums is None:
            return "paired-t-clustered" if self.clustered else "paired-t"
        return "paired-bounded-clustered" if self.clustered else "paired-bounded"

    def bounds(self, confidence: float, cases: int | None = None) -> tuple[float | None, float | None]:
        """Return the interval, or that of this many similar cases."""
        n = self.n if cases is None else cases
        if self.binary:
            return tango_interval(self.improved * n / self.n, self.worsened * n / self.n, n, confidence)
        if self.sums is not None:
            return self.sums.with_cases(n, confidence)
        if self.stderr is None or cases is not None:
            return None, None
        margin = t_quantile((1 + confidence) / 2, n - 1) * self.stderr
        bounds = self.value - margin, self.value + margin
        return bounds if all(map(math.isfinite, bounds)) else (None, None)


@dataclass(frozen=True, slots=True)
class Pairs:
    """The differences of matched test cases, from which an interval of any confidence is computed.

    `known` are the complete ones; `least` and `most` are of all, with what is missing at its worst and best; None where
    nothing bounds it.
    """

    counts: Counts
    known: _Complete
    least: _Complete | None
    most: _Complete | None

    @property
    def cases(self) -> int:
        """The number of test cases, as in `Sample`."""
        return self.counts.clusters.number if self.counts.clusters else self.counts.expected

    def estimate(self, confidence: float) -> Estimate:
        """Implement `Sample.estimate`."""
        low = None if self.least is None else self.least.bounds(confidence)[0]
        high = None if self.most is None else self.most.bounds(confidence)[1]
        value = self.known.value
        return Estimate(
            value,
            self.known.stderr,
            None if low is None else min(low, value),
            None if high is None else max(high, value),
            confidence,
            self.known.method,
            self.counts,
            self.least.value if self.least else None,
            self.most.value if self.most else None,
            UNBOUNDED if self.known.method.startswith("paired-t") else None,
            None,
            self,
        )

    def with_cases(self, cases: int, confidence: float) -> tuple[float | None, float | None]:
        """Implement `Sample.with_cases`."""
        return self.known.bounds(confidence, cases)

    def p_value(self) -> float | None:
        """Return the two-sided p-value of no difference: McNemar's mid-p for yes or no, else that of the interval; None
        if unknown."""
        if self.known.binary:
            return mcnemar_mid_p(self.known.improved, self.known.worsened, self.counts.missing)
        if self.estimate(0.5).interval == (-math.inf, math.inf):
            return None

        def holds_zero(confidence: float) -> bool:
            low, high = self.estimate(confidence).interval
            return low <= 0 <= high

        return 1 - boundary(holds_zero, 1.0 - 1e-12, 0.0)


def paired_estimate(
    differences: Sequence[CaseValue],
    confidence: float = 0.95,
    scale: Scale | None = None,
    cluster_numbers: Sequence[int] | None = None,
    noun: str = "cluster",
    unmatched: int = 0,
) -> Estimate:
    """Estimate the mean difference of matched test cases, one `difference` each.

    `cluster_numbers` says for each which cluster it belongs to, if they are not independent; a cluster is a `noun`.

    `scale` is that of the values: binary for yes or no without repeats, another for what can lie between, None if
    their range is not known. A case of which a part is missing counts as an error, but for the last `unmatched`
    differences: of cases that the other run has not. The estimate's sample is `Pairs`.
    Raises ValueError for a confidence outside (0, 1).
    """
    z_score(confidence)
    known = sum(case.value is not None and case.least == case.most for case in differences)
    clusters = None if cluster_numbers is None else Clusters.of(Counter(cluster_numbers).values(), noun)
    numbers = range(len(differences)) if cluster_numbers is None else cluster_numbers
    counts = Counts(len(differences), known, error=len(differences) - known - unmatched, clusters=clusters)
    values = by_unit([case.value for case in differences], numbers)
    if not values:
        return Estimate.unknown(confidence, counts)
    least, most = [case.least for case in differences], [case.most for case in differences]
    bounded = math.isfinite(sum(map(abs, least))) and math.isfinite(sum(map(abs, most)))
    complete = _complete(values, scale, clusters)
    ends = [complete if not counts.missing else None] * 2
    if counts.missing and bounded:
        ends = [_complete(by_unit(end, numbers), scale, clusters) for end in (least, most)]
    return Pairs(counts, complete, *ends).estimate(confidence)


def _complete(units: Sequence[Sequence[float]], scale: Scale | None, clusters: Clusters | None) -> _Complete:
    """Sum up differences, by test case or by cluster."""
    values = list(chain.from_iterable(units))
    improved, worsened = sum(value > 0 for value in values), sum(value < 0 for value in values)
    stderr, sums = clustered_stderr(units), None
    if scale is not None and (clusters is not None or not scale.binary):
        width = scale.high - scale.low
        counts = Counts(len(values), len(values), clusters=clusters)
        bounded = mean_estimate(units, counts, scale=Scale(-width, width))
        assert isinstance(bounded.sample, Sums)
        sums = bounded.sample
    binary = sums is None and scale is not None
    return _Complete(len(units), clusters is not None, mean(values), improved, worsened, binary, stderr, sums)


@dataclass(frozen=True, slots=True)
class CorrectedPairs:
    """The difference of a judge's shares of passes, and the labels by which it is corrected."""

    raw: Pairs
    labels: JudgeLabels

    @property
    def cases(self) -> int:
        """The number of test cases, as in `Sample`."""
        return self.raw.cases

    def estimate(self, confidence: float) -> Estimate:
        """Implement `Sample.estimate`, without a value if the labels do not tell the judge from chance."""
        raw, index = self.raw.estimate(confidence), youden_index(self.labels, confidence)
        if raw.value is None or index is None or index[0] <= 0:
            return Estimate.unknown(confidence, raw.counts, problem=USELESS)
        value, least, most = (_clipped(figure, index[0]) for figure in (raw.value, raw.least, raw.most))
        low, high = _bounds((raw.low, raw.high), index[1:])
        measured = raw.value / index[0]
        impossible = f"by the judge's errors among the labels it would be {number(measured)}, which cannot be"
        return Estimate(
            value, None, min(low, value), max(high, value), confidence, "paired-rogan-gladen", raw.counts, least, most,
            None if abs(measured) <= 1 else impossible, sample=self,
        )  # fmt: skip

    def with_cases(self, cases: int, confidence: float) -> tuple[float | None, float | None]:
        """Implement `Sample.with_cases`, for more test cases with the same labels."""
        index = youden_index(self.labels, confidence)
        return (-1.0, 1.0) if index is None else _bounds(self.raw.with_cases(cases, confidence), index[1:])


def corrected_difference(estimate: Estimate, labels: JudgeLabels) -> Estimate | None:
    """Correct the difference of a judge's shares of passes; return None if it is not a difference of shares."""
    raw = estimate.sample
    if not isinstance(raw, Pairs) or estimate.method not in ("tango", "paired-bounded", "paired-bounded-clustered"):
        return None
    return CorrectedPairs(raw, labels).estimate(estimate.confidence)


def _bounds(raw: tuple[float | None, float | None], index: tuple[float, float]) -> tuple[float, float]:
    low, high = raw
    if low is None or high is None or index[0] <= 0:
        return -1.0, 1.0
    return min(_clipped(low, divisor) for divisor in index), max(_clipped(high, divisor) for divisor in index)


def _clipped(difference: float | None, index: float) -> float:
    return 0.0 if difference is None else min(max(difference / index, -1.0), 1.0)
