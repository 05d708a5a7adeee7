"""Shares of small groups, drawn towards that of all groups as far as their differences may be chance.

Of 30 groups of 10 cases each, the best and the worst are mostly lucky and unlucky. The variance between groups that
chance does not explain (DerSimonian and Laird 1986) says how much of each difference to believe (empirical Bayes).
For reading only: nothing is judged by it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

FEWEST_GROUPS = 3
"""The least number of groups: the variance between fewer says too little."""


def shrunk_shares(shares: Sequence[float], sizes: Sequence[float]) -> list[float] | None:
    """Return the shares, from 0 to 1, drawn towards their mean; `sizes` are how many observations of 0 or 1 each rests
    on. None for fewer than `FEWEST_GROUPS`."""
    if len(shares) < FEWEST_GROUPS:
        return None
    overall = math.fsum(share * size for share, size in zip(shares, sizes, strict=True)) / math.fsum(sizes)
    chance = overall * (1 - overall)
    if chance <= 0:
        return list(shares)
    weights = [size / chance for size in sizes]
    total = math.fsum(weights)
    scatter = math.fsum(weight * (share - overall) ** 2 for weight, share in zip(weights, shares, strict=True))
    usual = total - math.fsum(weight**2 for weight in weights) / total
    between = max((scatter - (len(shares) - 1)) / usual, 0.0)
    believed = [between / (between + 1 / weight) for weight in weights]
    weights = [1 / (between + 1 / weight) for weight in weights]
    centre = math.fsum(weight * share for weight, share in zip(weights, shares, strict=True)) / math.fsum(weights)
    return [centre + part * (share - centre) for part, share in zip(believed, shares, strict=True)]
