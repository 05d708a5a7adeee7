"""The number of test cases at which a gate passes an agent that is good enough, with a stated power."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from random import Random
from statistics import NormalDist

from fepflow.statistics.distributions import beta_cdf
from fepflow.statistics.means import UnitSums
from fepflow.statistics.proportions import IntervalKind, interval_of, kind_for, z_score

MOST_CASES = 100_000

SIMULATIONS = 1_000


def power(n: int, minimum: float, expected: float, confidence: float = 0.95, kind: IntervalKind | None = None) -> float:
    """Return the chance that n test cases show a minimum, if this share of answers passes."""
    needed = _passes_needed(n, minimum, confidence, kind)
    if needed is None:
        return 0.0
    return beta_cdf(expected, needed, n - needed + 1) if needed else 1.0


def cases_for_power(
    minimum: float, expected: float, wanted: float, confidence: float = 0.95, kind: IntervalKind | None = None
) -> int | None:
    """Return the smallest number of test cases with at least the `wanted` power; None if it is too large.

    Passes are whole, so power falls again with a few more cases; the number is the first from which it stays. Raises
    ValueError unless 0 <= minimum < expected <= 1 and 0 < wanted < 1.
    """
    if not (0 <= minimum < expected <= 1 and 0 < wanted < 1):
        raise ValueError(f"no number of cases shows {minimum:g} where {expected:g} is expected, with power {wanted:g}")
    if minimum == 0:
        return 1
    n = max(_approximate(minimum, expected, wanted, confidence) // 2, 1)
    first = n
    while n <= MOST_CASES:
        if power(n, minimum, expected, confidence, kind) < wanted:
            first = n + 1
        elif n >= first + max(30, first // 4):
            return first
        n += 1
    return None


def cases_with_repeats(
    minimum: float,
    expected: float,
    wanted: float,
    repeats: int,
    correlation: float,
    confidence: float = 0.95,
    kind: IntervalKind | None = None,
) -> int | None:
    """Return the number of cases with repeats, whose passes have an intraclass `correlation` from 0 to 1; by
    simulation.

    It is right within about 5 %: each number of cases is tried a thousand times, always with the same seed.
    """
    once = cases_for_power(minimum, expected, wanted, confidence, kind)
    if once is None or repeats == 1 or correlation >= 1:
        return once

    def suffices(cases: int) -> bool:
        return simulated_power(cases, minimum, expected, repeats, correlation, confidence, kind) >= wanted

    many = max(round(once * (1 + (repeats - 1) * correlation) / repeats), 1)
    few = many
    while not suffices(many):
        few, many = many, math.ceil(many * 1.15) + 1
    while few > 1 and suffices(few):
        few, many = math.floor(few / 1.15), few
    while many - few > max(many // 50, 1):
        middle = (few + many) // 2
        few, many = (few, middle) if suffices(middle) else (middle, many)
    return many


def simulated_power(
    cases: int,
    minimum: float,
    expected: float,
    repeats: int,
    correlation: float,
    confidence: float = 0.95,
    kind: IntervalKind | None = None,
) -> float:
    """Return the chance that this many cases, repeated, show a minimum; cases' rates follow a beta distribution."""
    rng, shown = Random(f"{cases} {repeats}"), 0  # noqa: S311  # for a simulation
    for _ in range(SIMULATIONS):
        passes = [_passes_of_a_case(rng, expected, repeats, correlation) for _ in range(cases)]
        shown += _low(passes, repeats, minimum, confidence, kind) >= minimum
    return shown / SIMULATIONS


def intraclass_correlation(values_by_case: Sequence[Sequence[float]]) -> float | None:
    """Return how far repeats of a case agree, from 0 (no more than different cases) to 1, by analysis of variance.

    None if it cannot be told: fewer than two cases with two values, or all values equal.
    """
    cases = [case for case in values_by_case if case]
    n, k = sum(map(len, cases)), len(cases)
    if k < 2 or n <= k:
        return None
    means = [math.fsum(case) / len(case) for case in cases]
    grand = math.fsum(map(math.fsum, cases)) / n
    between = math.fsum(len(case) * (mean - grand) ** 2 for case, mean in zip(cases, means, strict=True)) / (k - 1)
    squares = math.fsum((value - mean) ** 2 for case, mean in zip(cases, means, strict=True) for value in case)
    within = squares / (n - k)
    usual = (n - math.fsum(len(case) ** 2 for case in cases) / n) / (k - 1)
    if between + within == 0:
        return None
    return min(max((between - within) / (between + (usual - 1) * within), 0.0), 1.0)


def _passes_needed(n: int, minimum: float, confidence: float, kind: IntervalKind | None) -> int | None:
    """Return the smallest number of passes of n whose interval shows the minimum, or None."""
    kind = kind_for(kind, minimum, n, confidence)

    def shows_it(passes: int) -> bool:
        if kind == "clopper-pearson" and passes:  # the same as by its low bound, without searching for that
            return beta_cdf(minimum, passes, n - passes + 1) <= (1 - confidence) / 2
        return interval_of(kind, passes / n, n, confidence)[0] >= minimum

    if not shows_it(n):
        return None
    return bisect_left(range(n), True, lo=max(math.floor(minimum * n), 0), key=shows_it)


def _approximate(minimum: float, expected: float, wanted: float, confidence: float) -> int:
    """Return the approximate number of test cases, by the normal distribution."""
    z, z_power = z_score(confidence), NormalDist().inv_cdf(wanted)
    spread = z * math.sqrt(minimum * (1 - minimum)) + max(z_power, 0.0) * math.sqrt(expected * (1 - expected))
    return math.floor((spread / (expected - minimum)) ** 2)


def _passes_of_a_case(rng: Random, expected: float, repeats: int, correlation: float) -> int:
    if correlation >= 1:
        return repeats * (rng.random() < expected)
    rate = expected
    if correlation > 0 and 0 < expected < 1:
        size = 1 / correlation - 1
        rate = rng.betavariate(expected * size, (1 - expected) * size)
    return sum(rng.random() < rate for _ in range(repeats))


def _low(passes: Sequence[int], repeats: int, minimum: float, confidence: float, kind: IntervalKind | None) -> float:
    """Return the low bound that a gate's `mean_estimate` has for these results, none of which is missing."""
    n = len(passes) * repeats
    units = UnitSums.of([count / repeats for count in passes], [repeats] * len(passes))
    worth = min(units.observations(confidence), n)
    return interval_of(kind_for(kind, minimum, worth, confidence), sum(passes) / n, worth, confidence)[0]
