"""Estimates of values and of repeated values, as their tests need them."""

from hypothesis import strategies as st

from fepflow.statistics.estimate import PROPORTION, Counts, Estimate, Scale
from fepflow.statistics.means import mean_estimate

CONFIDENCES = st.sampled_from([0.8, 0.9, 0.95, 0.99])


ZERO_TO_ONE = Scale(0.0, 1.0)


def estimate(
    values: list[float], missing: int = 0, confidence: float = 0.95, scale: Scale | None = PROPORTION
) -> Estimate:
    """Of one value a case, with `missing` further cases that gave an error."""
    cases = [[value] for value in values] + [[]] * missing
    return mean_estimate(cases, Counts(len(cases), len(values), error=missing), confidence, scale)


def unbounded(values: list[float], missing: int = 0) -> Estimate:
    return estimate(values, missing, scale=None)


def repeated(cases: list[list[float]], confidence: float = 0.95, scale: Scale | None = PROPORTION) -> Estimate:
    n = sum(map(len, cases))
    return mean_estimate(cases, Counts(n, n), confidence, scale)


def bounds(result: Estimate) -> tuple[float, float]:
    assert result.low is not None
    assert result.high is not None
    return result.low, result.high


def low(result: Estimate) -> float:
    return bounds(result)[0]
