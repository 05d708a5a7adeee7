"""Drift of a rate over the runs: golden values, and what it promises, simulated."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fepflow.statistics.drift import (
    ALARM,
    RunShare,
    cusum,
    dispersions,
    effective_counts,
    learned_rate,
    mann_kendall,
    watch,
)
from fepflow.statistics.means import clustered_stderr

WORSE = [(46.0, 50.0), (41.0, 50.0), (40.0, 50.0), (42.0, 50.0)]


def test_golden_values() -> None:
    evidence = [math.exp(value) for value in cusum(WORSE, 0.92)]
    assert evidence == pytest.approx([0.4215, 9.6934, 175.91, 910.82], rel=1e-4)
    trend = mann_kendall([0.94, 0.92, 0.93, 0.90, 0.91, 0.88, 0.89, 0.86])
    assert trend is not None
    assert trend.s == -22
    assert trend.p == pytest.approx(0.009375, abs=5e-7)


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


def test_the_learned_rate_is_the_low_end_of_ten_runs() -> None:
    assert learned_rate([(46, 50)] * 9) is None
    assert learned_rate([(0, 0)] * 10) is None
    assert learned_rate([(0, 50)] * 10) is None
    rate = learned_rate([(46, 50)] * 10 + [(0, 50)] * 90)
    assert rate == pytest.approx(0.90304, abs=1e-5)


def test_the_rate_of_ten_runs_counts_if_it_is_above_the_gates_minimum() -> None:
    good, worse = [(48.5, 50.0)] * 10, [(45.5, 50.0)] * 6
    learned = watch([*good, *worse], 0.9)
    assert learned is not None
    assert (learned.learned, learned.rate) == (True, learned_rate(good))
    assert learned.evidence[:10] == cusum(good, 0.9)
    assert learned.evidence[10:] == cusum(worse, learned.rate)
    held_to_gate = watch([*good, *worse], 0.97)
    assert held_to_gate is not None
    assert (held_to_gate.learned, held_to_gate.rate) == (False, 0.97)
    few = watch(good[:9], 0.9)
    assert few is not None
    assert (few.learned, few.rate, few.evidence) == (False, 0.9, cusum(good[:9], 0.9))
    assert watch(good[:9], None) is None
    without = watch([*good, *worse], None)
    assert without is not None
    assert without.evidence == [*[None] * 10, *learned.evidence[10:]]


@pytest.mark.parametrize(
    ("values", "s", "p"),
    [
        ("01012221", 13, 0.111961354),
        ("00023445", 24, 0.00314775986),
        ("101003102212", 19, 0.193543665),
        ("00013011314123235554", 121, 6.97218693e-05),
        ("110100100100010110111011111110", 68, 0.156141697),
        ("001020020012120322322123323333", 238, 9.9489374e-06),
    ],
)
def test_the_trend_is_that_of_kendalls_tau_with_corrections_for_ties_and_continuity(
    values: str, s: int, p: float
) -> None:
    """The values of p are of scipy.stats.kendalltau, its z multiplied by (|s| - 1) / |s|."""
    trend = mann_kendall([float(value) for value in values])
    assert trend is not None
    assert trend.s == s
    assert trend.p == pytest.approx(p, rel=1e-8)


@given(st.lists(st.integers(0, 5), min_size=8, max_size=30))
def test_the_trend_of_values_in_reverse_is_the_opposite(values: list[int]) -> None:
    trend = mann_kendall([float(value) for value in values])
    mirrored = mann_kendall([float(value) for value in reversed(values)])
    assert trend is not None
    assert mirrored is not None
    assert (mirrored.s, mirrored.p) == (-trend.s, trend.p)
    assert trend.s or trend.p == 1


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
        rate = learned_rate(counts)
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


def nights(rng: Random, rate: float, runs: int, cases: int = 50) -> list[tuple[float, float]]:
    return [(float(sum(rng.random() < rate for _ in range(cases))), float(cases)) for _ in range(runs)]


@pytest.mark.battery
def test_a_fall_that_stays_above_the_gates_minimum_is_noticed_within_nights() -> None:
    """The rate falls from 0.97 to 0.91, the minimum is 0.9: by that alone, most falls go unnoticed for 600 nights."""
    rng, waited = Random(15), []
    for _ in range(400):
        watched = watch([*nights(rng, 0.97, 30), *nights(rng, 0.91, 100)], 0.9)
        assert watched is not None
        evidence = [-math.inf if value is None else value for value in watched.evidence]
        waited.append(next((night for night, value in enumerate(evidence[30:], 1) if value >= ALARM), 101))
    waited.sort()
    assert waited[200] <= 8
    assert waited[380] <= 30


@pytest.mark.battery
@pytest.mark.parametrize("rate", [0.9, 0.92, 0.97])
def test_an_agent_that_stays_as_good_raises_an_alarm_in_365_runs_at_most(rate: float) -> None:
    """The minimum is 0.9. Some references are too good, so alarms are counted over many of them."""
    rng, alarms, runs = Random(f"{rate} watch"), 0, 0
    for _ in range(100):
        watched = watch(nights(rng, rate, 730), 0.9)
        assert watched is not None
        alarms += sum(value is not None and value >= ALARM for value in watched.evidence)
        runs += 730
    assert alarms / runs <= 1 / 365


def test_independent_cases_count_as_they_are_and_clusters_by_how_far_they_agree() -> None:
    assert effective_counts([RunShare(0.9, 50, 50, 0.04)]) == [(45, 50)]
    ((successes, n),) = effective_counts([RunShare(0.9, 50, 5)])
    assert (successes, n) == pytest.approx((4.5, 5)), "what is not known is taken to agree fully"
    like_coins = RunShare(0.9, 50, 5, math.sqrt(0.09 / 50))
    assert effective_counts([like_coins])[0][1] == pytest.approx(50 / 5.5), "beside one run that agrees fully"
    assert effective_counts([like_coins] * 100)[-1][1] == pytest.approx(50 / (1 + 9 / 101))
    assert effective_counts([RunShare(1.0, 50, 5, 0.0)]) == [(5, 5)], "nothing but passes tells nothing"


def test_dispersion_is_the_variance_from_run_to_run_against_that_of_coins() -> None:
    assert dispersions([(45, 50)] * 3) == [1, 1, 1]
    assert dispersions([(40, 50), (50, 50)]) == pytest.approx([1, 0.2**2 / (2 / 50) / 0.09])
    assert dispersions([(50, 50)] * 2) == [1, 1]
    assert dispersions([*[(45, 50)] * 30, *[(35, 50)] * 30])[-1] == 1, "a fall is no scatter"


def nights_of_documents(rng: Random, rate: float, runs: int) -> list[RunShare]:
    """Nights of five new documents with ten cases each, whose results have an intraclass correlation of 0.2."""
    found = []
    for _ in range(runs):
        rates = [rng.betavariate(rate * 4, (1 - rate) * 4) for _ in range(5)]
        documents = [[float(rng.random() < own) for _ in range(10)] for own in rates]
        share = math.fsum(map(math.fsum, documents)) / 50
        found.append(RunShare(share, 50, 5, clustered_stderr(documents)))
    return found


@pytest.mark.battery
@pytest.mark.parametrize("minimum", [0.92, 0.8, None])
@pytest.mark.parametrize("known", [True, False])
def test_nights_of_new_documents_raise_about_one_alarm_a_year_at_most(known: bool, minimum: float | None) -> None:
    """Counted as independent cases they raise 7.4. Where the documents are not known, ten runs tell how nights scatter;
    held to a minimum without them, nothing does."""
    rng, alarms, years = Random(f"documents {minimum}"), 0, 60
    for _ in range(years):
        runs = nights_of_documents(rng, 0.92, 375)
        counts = effective_counts(runs if known else [RunShare(run.share, 50, 50, run.stderr) for run in runs])
        watched = watch(counts, minimum)
        assert watched is not None
        alarms += sum(value is not None and value >= ALARM for value in watched.evidence)
    assert alarms / years <= (0.5 if known else 1.4)


@pytest.mark.battery
def test_a_fall_of_nights_of_documents_is_noticed_within_a_month() -> None:
    rng, noticed = Random("fall of documents"), 0
    for _ in range(100):
        counts = effective_counts([*nights_of_documents(rng, 0.92, 30), *nights_of_documents(rng, 0.86, 30)])
        noticed += any(value >= ALARM for value in cusum(counts, 0.92)[30:])
    assert noticed >= 80
