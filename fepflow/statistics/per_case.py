"""What the repeats of one test case come to: pass@k, pass^k, the majority, the worst.

Each is known for sure only when no repeat is missing that could turn it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

from fepflow.statistics.means import CaseValue
from fepflow.statistics.scale import Scale


def pass_at_k(n: int, passed: int, k: int) -> float:
    """The chance that at least one of k results passes, drawn from n of which `passed` did (Chen et al. 2021).

    ValueError unless 1 <= k <= n.
    """
    _refuse(n, k)
    return 1 - comb(n - passed, k) / comb(n, k)


def pass_hat_k(n: int, passed: int, k: int) -> float:
    """The chance that all of k results pass, drawn from n of which `passed` did: pass^k (Yao et al. 2024)."""
    _refuse(n, k)
    return comb(passed, k) / comb(n, k)


def k_of_repeats(passes: Sequence[float], repeats: int, k: int, *, every: bool) -> CaseValue:
    """pass^k if `every` of the k has to pass, else pass@k, of a case with so many repeats; 1 is a pass, 0 a fail."""
    function = pass_hat_k if every else pass_at_k
    passed, missing = round(sum(passes)), repeats - len(passes)
    value = function(len(passes), passed, k) if len(passes) >= k else None
    return CaseValue(value, function(repeats, passed, k), function(repeats, passed + missing, k))


def majority(passes: Sequence[float], repeats: int) -> CaseValue:
    """1 if more than half of the repeats pass, else 0."""
    passed, missing = round(sum(passes)), repeats - len(passes)
    value = float(2 * passed > len(passes)) if passes else None
    return CaseValue(value, float(2 * passed > repeats), float(2 * (passed + missing) > repeats))


def worst(values: Sequence[float], repeats: int, scale: Scale) -> CaseValue:
    """The least of a case's values."""
    least = min(values, default=scale.high)
    return CaseValue(least if values else None, least if len(values) == repeats else scale.low, least)


def _refuse(n: int, k: int) -> None:
    if not 1 <= k <= n:
        raise ValueError(f"{k} of {n} results cannot be drawn")
