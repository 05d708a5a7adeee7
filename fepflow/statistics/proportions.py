"""Intervals of a proportion (Wilson's, and the exact one of Clopper and Pearson), tests, and Holm's correction.

They rest on the beta distribution. So does Student's t distribution, which means of values without a range need.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Literal


def boundary(holds: Callable[[float], bool], inside: float, outside: float, steps: int = 50) -> float:
    """Return the number, found by bisection, up to which something `holds` on the way from `inside` to `outside`."""
    for _ in range(steps):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside


def beta_quantile(probability: float, a: float, b: float) -> float:
    """Return the x with `probability` of the beta distribution below it.

    Newton's method, with bisection if a step would leave the range.
    """
    low, high, x = 0.0, 1.0, a / (a + b)
    log_norm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    for _ in range(200):
        if not 0 < x < 1:  # so close to an end that it cannot be told from it
            break
        excess = beta_cdf(x, a, b) - probability
        low, high = (x, high) if excess < 0 else (low, x)
        density = math.exp(log_norm + (a - 1) * math.log(x) + (b - 1) * math.log1p(-x))
        before, x = x, x - excess / density if density else low
        x = x if low < x < high else (low + high) / 2
        if abs(x - before) <= 1e-15 * x:
            break
    return x


def beta_cdf(x: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function, by its continued fraction (Abramowitz and Stegun, 26.5.8).

    Of k passes in n: P(at least k) at a rate p is `beta_cdf(p, k, n - k + 1)`. Neither k nor n need be whole.
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # there the fraction of the mirrored function converges faster
        return 1 - beta_cdf(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / (a * _beta_fraction(x, a, b))


def _beta_fraction(x: float, a: float, b: float) -> float:
    """Return the continued fraction 1 + d1 / (1 + d2 / (1 + ...)), evaluated from the front (Lentz)."""
    tiny = 1e-300
    value, c, d = 1.0, 1.0, 0.0
    for step in range(1, 10_000):
        m, odd = divmod(step, 2)
        if odd:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / ((1 + term * d) or tiny)
        c = (1 + term / c) or tiny
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value


def t_quantile(probability: float, df: int) -> float:
    """Return the t with `probability` (0.5 to below 1) of the distribution below it, at `df` >= 1 degrees of freedom.

    The part beyond t, or the one within it, is that of a beta distribution: P(|T| > t) = P(X < df / (df + t²)).
    """
    if not 0.5 <= probability < 1:
        raise ValueError(f"a probability from 0.5 to below 1 was expected, not {probability}")
    if df < 1:
        raise ValueError(f"at least one degree of freedom is needed, not {df}")
    if probability < 0.75:  # the smaller of the two parts is the exact one
        within = beta_quantile(2 * probability - 1, 0.5, df / 2)
        return math.sqrt(df * within / (1 - within))
    beyond = beta_quantile(2 * (1 - probability), df / 2, 0.5)
    return math.sqrt(df * (1 - beyond) / beyond)


IntervalKind = Literal["wilson", "skewed", "clopper-pearson"]
"""`wilson` holds the truth as often as promised on average; `clopper-pearson` at least so often, and is wider.

`skewed` is Wilson's of a proportion, and allows for the skewness of scores."""


def interval_of(kind: IntervalKind, proportion: float, n: float, confidence: float) -> tuple[float, float]:
    """Return the interval of this kind of a `proportion` seen in `n` observations; `n` need not be whole."""
    method = clopper_pearson_interval if kind == "clopper-pearson" else wilson_interval
    return method(proportion, n, confidence)


def kind_for(kind: IntervalKind | None, least: float, n: float, confidence: float) -> IntervalKind:
    """Return the kind of interval by which `n` observations show that a proportion is at least `least`.

    That is the one that is asked for, else the exact one where Wilson's shows too much: of few observations, of small
    proportions (at n = 35 it shows that one of 0.1 is at least 0.1 in 6 % of samples, at n = 4 that one of 0.15 is in
    11 %, where 2.5 % is promised), and at low confidence.
    """
    if kind is not None:
        return kind
    is_exact = n < 20 or least < (0.8 if n < 50 else 0.5) or confidence < 0.95
    return "clopper-pearson" if is_exact else "wilson"


def wilson_interval(proportion: float, n: float, confidence: float = 0.95) -> tuple[float, float]:
    """Return Wilson's score interval of a `proportion` seen in `n` observations; `n` need not be whole.

    Holds `proportion` and lies within 0 and 1, also where a normal interval would have no width (0 of n, n of n).
    """
    z2 = z_score(confidence) ** 2
    centre = (proportion + z2 / (2 * n)) / (1 + z2 / n)
    margin = math.sqrt(z2 * proportion * (1 - proportion) / n + (z2 / (2 * n)) ** 2) / (1 + z2 / n)
    return _around(proportion, centre - margin, centre + margin)


def clopper_pearson_interval(proportion: float, n: float, confidence: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a `proportion` in `n` observations: its error never exceeds the one promised."""
    tail, successes = (1 - confidence) / 2, proportion * n
    low = beta_quantile(tail, successes, n - successes + 1) if proportion > 0 else 0.0
    high = beta_quantile(1 - tail, successes + 1, n - successes) if proportion < 1 else 1.0
    return _around(proportion, low, high)


def minimum_sample(target: float, confidence: float = 0.95, kind: IntervalKind | None = None) -> int:
    """Return the smallest n for which n successes of n put the low bound at `target` or above: 35 for 0.9 at 95 %.

    Without a `kind` the bound is that by which a gate judges, see `kind_for`.

    Raises ValueError for a target of 1 or more: no finite sample proves that.
    """
    if not target < 1:
        raise ValueError(f"no sample can show a proportion of {target:g} or more")
    target = max(target, 0.0)
    n = max(math.floor(target * z_score(confidence) ** 2 / (1 - target)), 1)
    if kind != "wilson" and target > 0:
        n = max(min(n, math.floor(math.log((1 - confidence) / 2) / math.log(target))), 1)
    while interval_of(kind_for(kind, target, n, confidence), 1.0, n, confidence)[0] < target:
        n += 1
    return n


def z_score(confidence: float) -> float:
    """Return the standard normal quantile of a two-sided `confidence`: 1.96 for 0.95. Raises ValueError outside of (0,
    1)."""
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence is between 0 and 1, for example 0.95; not {confidence}")
    return NormalDist().inv_cdf((1 + confidence) / 2)


def _around(proportion: float, low: float, high: float) -> tuple[float, float]:
    # Rounding must not push a bound over the value that it bounds: exactly 0 and 1 matter to exclusive thresholds.
    low = 0.0 if proportion == 0 else min(max(low, 0.0), proportion)
    high = 1.0 if proportion == 1 else max(min(high, 1.0), proportion)
    return low, high


def mid_p_below(successes: float, n: float, rate: float) -> float:
    """Return the one-sided mid-p-value of so few successes in n observations, at a true rate that is no smaller.

    The chance of fewer, and half that of as many (Lancaster 1961). Neither number need be whole, as effective numbers
    are not. ValueError for n <= 0.
    """
    if n <= 0:
        raise ValueError("there is nothing to test")
    return (_at_most(successes, n, rate) + _at_most(successes - 1, n, rate)) / 2


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for their number by Holm's step-down method (1979); return them in their order."""
    adjusted, least = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min((len(p_values) - rank) * p_values[index], 1.0))
        adjusted[index] = least
    return adjusted


def _at_most(successes: float, n: float, rate: float) -> float:
    if successes < 0:
        return 0.0
    return 1.0 if successes >= n else beta_cdf(1 - rate, n - successes, successes + 1)


FEWEST_GROUPS = 3
"""The least number of groups: the variance between fewer says too little."""


def shrunk_shares(shares: Sequence[float], sizes: Sequence[float]) -> list[float] | None:
    """Return the shares, from 0 to 1, drawn towards their mean; `sizes` are how many observations of 0 or 1 each rests
    on. None for fewer than `FEWEST_GROUPS`.

    The variance between groups that chance does not explain (DerSimonian and Laird 1986) says how much of each
    difference to believe (empirical Bayes). For reading only: nothing is judged by it.
    """
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
