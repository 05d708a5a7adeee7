"""The number of test cases at which a gate passes an agent that is good enough, with a stated power.

For a gate on a regression it is the number of matched cases at which a comparison of two equally good versions shows
"not worse". The formula for two proportions of the same cases is too hopeful for Tango's interval: of 314 pairs, which
it says give 80 % power, 76 % do. So power is that of the rule itself: exactly for yes or no without repeats, where all
that can come out is counted, else by simulation with differences as large as those seen.

The parts of a result's variance say what more calls would tell: another case brings a new draw of every part, another
repeat only one of its own part.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import NormalDist

from fepflow.statistics.estimate import Estimate, Scale
from fepflow.statistics.means import UnitSums, mean
from fepflow.statistics.paired import tango_score
from fepflow.statistics.proportions import IntervalKind, beta_cdf, interval_of, kind_for, wilson_interval, z_score

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


MOST_PAIRS = 20_000

STEPS = 32
"""Numbers of cases that are tried, at most, between one that is too small and one that suffices."""

_NEGLIGIBLE = 1e-9


def approximate_pairs(discordant: float, margin: float, power: float, confidence: float = 0.95) -> int:
    """Return the number of pairs by the usual formula, (z_alpha + z_beta)² d / margin², for versions that are equally
    good."""
    z = z_score(confidence) + NormalDist().inv_cdf(power)
    return math.ceil(z**2 * discordant / margin**2 - 1e-9)


def power_of_pairs(cases: int, margin: float, discordant: float, confidence: float = 0.95) -> float:
    """Return the chance that this many cases, asked once, show "not worse by more than the margin" if both are equally
    good.

    `discordant` is the share of cases whose results differ, each way equally often. Sums over how many differ, and
    which way.
    """
    shown = 0.0
    for differing in range(cases + 1):
        probability = _binomial(differing, cases, discordant)
        if probability < _NEGLIGIBLE:
            if differing > discordant * cases:
                break
            continue
        most = _most_worse(differing, cases, margin, confidence)
        if most >= differing:
            shown += probability
        elif most >= 0:
            shown += probability * beta_cdf(0.5, differing - most, most + 1)
    return min(shown, 1.0)


def simulated_power_of_pairs(
    cases: int, margin: float, differences: Sequence[float], confidence: float = 0.95
) -> float:
    """Return the same for repeats: differences are drawn from those seen, with either sign equally often, and their
    mean has the interval that `paired_estimate` gives it."""
    scale = Scale(-1.0, 1.0)
    shares = [scale.share(sign * difference) for difference in differences for sign in (-1, 1)]
    rng, shown = Random(f"{cases} {margin}"), 0  # noqa: S311  # for a simulation
    for _ in range(SIMULATIONS):
        drawn = rng.choices(shares, k=cases)
        total, within = math.fsum(drawn), math.fsum(share * (1 - share) for share in drawn)
        worth = UnitSums(cases, total, 0.0, within).observations(confidence)
        shown += scale.value(wilson_interval(total / cases, worth, confidence)[0]) >= -margin
    return shown / SIMULATIONS


def pairs_for_power(power_of: Callable[[int], float], wanted: float, start: int) -> int | None:
    """Return the least number of cases whose power, by `power_of`, is at least the `wanted`, searched from `start`;
    None if it takes too many."""
    few, many = 0, max(start, 1)
    while power_of(many) < wanted:
        few, many = many, math.ceil(many * 1.25) + 1
        if many > MOST_PAIRS:
            return None
    while few == 0 and many > 1:
        lower = math.floor(many / 1.25)
        if power_of(lower) < wanted:
            few = lower
        else:
            many = lower
    step = max((many - few) // STEPS, 1)
    tried = range(few, many + 1, step)
    cases = tried[min(bisect_left(tried, wanted, key=power_of), len(tried) - 1)]
    return cases if power_of(cases) >= wanted else many


def detectable_regression(estimate: Estimate, margin: float = 0.0, *, less_is_better: bool = False) -> float | None:
    """Return the least regression that four of five such comparisons show, from the `estimate` of a difference.

    A comparison shows one if its whole interval is beyond the margin: the value has to be as far away as the interval
    reaches towards it, and 0.84 standard errors more, to be so far away in four of five. None without an interval.
    """
    toward = estimate.low if less_is_better else estimate.high
    if estimate.value is None or toward is None:
        return None
    reach = abs(toward - estimate.value)
    return margin + reach * (1 + NormalDist().inv_cdf(0.8) / z_score(estimate.confidence))


def _most_worse(differing: int, cases: int, margin: float, confidence: float) -> int:
    """Return how many of the cases that differ may be worse if the interval is to stay within the margin; -1 if none
    may be."""
    if margin <= 0 and not differing:
        return -1
    z, least = z_score(confidence), max(-margin, -1.0)

    def is_too_many(worse: int) -> bool:
        return tango_score(differing - worse, worse, cases, least) <= z

    return bisect_left(range(differing + 1), True, key=is_too_many) - 1


def _binomial(k: int, n: int, rate: float) -> float:
    if rate <= 0 or rate >= 1:
        return float(k == (n if rate >= 1 else 0))
    log = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(log + k * math.log(rate) + (n - k) * math.log1p(-rate))


@dataclass(frozen=True, slots=True)
class VarianceParts:
    """The parts of the variance of one result; `run` is None for a single run. `repeat` is all that differs between
    answers to the same case in a run. `judge` is the part of it by which samples of the judge differ about one
    answer; None if it was asked once."""

    case: float
    run: float | None
    repeat: float
    judge: float | None

    @property
    def total(self) -> float:
        """The variance of one result."""
        return self.case + (self.run or 0.0) + self.repeat

    def narrowing(self, repeats: int) -> dict[str, float]:
        """Return the part by which an interval over cases with this number of repeats narrows with twice as many
        cases, repeats, or samples of the judge."""
        now = self.case + self.repeat / repeats
        then = {"cases": now / 2, "repeats": self.case + self.repeat / (2 * repeats)}
        if self.judge is not None:
            then["judge_samples"] = now - self.judge / 2 / repeats
        return {name: 1 - math.sqrt(variance / now) if now else 0.0 for name, variance in then.items()}


def variance_parts(
    runs: Sequence[Sequence[Sequence[float]]], votes: Sequence[Sequence[float]] = ()
) -> VarianceParts | None:
    """Return the parts of the variance of results: one sequence a run, in it one a case, in it the repeats' values.

    All runs have the same cases in the same order, and as many repeats. `votes` are a judge's samples, 0 or 1, for each
    of some answers. None if neither runs nor repeats are several, or there are fewer than two cases.
    """
    n_runs, n_cases = len(runs), len(runs[0]) if runs else 0
    repeats = len(runs[0][0]) if n_cases else 0
    if n_cases < 2 or (n_runs < 2 and repeats < 2):
        return None
    cells = [[mean(values) for values in run] for run in runs]
    of_cases = [mean(case) for case in zip(*cells, strict=True)]
    of_runs, overall = [mean(run) for run in cells], mean(of_cases)
    within = 0.0
    if repeats > 1:
        squares = ((value - cell) ** 2 for run, means in zip(runs, cells, strict=True)
                   for values, cell in zip(run, means, strict=True) for value in values)  # fmt: skip
        within = math.fsum(squares) / (n_runs * n_cases * (repeats - 1))
    between_cases = n_runs * math.fsum((mean_of_group - overall) ** 2 for mean_of_group in of_cases) / (n_cases - 1)
    between_runs, of_cell = None, within / repeats
    if n_runs > 1:
        residuals = (
            (cell - case - run + overall) ** 2
            for row, run in zip(cells, of_runs, strict=True)
            for cell, case in zip(row, of_cases, strict=True)
        )
        of_cell = math.fsum(residuals) / ((n_cases - 1) * (n_runs - 1))
        scatter = n_cases * math.fsum((mean_of_group - overall) ** 2 for mean_of_group in of_runs) / (n_runs - 1)
        between_runs = max((scatter - of_cell) / n_cases, 0.0)
    repeat = of_cell + within * (1 - 1 / repeats)
    several = [case for case in votes if len(case) > 1]
    judge = None
    if several:
        # A result is the majority of the samples: what they differ by is taken to be as that of their mean.
        differing = [mean(case) * (1 - mean(case)) / (len(case) - 1) for case in several]
        judge = min(mean(differing), repeat)
    return VarianceParts(max((between_cases - of_cell) / n_runs, 0.0), between_runs, repeat, judge)
