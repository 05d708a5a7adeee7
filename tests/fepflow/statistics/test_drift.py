"""Drift of a rate over the runs: golden values, and what it promises, simulated."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau, norm

from fepflow.statistics.drift import ALARM, agreed_rate, cusum, mann_kendall

WORSE = [(46.0, 50.0), (41.0, 50.0), (40.0, 50.0), (42.0, 50.0)]


def test_golden_values() -> None:
    evidence = [math.exp(value) for value in cusum(WORSE, 0.92)]
    assert evidence == pytest.approx([0.4215, 9.6934, 175.91, 910.82], rel=1e-4)
    found = mann_kendall([0.94, 0.92, 0.93, 0.90, 0.91, 0.88, 0.89, 0.86])
    assert found is not None
    assert found.s == -22
    assert found.p == pytest.approx(0.009375, abs=5e-7)


def test_after_an_alarm_it_begins_anew() -> None:
    values = cusum([*WORSE, *WORSE], 0.92)
    assert values[3] >= ALARM
    assert values[4:] == pytest.approx(values[:4])


def test_a_good_run_takes_back_no_more_than_there_is() -> None:
    assert cusum([(50, 50), (50, 50), (41, 50)], 0.92)[2] == cusum([(41, 50)], 0.92)[0]


def test_a_rate_of_all_takes_more_than_one_failure() -> None:
    assert cusum([(99, 100)], 1.0)[0] < 0
    assert cusum([(90, 100)], 1.0)[0] >= ALARM
    assert cusum([(0, 5)], 0.01)[0] < ALARM
    for rate in (0.0, 1.1, math.nan):
        with pytest.raises(ValueError, match="above 0"):
            cusum([], rate)


def test_the_agreed_rate_is_the_low_end_of_ten_runs() -> None:
    assert agreed_rate([(46, 50)] * 9) is None
    assert agreed_rate([(0, 0)] * 10) is None
    assert agreed_rate([(0, 50)] * 10) is None
    rate = agreed_rate([(46, 50)] * 10 + [(0, 50)] * 90)
    assert rate == pytest.approx(0.90304, abs=1e-5)


@given(st.lists(st.integers(0, 5), min_size=8, max_size=30))
def test_the_trend_is_that_of_kendalls_tau_with_a_correction_for_continuity(values: list[int]) -> None:
    """scipy's z has s where ours has one less."""
    found = mann_kendall([float(value) for value in values])
    assert found is not None
    back = mann_kendall([float(value) for value in reversed(values)])
    assert back is not None
    assert (back.s, back.p) == (-found.s, found.p)
    if not found.s:
        assert found.p == 1.0
        return
    expected = kendalltau(range(len(values)), values, method="asymptotic")
    z = norm.isf(expected.pvalue / 2) * (abs(found.s) - 1) / abs(found.s)
    assert found.s * expected.statistic > 0
    assert found.p == pytest.approx(2 * norm.sf(z))


def test_fewer_than_eight_values_have_no_trend() -> None:
    assert mann_kendall([0.9] * 7) is None


@pytest.mark.battery
@pytest.mark.parametrize("cases", [10, 50, 500])
@pytest.mark.parametrize("rate", [0.7, 0.92, 0.99])
def test_in_control_an_alarm_comes_less_than_once_in_365_runs(rate: float, cases: int) -> None:
    """Alarms per run over 400 years of nights, at exactly the agreed rate, which is the worst that is no drift."""
    rng, nights = Random(f"{rate} {cases}"), 400 * 365
    weights = [math.comb(cases, k) * rate**k * (1 - rate) ** (cases - k) for k in range(cases + 1)]
    counts = [(float(passed), float(cases)) for passed in rng.choices(range(cases + 1), weights, k=nights)]
    alarms = sum(value >= ALARM for value in cusum(counts, rate))
    assert alarms / nights <= 1 / 365


@pytest.mark.battery
@pytest.mark.parametrize("cases", [20, 50, 200])
def test_in_control_a_rate_that_was_learnt_from_ten_runs_raises_few_alarms(cases: int) -> None:
    """Years of 355 nights after the ten runs; some of them have a reference that is too good."""
    rng, years, alarmed = Random(cases), 400, 0
    for _ in range(years):
        counts = [(float(sum(rng.random() < 0.92 for _ in range(cases))), float(cases)) for _ in range(100)]
        rate = agreed_rate(counts)
        assert rate is not None
        alarmed += any(value >= ALARM for value in cusum(counts[10:], rate))
    assert alarmed / years <= 0.1


@pytest.mark.battery
def test_a_fall_by_ten_points_is_noticed_within_a_fortnight() -> None:
    rng, noticed = Random(1), 0
    for _ in range(500):
        counts = [(float(sum(rng.random() < 0.82 for _ in range(50))), 50.0) for _ in range(14)]
        noticed += any(value >= ALARM for value in cusum(counts, 0.92))
    assert noticed / 500 >= 0.95
