"""What a sample says about a metric: a mean, its interval, and how much of the sample is there.

There are three kinds of metric, by the values that are possible, never by those that occur. A *proportion* (the
share that passed) gets Wilson's score interval. A mean of scores with a known range gets an interval of the same form,
with the effective number of observations that their spread allows. A mean of unbounded values gets a t interval.
Repeats of one test case are not independent observations: test cases are what was sampled, so all are clustered.

Nothing that was expected leaves the denominator. What is missing (an error, a skip, a check that never ran) is taken
at the worst end of the range for the low bound, at the best for the high one; without a range there are no bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Literal

from fepflow.statistics.intervals import IntervalKind, interval_of, z_score
from fepflow.statistics.moments import IntervalWarning, clustered_stderr, mean, t_interval_warning
from fepflow.statistics.scale import Scale
from fepflow.statistics.t_distribution import t_quantile

Method = Literal[
    "wilson",
    "wilson-clustered",
    "clopper-pearson",
    "clopper-pearson-clustered",
    "bounded",
    "t",
    "t-clustered",
    "normal",
    "none",
]
"""How an interval came about.

`wilson` and `clopper-pearson` are of a proportion, `bounded` of a mean of scores with a range, `t` Student's of a mean
without one; `-clustered` says that test cases were repeated and the interval allows for it. `normal` is of a value and
a standard error that somebody else has computed. `none`: no value.
"""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many results of one metric were expected, and what became of them.

    A result without a usable number (NaN, an infinity) counts as an error. Those that are in none of `completed`,
    `error` and `skipped` never came. ValueError on counts that cannot be.
    """

    expected: int
    completed: int
    error: int = 0
    skipped: int = 0

    def __post_init__(self) -> None:
        if min(self.expected, self.completed, self.error, self.skipped) < 0:
            raise ValueError(f"counts cannot be negative: {self}")
        if self.completed + self.error + self.skipped > self.expected:
            raise ValueError(f"more results than were expected: {self}")

    @property
    def missing(self) -> int:
        """Expected, but without a value."""
        return self.expected - self.completed


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over what completed, with its interval over what was expected.

    `value` and `stderr` are in the metric's own unit and None where the sample is too small (no value; fewer than two
    test cases). `low` and `high` bound the mean at `confidence` (0 to 1, two-sided); None is no bound on that side.
    `least` and `most` are the mean if all that is missing were at either end of the range. `warning` says why the
    interval may not show that a gate is met, `problem` why nothing could be computed.
    ValueError on NaN and infinities, which would slip through any comparison.
    """

    value: float | None
    stderr: float | None
    low: float | None
    high: float | None
    confidence: float
    method: Method
    counts: Counts
    least: float | None = None
    most: float | None = None
    warning: str | None = None
    problem: str | None = None
    sums: Sums | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        for number in (self.value, self.stderr, self.low, self.high, self.least, self.most):
            if number is not None and not math.isfinite(number):
                raise ValueError(f"an estimate is made of finite numbers, or None: {self}")

    @property
    def is_proportion(self) -> bool:
        """Whether it is the share of results that passed."""
        return self.method.startswith(("wilson", "clopper"))

    @property
    def point_range(self) -> tuple[float, float]:
        """The values that the mean would have with everything that is missing, from the least to the most."""
        if self.value is not None and not self.counts.missing:
            return self.value, self.value
        return -math.inf if self.least is None else self.least, math.inf if self.most is None else self.most

    @property
    def interval(self) -> tuple[float, float]:
        """`low` and `high`, an infinity where there is no bound."""
        return -math.inf if self.low is None else self.low, math.inf if self.high is None else self.high

    def at(self, confidence: float) -> Estimate:
        """The same at another confidence."""
        return self if self.sums is None or confidence == self.confidence else self.sums.estimate(confidence)


@dataclass(frozen=True, slots=True)
class Sums:
    """Summary of a metric's values, from which an interval of any confidence is computed.

    `total` is the sum of the values as shares of the scale; `case_means` is that of the cases' mean shares, `within`
    that of their variances as of coins. `warning` is of a metric without a scale.
    """

    scale: Scale | None
    kind: IntervalKind
    counts: Counts
    cases: int
    answered: int
    repeated: bool
    value: float
    stderr: float | None
    least: float | None
    most: float | None
    total: float
    case_means: float
    within: float
    warning: IntervalWarning | None

    def estimate(self, confidence: float) -> Estimate:
        """The estimate at this confidence."""
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
            self.warning.reason if self.warning else None,
            None,
            self,
        )

    @property
    def method(self) -> Method:
        """How the interval comes about."""
        if self.scale is None:
            return "t-clustered" if self.repeated else "t"
        if not self.scale.binary:
            return "bounded"
        if self.kind == "wilson":
            return "wilson-clustered" if self.repeated else "wilson"
        return "clopper-pearson-clustered" if self.repeated else "clopper-pearson"

    def with_cases(self, cases: int, confidence: float) -> tuple[float | None, float | None]:
        """The bounds that a complete sample of so many test cases like these would have."""
        if self.scale is None:
            return self._t_bounds(confidence, cases)
        share = self.total / self.counts.completed
        low, high = interval_of(self.kind, share, self._effective(confidence, cases / self.answered), confidence)
        return self.scale.value(low), self.scale.value(high)

    def _bounds(self, confidence: float) -> tuple[float | None, float | None]:
        missing, expected = self.counts.missing, self.counts.expected
        if self.scale is None:
            return (None, None) if missing else self._t_bounds(confidence, self.answered)
        # With results missing each case counts once: the missing ones might have differed from its other repeats.
        n = self.cases if missing else self._effective(confidence, 1.0)
        low, _ = interval_of(self.kind, self.total / expected, n, confidence)
        _, high = interval_of(self.kind, (self.total + missing) / expected, n, confidence)
        low, high = self.scale.value(low), self.scale.value(high)
        return min(low, self.value), max(high, self.value)

    def _t_bounds(self, confidence: float, cases: int) -> tuple[float | None, float | None]:
        if self.stderr is None:
            return None, None
        margin = t_quantile((1 + confidence) / 2, cases - 1) * self.stderr * math.sqrt(self.answered / cases)
        return _finite(self.value - margin), _finite(self.value + margin)

    def _effective(self, confidence: float, factor: float) -> float:
        """How many independent observations of 0 or 1 the values are worth, with `factor` times as many cases.

        Cases whose values are all at either end of the scale are worth one each; values in between, and repeats that
        scatter within their case, more: cases / (1 - W / T), with W the mean variance within a case, taken as that of
        a coin with the case's mean, and T the variance in all. Repeats of yes and no are at most worth their number.

        Agreement seen in a few cases is weak evidence, and none at all when every result is the same. So W and T are
        taken with z² cases more, half all 0 and half all 1, as in the centre of Wilson's interval. That also keeps the
        low bound from rising when a value falls.
        """
        z2 = z_score(confidence) ** 2
        cases = self.answered * factor
        centre = (self.case_means * factor + z2 / 2) / (cases + z2)
        within = self.within * factor / (cases + z2)
        worth = max(cases / (1 - within / (centre * (1 - centre))), cases)
        return min(worth, self.counts.completed * factor) if self.scale and self.scale.binary else worth


def mean_estimate(
    values_by_case: Sequence[Sequence[float]],
    counts: Counts,
    confidence: float = 0.95,
    scale: Scale | None = None,
    kind: IntervalKind = "wilson",
) -> Estimate:
    """Estimate the mean of a metric from its values: one inner sequence per test case, one value per repeat.

    A test case whose results are all missing belongs in it too, as an empty sequence: the number of sequences is the
    number of test cases in the sample. Every value weighs the same, `value` is their plain mean. `scale` is the range
    of the values, None if it is not known.

    Raises ValueError: a value that is not finite or not on the scale, `counts` that contradict the values, a
    confidence outside (0, 1).
    """
    z_score(confidence)
    values = [float(value) for value in chain.from_iterable(values_by_case)]
    _refuse_contradictions(values, len(values_by_case), counts, scale)
    if not values:
        return Estimate(None, None, None, None, confidence, "none", counts)
    answered = [case for case in values_by_case if case]
    stderr = clustered_stderr(answered)
    shares = [[scale.share(value) for value in case] for case in answered] if scale else []
    means = [math.fsum(case) / len(case) for case in shares]
    least, most = (
        (mean([*values, *repeat(end, counts.missing)]) for end in (scale.low, scale.high)) if scale else (None, None)
    )
    return Sums(
        scale=scale,
        kind=kind,
        counts=counts,
        cases=len(values_by_case),
        answered=len(answered),
        repeated=any(len(case) > 1 for case in answered),
        value=mean(values),
        stderr=stderr,
        least=least,
        most=most,
        total=math.fsum(chain.from_iterable(shares)),
        case_means=math.fsum(means),
        within=math.fsum(share * (1 - share) for share in means),
        warning=None if scale else t_interval_warning(answered, stderr),
    ).estimate(confidence)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _refuse_contradictions(values: list[float], cases: int, counts: Counts, scale: Scale | None) -> None:
    if not all(map(math.isfinite, values)):
        raise ValueError("a value is NaN or infinite: count it as an error instead")
    if scale is not None and not all(map(scale.holds, values)):
        raise ValueError(f"a value is not within {scale.low} and {scale.high}: count it as an error instead")
    if len(values) != counts.completed:
        raise ValueError(f"{len(values)} values, but {counts.completed} completed")
    if cases > counts.expected:
        raise ValueError(f"{cases} test cases, but only {counts.expected} results expected")
