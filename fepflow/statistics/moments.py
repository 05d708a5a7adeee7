"""Mean, standard error and skewness, of numbers of whatever size: powers of two are taken out first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import chain


def mean(values: Sequence[float]) -> float:
    """The mean of at least one number."""
    exponent = _exponent(values)
    scaled = math.fsum(math.ldexp(value, -exponent) for value in values) / len(values)
    return min(max(math.ldexp(scaled, exponent), min(values)), max(values))


def clustered_stderr(values_by_case: Sequence[Sequence[float]]) -> float | None:
    """The standard error of the mean, clustered by test case; with one value a case the usual s / sqrt(n).

    None for a single test case: between what was never compared, there is no spread to see.
    """
    exponent = _exponent(chain.from_iterable(values_by_case))
    scaled = [[math.ldexp(value, -exponent) for value in case] for case in values_by_case if case]
    cases, n = len(scaled), sum(map(len, scaled))
    if cases < 2:
        return None
    centre = math.fsum(chain.from_iterable(scaled)) / n
    residuals = [math.fsum(value - centre for value in case) for case in scaled]
    return _unscaled(math.sqrt(cases / (cases - 1) * math.fsum(sum**2 for sum in residuals)) / n, exponent)


def t_interval_warning(answered: Sequence[Sequence[float]], stderr: float | None) -> str | None:
    """Why a t interval may not show that a gate is met, if so: it holds for normal means only.

    Cochran's rule says from how many skewed values on they are.
    """
    means = list(map(mean, answered))
    if stderr is None:
        return None
    if stderr <= 1e-12 * max(map(abs, means)):
        return f"its {len(means)} values are all equal, which is no proof that others would be"
    exponent = _exponent(means)
    scaled = [math.ldexp(each, -exponent) for each in means]
    centre = math.fsum(scaled) / len(scaled)
    square, cube = (math.fsum((each - centre) ** power for each in scaled) / len(scaled) for power in (2, 3))
    needed = 25 * cube**2 / square**3 if square**3 else math.inf
    if len(means) >= needed:
        return None
    return f"its values are so skewed that the interval takes {needed:.0f} cases to be trusted"


def _exponent(values: Iterable[float]) -> int:
    return math.frexp(max(map(abs, values), default=0.0))[1]


def _unscaled(value: float, exponent: int) -> float | None:
    try:
        return math.ldexp(value, exponent)
    except OverflowError:
        return None
