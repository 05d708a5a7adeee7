"""What a sample says about a metric: a mean, its interval, and how much of the sample is there.

Two kinds of metric are told apart by their values. Values that are all 0 or 1 are a *proportion* and get Wilson's
score interval; anything else is a *mean* and gets a t interval. Repeats of one test case are not independent
observations: test cases are what was sampled, so both intervals are clustered by test case.

Nothing that was expected leaves the denominator. What is missing (an error, a skip, a check that never ran) is
assumed at its worst for either bound of a proportion, and leaves a mean without bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import NormalDist
from typing import Literal

from fepflow.statistics.student import t_quantile

Method = Literal["wilson", "wilson-clustered", "t", "t-clustered", "none"]
"""How an interval came about.

`wilson` is the score interval of a proportion, `t` Student's interval of a mean; `-clustered` says that test cases
were repeated and the interval allows for it. `none`: there was not a single value.
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

    `value` and `stderr` are in the metric's own unit and None where the sample cannot tell (no value; fewer than two
    test cases). `low` and `high` bound the mean at `confidence` (0 to 1, two-sided); None is no bound on that side.
    ValueError on NaN and infinities, which would slip through any comparison.
    """

    value: float | None
    stderr: float | None
    low: float | None
    high: float | None
    confidence: float
    method: Method
    counts: Counts

    def __post_init__(self) -> None:
        for number in (self.value, self.stderr, self.low, self.high):
            if number is not None and not math.isfinite(number):
                raise ValueError(f"an estimate is made of finite numbers, or None: {self}")


def mean_estimate(values_by_case: Sequence[Sequence[float]], counts: Counts, confidence: float = 0.95) -> Estimate:
    """Estimate the mean of a metric from its values: one inner sequence per test case, one value per repeat.

    A test case whose results are all missing belongs in it too, as an empty sequence: the number of sequences is the
    number of test cases in the sample. Every value weighs the same, `value` is their plain mean.

    Raises ValueError: a value that is not finite, `counts` that contradict the values, a confidence outside (0, 1).
    """
    z_score(confidence)
    values = [float(value) for value in chain.from_iterable(values_by_case)]
    _refuse_contradictions(values, len(values_by_case), counts)
    if not values:
        return Estimate(None, None, None, None, confidence, "none", counts)
    mean = math.fsum(values) / len(values)
    stderr = _clustered_stderr(values_by_case, mean)
    repeated = any(len(case) > 1 for case in values_by_case)
    method: Method
    if all(value in (0.0, 1.0) for value in values):
        method = "wilson-clustered" if repeated else "wilson"
        low, high = _proportion_bounds(values_by_case, counts, confidence)
        return Estimate(mean, stderr, low, high, confidence, method, counts)
    method = "t-clustered" if repeated else "t"
    if stderr is None or counts.missing:
        return Estimate(mean, stderr, None, None, confidence, method, counts)
    cases = sum(1 for case in values_by_case if case)
    margin = t_quantile((1 + confidence) / 2, cases - 1) * stderr
    return Estimate(mean, stderr, mean - margin, mean + margin, confidence, method, counts)


def wilson_interval(proportion: float, n: float, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a `proportion` seen in `n` observations; `n` need not be whole.

    Holds `proportion` and lies within 0 and 1, also where a normal interval would have no width (0 of n, n of n).
    """
    z2 = z_score(confidence) ** 2
    centre = (proportion + z2 / (2 * n)) / (1 + z2 / n)
    margin = math.sqrt(z2 * proportion * (1 - proportion) / n + (z2 / (2 * n)) ** 2) / (1 + z2 / n)
    # Rounding must not push a bound over the value that it bounds: exactly 0 and 1 matter to exclusive thresholds.
    low = 0.0 if proportion == 0 else min(max(centre - margin, 0.0), proportion)
    high = 1.0 if proportion == 1 else max(min(centre + margin, 1.0), proportion)
    return low, high


def minimum_sample(target: float, confidence: float = 0.95) -> int:
    """The smallest n for which n successes of n put the low bound at `target` or above: 35 for 0.9 at 95 %.

    Raises ValueError for a target of 1 or more: no finite sample proves that.
    """
    if not target < 1:
        raise ValueError(f"no sample can show a proportion of {target:g} or more")
    target = max(target, 0.0)
    n = max(math.floor(target * z_score(confidence) ** 2 / (1 - target)), 1)
    while wilson_interval(1.0, n, confidence)[0] < target:
        n += 1
    return n


def z_score(confidence: float) -> float:
    """The standard normal quantile of a two-sided `confidence` in (0, 1): 1.96 for 0.95. ValueError outside."""
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence is between 0 and 1, for example 0.95; not {confidence}")
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _refuse_contradictions(values: list[float], cases: int, counts: Counts) -> None:
    if not all(map(math.isfinite, values)):
        raise ValueError("a value is NaN or infinite: count it as an error instead")
    if len(values) != counts.completed:
        raise ValueError(f"{len(values)} values, but {counts.completed} completed")
    if cases > counts.expected:
        raise ValueError(f"{cases} test cases, but only {counts.expected} results expected")


def _clustered_stderr(values_by_case: Sequence[Sequence[float]], mean: float) -> float | None:
    """The standard error of the mean, clustered by test case; with one value a case the usual s / sqrt(n).

    None for a single test case: between what was never compared, there is no spread to see.
    """
    sums_of_residuals = [math.fsum(value - mean for value in case) for case in values_by_case if case]
    cases, n = len(sums_of_residuals), sum(len(case) for case in values_by_case)
    if cases < 2:
        return None
    return math.sqrt(cases / (cases - 1) * math.fsum(total**2 for total in sums_of_residuals)) / n


def _proportion_bounds(
    values_by_case: Sequence[Sequence[float]], counts: Counts, confidence: float
) -> tuple[float, float]:
    """Wilson's interval over all that was expected: the low bound takes every missing result for 0, the high for 1."""
    successes = sum(map(sum, values_by_case))
    n = _effective_sample(values_by_case, counts, confidence)
    low, _ = wilson_interval(successes / counts.expected, n, confidence)
    _, high = wilson_interval((successes + counts.missing) / counts.expected, n, confidence)
    return low, high


def _effective_sample(values_by_case: Sequence[Sequence[float]], counts: Counts, confidence: float) -> float:
    """How many independent observations of a proportion the repeats are worth: between the test cases and the values.

    Repeats that always agree within their case add nothing, repeats that scatter as freely as the cases do add
    everything: cases / (1 - W / T), with W the mean variance within a case and T the variance in all.

    Agreement seen in a few cases is weak evidence, and none at all when every result is the same. So W and T are
    taken with z² cases more, half all 0 and half all 1, as in the centre of Wilson's interval. That also keeps the
    low bound from rising when a result turns from 1 to 0. With results missing, each case counts once: what is gone
    might have been what told its repeats apart.
    """
    cases = len(values_by_case)
    if counts.missing:
        return cases
    z2 = z_score(confidence) ** 2
    means = [sum(case) / len(case) for case in values_by_case]
    centre = (math.fsum(means) + z2 / 2) / (cases + z2)
    within = math.fsum(mean * (1 - mean) for mean in means) / (cases + z2)
    return min(max(cases / (1 - within / (centre * (1 - centre))), cases), counts.completed)
