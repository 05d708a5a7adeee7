import math
import random

import numpy
import pytest
import scipy  # its parts are loaded when they are used
from hypothesis import given
from hypothesis import strategies as st

from fepflow.statistics.estimate import Counts, Estimate, Scale
from fepflow.statistics.quantiles import quantile_estimate

VALUES = st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=60)
LEVELS = st.sampled_from([0.05, 0.5, 0.9, 0.95, 0.99])


def once(values: list[float], level: float, missing: int = 0, confidence: float = 0.95, scale=None) -> Estimate:
    """Of one value a case, with `missing` further cases that gave an error."""
    cases = [[value] for value in values] + [[]] * missing
    return quantile_estimate(cases, Counts(len(cases), len(values), error=missing), level, confidence, scale)


@pytest.mark.parametrize(("n", "rank"), [(71, None), (72, 72), (100, 100), (200, 197), (500, 485)])
def test_the_upper_bound_of_the_95th_percentile_is_an_order_statistic(n: int, rank: int | None) -> None:
    assert once([float(value) for value in range(1, n + 1)], 0.95).high == rank


@pytest.mark.parametrize("n", [5, 6, 30, 99, 400])
@pytest.mark.parametrize("level", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_the_ranks_are_those_of_the_binomial_distribution(n: int, level: float, confidence: float) -> None:
    result = once([float(value) for value in range(1, n + 1)], level, confidence=confidence)
    tail = (1 - confidence) / 2
    ranks = range(1, n + 1)
    # Of the values at or below the quantile there are at most rank - 1 with this chance (from below: at least rank).
    assert result.high == next((k for k in ranks if scipy.special.bdtr(k - 1, n, level) >= 1 - tail), None)
    assert result.low == next((k for k in reversed(ranks) if scipy.special.bdtrc(k - 1, n, level) >= 1 - tail), None)


@given(VALUES, LEVELS)
def test_the_value_is_that_of_numpy_and_lies_within_its_bounds(values: list[float], level: float) -> None:
    result = once(values, level)
    assert result.value == numpy.quantile(values, level, method="inverted_cdf")
    assert result.interval[0] <= result.value <= result.interval[1]


@given(VALUES, LEVELS, st.data())
def test_losing_values_only_ever_widens_the_interval(values: list[float], level: float, data: st.DataObject) -> None:
    lost = data.draw(st.integers(0, len(values) - 1))
    order = data.draw(st.permutations(values))
    part, whole = once(order[lost:], level, missing=lost), once(values, level)
    assert part.interval[0] <= whole.interval[0]
    assert part.interval[1] >= whole.interval[1]
    assert part.point_range[0] <= whole.value <= part.point_range[1]


def test_a_missing_latency_may_have_been_any() -> None:
    values = [float(value) for value in range(200)]
    assert once(values, 0.95).high == 196
    assert once(values[3:], 0.95, missing=3).high == 199, "the 197th of 200"
    assert once(values[4:], 0.95, missing=4).high is None


def test_repeats_that_say_the_same_are_one_value() -> None:
    values = [float(value) for value in range(1, 101)]
    single, double = once(values, 0.9), quantile_estimate([[value] * 3 for value in values], Counts(300, 300), 0.9)
    assert (double.low, double.high) == (single.low, single.high)
    assert double.method == "order-statistics-clustered"


def test_repeats_that_scatter_within_their_case_tell_more_than_one_value() -> None:
    rng = random.Random(1)
    cases = [[rng.gauss(0, 1) for _ in range(5)] for _ in range(60)]
    one, all_ = once([case[0] for case in cases], 0.5), quantile_estimate(cases, Counts(300, 300), 0.5)
    assert all_.high - all_.low < 0.7 * (one.high - one.low)


def test_beyond_the_sample_there_is_the_end_of_the_range_or_nothing() -> None:
    assert (once([1.0, 2.0], 0.5).low, once([1.0, 2.0], 0.5).high) == (None, None)
    bounded = once([1.0, 2.0], 0.5, scale=Scale(0, 5))
    assert (bounded.low, bounded.high) == (0, 5)


@pytest.mark.parametrize("values", [[500.0] * 100, [1e308] * 100, [-1.7e308, 1.7e308] * 50, [0.0] * 100])
def test_equal_and_huge_values_have_an_interval(values: list[float]) -> None:
    result = once(values, 0.5)
    assert math.isfinite(result.value)
    assert result.low == min(values)
    assert result.high == max(values)


def test_no_value_no_quantile() -> None:
    assert once([], 0.5, missing=3).value is None
    with pytest.raises(ValueError, match="NaN or infinite"):
        once([math.nan], 0.5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        once([1.0], 1.0)


def test_more_cases_like_these_settle_it() -> None:
    sample = once([float(value) for value in range(1, 61)], 0.95).sample
    assert sample.with_cases(71, 0.95)[1] is None
    assert sample.with_cases(72, 0.95)[1] == 60
    repeated = quantile_estimate([[float(value)] * 2 for value in range(1, 61)], Counts(120, 120), 0.95).sample
    assert repeated.with_cases(71, 0.95)[1] is None
    assert repeated.with_cases(72, 0.95)[1] == 60
