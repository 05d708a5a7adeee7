"""The number of matched test cases at which a comparison of two equally good versions shows "not worse", and the
regression that a comparison would show.

The formula for two proportions of the same cases is too hopeful for Tango's interval: of 314 pairs, which it says give
80 % power, 76 % do. So power is that of the rule itself: exactly for yes or no without repeats, where all that can come
out is counted, else by simulation with differences as large as those seen.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from random import Random
from statistics import NormalDist

from fepflow.statistics.distributions import beta_cdf
from fepflow.statistics.estimate import Estimate, Scale
from fepflow.statistics.means import UnitSums
from fepflow.statistics.paired import tango_score
from fepflow.statistics.proportions import wilson_interval, z_score

MOST_CASES = 20_000

SIMULATIONS = 1_000

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
    cases: int, margin: float, differences: Sequence[float], width: float = 1.0, confidence: float = 0.95
) -> float:
    """Return the same for repeats, and for scores in a range of this width: differences are drawn from those seen, with
    either sign equally often, and their mean has the interval that `paired_estimate` gives it."""
    scale = Scale(-width, width)
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
        if many > MOST_CASES:
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


def detectable_regression(
    estimate: Estimate, margin: float = 0.0, power: float = 0.8, *, less_is_better: bool = False
) -> float | None:
    """Return the least regression that such a comparison shows with this power, from the `estimate` of a difference.

    A comparison shows one if its whole interval is beyond the margin: the value has to be as far away as the interval
    reaches towards it, and z_beta standard errors more, to be so far away as often as wanted. None without an interval.
    """
    toward = estimate.low if less_is_better else estimate.high
    if estimate.value is None or toward is None:
        return None
    reach = abs(toward - estimate.value)
    return margin + reach * (1 + NormalDist().inv_cdf(power) / z_score(estimate.confidence))


def _most_worse(differing: int, cases: int, margin: float, confidence: float) -> int:
    """Return how many of the cases that differ may be worse if the interval is to stay within the margin; -1 if not
    even none."""

    z, least = z_score(confidence), max(-margin, -1.0)

    def is_too_many(worse: int) -> bool:
        return tango_score(differing - worse, worse, cases, least) <= z

    return bisect_left(range(differing + 1), True, key=is_too_many) - 1


def _binomial(k: int, n: int, rate: float) -> float:
    if rate <= 0 or rate >= 1:
        return float(k == (n if rate >= 1 else 0))
    log = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(log + k * math.log(rate) + (n - k) * math.log1p(-rate))
