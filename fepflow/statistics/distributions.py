"""The beta distribution and Student's t distribution, for exact intervals and tests."""

from __future__ import annotations

import math
from collections.abc import Callable


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
