"""Tests of proportions, and the correction for several of them."""

from __future__ import annotations

from collections.abc import Sequence

from fepflow.statistics.beta import beta_cdf


def mid_p_below(successes: float, n: float, rate: float) -> float:
    """The one-sided mid-p-value of so few successes in n observations, at a true rate that is no smaller.

    The chance of fewer, and half that of as many (Lancaster 1961). Neither number need be whole, as effective numbers
    are not. ValueError for n <= 0.
    """
    if n <= 0:
        raise ValueError("there is nothing to test")
    return (_at_most(successes, n, rate) + _at_most(successes - 1, n, rate)) / 2


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values adjusted for their number by Holm's step-down method (1979), in their order."""
    adjusted, least = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min((len(p_values) - rank) * p_values[index], 1.0))
        adjusted[index] = least
    return adjusted


def _at_most(successes: float, n: float, rate: float) -> float:
    if successes < 0:
        return 0.0
    return 1.0 if successes >= n else beta_cdf(1 - rate, n - successes, successes + 1)
