"""Intervals of proportions, tests of them, Holm's correction, shrunk shares, and Student's t distribution."""

from __future__ import annotations

import math
from itertools import combinations
from random import Random

import pytest
import scipy  # its parts are loaded when they are used
from hypothesis import given
from hypothesis import strategies as st

from fepflow.statistics.proportions import (
    IntervalKind,
    clopper_pearson_interval,
    holm,
    interval_of,
    kind_for,
    mid_p_below,
    minimum_sample,
    shrunk_shares,
    t_quantile,
)

from .estimates import CONFIDENCES


class TestClopperPearson:
    @pytest.mark.parametrize(
        ("passed", "n", "expected"),
        [(9, 10, (0.55498, 0.99747)), (35, 35, (0.89997, 1.0)), (0, 20, (0.0, 0.16843)), (50, 100, (0.39832, 0.60168))],
    )
    def test_known_intervals(self, passed: int, n: int, expected: tuple[float, float]) -> None:
        assert clopper_pearson_interval(passed / n, n) == pytest.approx(expected, abs=1e-5)

    @given(st.integers(1, 60), st.data(), CONFIDENCES)
    def test_its_bounds_leave_out_just_the_tail(self, n: int, data: st.DataObject, confidence: float) -> None:
        passed = data.draw(st.integers(1, n))
        lower, _ = clopper_pearson_interval(passed / n, n, confidence)
        tail = math.fsum(math.comb(n, k) * lower**k * (1 - lower) ** (n - k) for k in range(passed, n + 1))
        assert tail == pytest.approx((1 - confidence) / 2, rel=1e-6)

    def test_it_takes_a_case_more(self) -> None:
        assert minimum_sample(0.9, 0.95, "clopper-pearson") == 36


class TestMinimumSample:
    @pytest.mark.parametrize(
        ("target", "confidence", "n"),
        [
            (0.9, 0.95, 35),
            (0.8, 0.95, 17),
            (0.5, 0.95, 6),
            (0.99, 0.95, 381),
            (0.9, 0.99, 60),
            (0.0, 0.95, 1),
            (-1.0, 0.95, 1),
        ],
    )
    def test_known_sizes(self, target: float, confidence: float, n: int) -> None:
        assert minimum_sample(target, confidence) == n

    @given(st.floats(0.01, 0.999), CONFIDENCES)
    def test_it_is_enough_and_one_less_is_not(self, target: float, confidence: float) -> None:
        kinds: list[IntervalKind | None] = [None, "wilson"]
        for kind in kinds:
            size = minimum_sample(target, confidence, kind)
            lows = [
                interval_of(kind_for(kind, target, cases, confidence), 1.0, cases, confidence)[0]
                for cases in (size, max(size - 1, 1))
            ]
            assert lows[0] >= target
            assert size == 1 or lows[1] < target

    def test_certainty_takes_more_than_any_sample(self) -> None:
        with pytest.raises(ValueError, match="no sample"):
            minimum_sample(1.0)


def test_golden_values_of_tests_of_proportions() -> None:
    assert 2 * mid_p_below(3, 15, 0.5) == pytest.approx(0.021271, abs=5e-7)
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@given(st.integers(1, 500), st.data(), st.floats(0.01, 0.99))
def test_the_mid_p_value_is_that_of_the_binomial_distribution(n: int, data: st.DataObject, rate: float) -> None:
    k = data.draw(st.integers(0, n))
    fewer = scipy.special.bdtr(k - 1, n, rate) if k else 0.0
    expected = (fewer + scipy.special.bdtr(k, n, rate)) / 2
    assert mid_p_below(k, n, rate) == pytest.approx(expected, rel=1e-9, abs=1e-15)


@given(st.floats(0.5, 300), st.floats(0, 1), st.floats(0.01, 0.99), st.floats(0, 5))
def test_more_successes_never_make_it_smaller(n: float, share: float, rate: float, more: float) -> None:
    fewer = mid_p_below(share * n, n, rate)
    assert 0 <= fewer <= 1
    assert mid_p_below(min(share * n + more, n), n, rate) >= fewer - 1e-9


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (0, -1)])
def test_nothing_is_not_tested(successes: float, n: float) -> None:
    with pytest.raises(ValueError, match="nothing to test"):
        mid_p_below(successes, n, 0.5)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_the_correction_is_the_closed_test_by_bonferroni(p_values: list[float]) -> None:
    """A hypothesis falls if all intersections with it do (Marcus, Peritz and Gabriel 1976)."""
    indices = range(len(p_values))
    sets = [chosen for size in indices for chosen in combinations(indices, size + 1)]
    by_set = {chosen: min(len(chosen) * min(p_values[index] for index in chosen), 1.0) for chosen in sets}
    expected = [max(p for chosen, p in by_set.items() if index in chosen) for index in indices]
    assert holm(p_values) == pytest.approx(expected)


def test_no_p_values_are_none() -> None:
    assert holm([]) == []


def test_differences_that_chance_explains_are_not_believed() -> None:
    assert shrunk_shares([0.8, 0.9, 0.7, 0.8], [10, 10, 10, 10]) == pytest.approx([0.8] * 4)


def test_large_groups_keep_their_share_and_small_ones_are_drawn_in() -> None:
    large, small, other = shrunk_shares([0.5, 0.0, 0.95], [500, 4, 500])
    assert large == pytest.approx(0.5, abs=0.01)
    assert other == pytest.approx(0.95, abs=0.01)
    assert 0.05 < small < 0.3


def test_two_groups_and_groups_without_any_fail_stay_as_they_are() -> None:
    assert shrunk_shares([0.5, 0.9], [10, 10]) is None
    assert shrunk_shares([1.0, 1.0, 1.0], [10, 2, 5]) == [1.0, 1.0, 1.0]


def test_shrunk_shares_are_nearer_to_the_truth() -> None:
    rng = Random(7)
    raw_error = shrunk_error = 0.0
    for _ in range(200):
        rates = [rng.betavariate(16, 4) for _ in range(20)]
        raw = [sum(rng.random() < rate for _ in range(10)) / 10 for rate in rates]
        shrunk = shrunk_shares(raw, [10] * 20)
        raw_error += math.fsum((a - b) ** 2 for a, b in zip(raw, rates, strict=True))
        shrunk_error += math.fsum((a - b) ** 2 for a, b in zip(shrunk, rates, strict=True))
    assert shrunk_error < 0.6 * raw_error


TABLE = [
    (0.95, 1, 6.3138),
    (0.975, 1, 12.7062),
    (0.975, 2, 4.3027),
    (0.975, 3, 3.1824),
    (0.975, 10, 2.2281),
    (0.995, 10, 3.1693),
    (0.975, 30, 2.0423),
    (0.975, 120, 1.9799),
    (0.975, 200, 1.9719),
    (0.975, 1000, 1.9623),
    (0.9995, 1000, 3.3003),
]


@pytest.mark.parametrize(("probability", "df", "expected"), TABLE)
def test_quantiles_are_those_of_the_printed_tables(probability: float, df: int, expected: float) -> None:
    assert t_quantile(probability, df) == pytest.approx(expected, abs=6e-5)


def test_the_median_is_zero_at_any_degrees_of_freedom() -> None:
    assert [t_quantile(0.5, df) for df in (1, 2, 7, 500)] == pytest.approx([0, 0, 0, 0], abs=1e-12)


@pytest.mark.parametrize(("probability", "df"), [(0.4, 5), (1.0, 5), (0.975, 0)])
def test_an_invalid_quantile_is_refused(probability: float, df: int) -> None:
    with pytest.raises(ValueError, match=r"expected|needed"):
        t_quantile(probability, df)
