"""Metrics and gates, as the tests of verdicts need them."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from typing import Literal

from hypothesis import strategies as st

from fepflow.evalguard.models import Range, Thresholds
from fepflow.statistics.estimate import PROPORTION, Counts, Scale
from fepflow.statistics.means import mean_estimate
from fepflow.suite.models import Gate, Impact
from fepflow.verdict.gate import decide
from fepflow.verdict.verdict import CheckTotals, MetricEstimate, Mode, Outcome, Verdict

RANKS: tuple[Outcome, ...] = ("pass", "inconclusive", "fail")

HIGHER_IS_BETTER: list[Range] = [
    Range(impact="severe", max=0.5, interpretation="guesses"),
    Range(impact="moderate", min=0.5, max=0.8, interpretation="errs at times"),
    Range(impact="low", min=0.8, interpretation="mostly right"),
]
LOWER_IS_BETTER: list[Range] = [
    Range(impact="no_measurable", max=0.2),
    Range(impact="low", min=0.2, max=0.4),
    Range(impact="high", min=0.4),
]
GRID = st.sampled_from([0.0, 0.25, 0.5, 0.75, 0.8, 0.9, 0.95])


def proportion(passed: int, failed: int = 0, error: int = 0, name: str = "acc") -> MetricEstimate:
    values = [[1.0]] * passed + [[0.0]] * failed + [[]] * error
    counts = Counts(len(values), passed + failed, error)
    return MetricEstimate(name, "contains", mean_estimate(values, counts, scale=PROPORTION))


def mean(values: Sequence[float], error: int = 0, name: str = "acc", scale: Scale | None = None) -> MetricEstimate:
    cases = [[value] for value in values] + [[]] * error
    estimate = mean_estimate(cases, Counts(len(cases), len(values), error), scale=scale)
    return MetricEstimate(name, "similarity", estimate, of_passes=False)


def thresholds(**ranges: list[Range]) -> Thresholds:
    return Thresholds(task="sums", thresholds=ranges)


def by_impact(
    *metrics: MetricEstimate,
    ranges: list[Range] = HIGHER_IS_BETTER,
    max_impact: Impact | None = None,
    mode: Mode = "interval",
) -> Verdict:
    gate = Gate(max_impact=max_impact, verdict=mode) if max_impact or mode == "point" else None
    return decide(metrics, gate, thresholds(acc=ranges), [])


def by_minimum(
    *metrics: MetricEstimate, mode: Mode = "interval", fail: Literal["interval", "value"] = "interval", **minima: float
) -> Verdict:
    return decide(metrics, Gate(min=minima, fail=fail, verdict=mode), None, [])


def checked(
    expected: int = 0,
    passed: int = 0,
    failed: int = 0,
    error: int = 0,
    skipped: int = 0,
    unjudged: int = 0,
    name: str = "c",
) -> CheckTotals:
    """A check whose results are all there, unless more of them were `expected`."""
    there = passed + failed + error + skipped + unjudged
    return CheckTotals(name, expected or there, passed, failed, error, skipped, unjudged)


def chance(k: int, n: int, p: float) -> float:
    """Of k passes of n."""
    return math.exp(
        math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * math.log(p) + (n - k) * math.log(1 - p)
    )


@cache
def outcomes(n: int, fail: Literal["interval", "value"]) -> dict[Outcome, range]:
    """Which numbers of passes of n come out how, at a minimum of 0.9; more of them never make it worse."""

    def badness(k: int) -> int:
        return -rank(by_minimum(proportion(k, n - k), fail=fail, acc=0.9))

    ks = range(n + 1)
    failing, open_yet = bisect_right(ks, -2, key=badness), bisect_right(ks, -1, key=badness)
    return {"fail": ks[:failing], "inconclusive": ks[failing:open_yet], "pass": ks[open_yet:]}


def rank(verdict: Verdict) -> int:
    return RANKS.index(verdict.outcome)
