"""The detection of a falling rate over runs: an alarm that seldom errs however long one looks, and a trend.

The alarm is a CUSUM of likelihood ratios, of a rate that has fallen by `DROP` against the agreed one. It is an
e-detector (Shin, Ramdas and Rinaldo 2024): while the rate is not below the agreed one, at least `RUNS` runs go by on
average until it is raised, whatever the number of cases.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist

from fepflow.statistics.proportions import wilson_interval

DROP = 0.06
"""The fall from the agreed rate that is to be noticed."""

RUNS = 365
ALARM = math.log(RUNS)

REFERENCE_RUNS = 10
"""Runs from which the rate is learned that later runs are held to."""

MOST_RATE = 0.995
"""Above it a single failure would be most of an alarm."""

FEWEST_OF_TREND = 8


@dataclass(frozen=True, slots=True)
class Trend:
    """Mann-Kendall: `s` counts pairs of runs that rise, less those that fall; `p` is two-sided."""

    s: int
    p: float


def fallen_rate(rate: float) -> float:
    """Return the rate that the alarm looks for, given the agreed `rate`."""
    return max(rate - DROP, rate / 2)


def cusum(counts: Sequence[tuple[float, float]], rate: float) -> list[float]:
    """Return the CUSUM after each run, from the (successes, n) of runs in time's order. An alarm is raised where it
    reaches `ALARM`; what comes after begins anew. Neither number need be whole. Raises ValueError for a rate outside
    (0, 1]."""
    if not 0 < rate <= 1:
        raise ValueError(f"a rate is above 0 and at most 1, not {rate}")
    rate = min(rate, MOST_RATE)
    fallen = fallen_rate(rate)
    success, failure = math.log(fallen / rate), math.log((1 - fallen) / (1 - rate))
    values: list[float] = []
    for successes, n in counts:
        before = values[-1] if values else 0.0
        before = 0.0 if before >= ALARM else max(before, 0.0)
        values.append(before + successes * success + (n - successes) * failure)
    return values


@dataclass(frozen=True, slots=True)
class RunShare:
    """The share of a run's good cases, with its standard error if it is known.

    The cases are in a number of clusters, or independent.
    """

    share: float
    cases: float
    clusters: float
    stderr: float | None = None


def effective_counts(runs: Sequence[RunShare]) -> list[tuple[float, float]]:
    """Return the (successes, n) of each run, where n is the number of independent cases that it is worth.

    That follows from how much the shares of clusters varied in all runs so far, compared with coins. A single run tells
    little, so it counts together with one more run whose clusters agree fully.
    """
    scatter, total, counts = 0.0, 0.0, []
    for number, run in enumerate(runs, 1):
        size = run.cases / run.clusters
        total += run.share
        coin = total / number * (1 - total / number)
        scatter += size * coin if run.stderr is None else run.cases * run.stderr**2
        design = (scatter + size * coin) / ((number + 1) * coin) if coin > 0 else size
        n = run.cases / min(max(design, 1.0), size)
        counts.append((run.share * n, n))
    return counts


def dispersions(counts: Sequence[tuple[float, float]]) -> list[float]:
    """Return after each run how much more runs vary than coins do, as a factor of the variance, at least 1.

    Each run is compared with the previous one, so that a fall does not count as variation (von Neumann 1941).
    """
    squares = passed = cases = 0.0
    factors, before = [], None
    for number, (successes, n) in enumerate(counts):
        passed, cases = passed + successes, cases + n
        if before is not None:
            squares += (successes / n - before[0] / before[1]) ** 2 / (1 / n + 1 / before[1])
        before, coin = (successes, n), passed / cases * (1 - passed / cases)
        factors.append(max(squares / number / coin, 1.0) if number and coin > 0 else 1.0)
    return factors


@dataclass(frozen=True, slots=True)
class Watch:
    """The evidence of a fall after each run, None before there is any. `rate` is the agreed rate of the last run.

    `learned` is true if the first runs have shown it, rather than the gate.
    """

    evidence: list[float | None]
    rate: float
    learned: bool


def watch(counts: Sequence[tuple[float, float]], minimum: float | None) -> Watch | None:
    """Return the evidence against the rate that the first ten runs have shown, or against the gate's `minimum`.

    The minimum counts until ten runs have shown that the rate is above it: an agent that falls from 0.97 to 0.91 never
    falls below a minimum of 0.9. None without either. If runs vary more than coins do, they count less accordingly.
    Raises ValueError for a minimum outside (0, 1].
    """
    if len(counts) >= REFERENCE_RUNS:
        factors = dispersions(counts)
        factors[:REFERENCE_RUNS] = [factors[REFERENCE_RUNS - 1]] * REFERENCE_RUNS
        counts = [(successes / by, n / by) for (successes, n), by in zip(counts, factors, strict=True)]
    learned = learned_rate(counts)
    if minimum is not None and (learned is None or learned <= minimum):
        return Watch([*cusum(counts, minimum)], minimum, learned=False)
    if learned is None:
        return None
    first = counts[:REFERENCE_RUNS]
    before: list[float | None] = [*cusum(first, minimum)] if minimum is not None else [None] * len(first)
    return Watch([*before, *cusum(counts[REFERENCE_RUNS:], learned)], learned, learned=True)


def learned_rate(counts: Sequence[tuple[float, float]]) -> float | None:
    """Return the low end of the 80 % Wilson interval of the first ten runs, as their mean is above the true rate every
    other time. None with fewer runs, or if they have nothing."""
    first = counts[:REFERENCE_RUNS]
    n = math.fsum(n for _, n in first)
    if len(first) < REFERENCE_RUNS or not n:
        return None
    low, _ = wilson_interval(min(math.fsum(successes for successes, _ in first) / n, 1.0), n, 0.8)
    return low or None


def mann_kendall(values: Sequence[float]) -> Trend | None:
    """Return the trend of values in time's order; None for fewer than `FEWEST_OF_TREND`.

    It uses the normal distribution, with the corrections for ties and for continuity.
    """
    n = len(values)
    if n < FEWEST_OF_TREND:
        return None
    s = sum((later > earlier) - (later < earlier) for earlier, later in combinations(values, 2))
    ties = sum(t * (t - 1) * (2 * t + 5) for t in Counter(values).values())
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18
    if not s or not variance:
        return Trend(s, 1.0)
    z = (abs(s) - 1) / math.sqrt(variance)
    return Trend(s, 2 * NormalDist().cdf(-z))
