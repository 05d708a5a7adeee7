"""Quantiles of Student's t distribution, for whole degrees of freedom."""

from __future__ import annotations

import math
from statistics import NormalDist

_EXACT_UP_TO = 200


def t_quantile(probability: float, df: int) -> float:
    """The t with `probability` (0.5 to 1, exclusive) of the distribution below it, at `df` >= 1 degrees of freedom.

    Solved from the exact distribution up to 200 degrees of freedom; beyond, the normal quantile with three correction
    terms, whose error is below 1e-6 for any confidence up to 99.9 %.
    """
    if not 0.5 <= probability < 1:
        raise ValueError(f"a probability from 0.5 to below 1 was expected, not {probability}")
    if df < 1:
        raise ValueError(f"at least one degree of freedom is needed, not {df}")
    if df > _EXACT_UP_TO:
        return _expanded_quantile(probability, df)
    low, high = 0.0, math.pi / 2
    for _ in range(100):
        angle = (low + high) / 2
        if _central_probability(angle, df) < 2 * probability - 1:
            low = angle
        else:
            high = angle
    return math.sqrt(df) * math.tan((low + high) / 2)


def _central_probability(angle: float, df: int) -> float:
    """P(|T| < t) with t = sqrt(df) * tan(angle): a finite series (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = df % 2
    term = cosine if odd else 1.0
    total = term if df > 1 else 0.0
    for k in range(2 + odd, df - 1, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def _expanded_quantile(probability: float, df: int) -> float:
    """The expansion about the normal quantile in powers of 1 / df (Abramowitz and Stegun, 26.7.5)."""
    z = NormalDist().inv_cdf(probability)
    return (
        z
        + (z**3 + z) / (4 * df)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * df**3)
    )
