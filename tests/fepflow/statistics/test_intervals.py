"""Exact intervals of proportions, and the least sample that could show one."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fepflow.statistics.proportions import (
    IntervalKind,
    clopper_pearson_interval,
    interval_of,
    kind_for,
    minimum_sample,
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
