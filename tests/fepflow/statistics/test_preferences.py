"""Win rates and Bradley-Terry strengths: golden values, and what they promise of intervals."""

from __future__ import annotations

import math
from random import Random

import pytest

from fepflow.statistics.means import CaseValue
from fepflow.statistics.paired import mcnemar_mid_p, tango_interval
from fepflow.statistics.preferences import bradley_terry, strengths, win_rate

BASEBALL = [
    [0, 7, 9, 7, 7, 9, 11],
    [6, 0, 7, 5, 11, 9, 9],
    [4, 6, 0, 7, 7, 8, 12],
    [6, 8, 6, 0, 6, 7, 10],
    [6, 2, 6, 7, 0, 7, 12],
    [4, 4, 5, 6, 6, 0, 6],
    [2, 4, 1, 3, 1, 7, 0],
]
"""Wins among seven teams in 1987 (Agresti, Categorical Data Analysis): Milwaukee, Detroit, Toronto, New York, Boston,
Cleveland, Baltimore."""


def known(value: float) -> CaseValue:
    return CaseValue(value, value, value)


MISSING = CaseValue(None, 0.0, 1.0)


def test_strengths_are_those_of_a_known_example() -> None:
    fitted = bradley_terry(BASEBALL)
    assert fitted is not None
    beside_baltimore = [strength - fitted[-1] for strength in fitted]
    assert beside_baltimore == pytest.approx([1.58, 1.44, 1.29, 1.25, 1.11, 0.68, 0], abs=0.005)
    assert math.fsum(fitted) == pytest.approx(0, abs=1e-9)


def test_of_two_runs_a_strength_is_the_logarithm_of_the_odds() -> None:
    assert bradley_terry([[0, 30], [10, 0]]) == pytest.approx([math.log(3) / 2, -math.log(3) / 2])


def test_runs_that_never_lost_have_no_most_likely_strength() -> None:
    assert bradley_terry([[0, 3], [0, 0]]) is None
    assert bradley_terry([[0, 1, 2], [1, 0, 2], [0, 0, 0]]) is None
    assert bradley_terry([[0, 1, 0], [0, 0, 1], [1, 0, 0]]) == pytest.approx([0, 0, 0])


def test_a_run_that_won_every_time_has_an_interval_that_tells_how_little_that_is() -> None:
    _, few = strengths([{(0, 1): known(0.0)}] * 3, 2)
    _, many = strengths([{(0, 1): known(0.0)}] * 30, 2)
    assert few.value is many.value is None
    assert few.low is not None
    assert many.low is not None
    assert few.high is not None
    # Jeffreys' interval of 3 of 3 is 0.4 to 1, that of 30 of 30 is 0.92 to 1.
    assert 1 / (1 + math.exp(-few.low)) == pytest.approx(0.47, abs=0.05)
    assert 1 / (1 + math.exp(-many.low)) == pytest.approx(0.92, abs=0.02)
    assert few.high > 5


def test_a_run_that_lost_to_two_others_every_time_ends_without_a_crash() -> None:
    case = {(0, 1): known(0.5), (0, 2): known(1.0), (1, 2): known(1.0)}
    _, equal, worst = strengths([case] * 10, 3, draws=400)
    assert equal.low is not None
    assert worst.high is not None
    assert equal.low < 0 < (equal.high or 0)
    assert worst.high < 0


def test_clusters_of_equal_cases_tell_as_much_as_one_each() -> None:
    cases = [{(0, 1): known(float(index < 5))} for index in range(20) for _ in range(5)]
    alone = strengths(cases, 2)[1]
    together = strengths(cases, 2, cluster_numbers=[index // 5 for index in range(100)])[1]
    assert (together.high or 0) - (together.low or 0) > 1.8 * ((alone.high or 0) - (alone.low or 0))
    assert together.value == alone.value == pytest.approx(math.log(3))


def test_many_cases_have_the_interval_of_all_though_some_are_drawn_together() -> None:
    rng = Random(7)
    values = sorted(rng.random() ** 2 for _ in range(2_000))  # neighbours are alike
    found = strengths([{(0, 1): known(1 - value)} for value in values], 2, draws=700)[1]
    mean = math.fsum(values) / 2_000
    error = math.sqrt(math.fsum((value - mean) ** 2 for value in values)) / 2_000 / mean / (1 - mean)
    assert found.value == pytest.approx(math.log(mean / (1 - mean)))
    assert found.low is not None
    assert found.high is not None
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * error, rel=0.12)


def test_missing_preferences_count_against_a_run_for_its_low_bound() -> None:
    case = {(0, 1): known(0.0), (0, 2): known(0.5), (1, 2): known(1.0)}
    complete = strengths([case] * 20, 3, draws=40)[1]
    half = strengths([case] * 20 + [dict.fromkeys(case, MISSING)] * 20, 3, draws=40)[1]
    assert complete.low is not None
    assert half.low is not None
    assert complete.low > 0.5
    assert half.low < 0.2


def test_strengths_are_the_same_with_the_same_seed() -> None:
    cases = [{(0, 1): known(value)} for value in (0.0, 0.5, 1.0, 1.0)]
    assert strengths(cases, 2, draws=50) == strengths(cases, 2, draws=50)


def test_a_win_rate_is_half_of_a_paired_difference() -> None:
    found = win_rate([known(1.0)] * 40 + [known(0.5)] * 10 + [known(0.0)] * 20)
    low, high = tango_interval(40, 20, 70)
    assert (found.value, found.low, found.high) == pytest.approx((45 / 70, (1 + low) / 2, (1 + high) / 2))
    assert found.p == mcnemar_mid_p(40, 20)
    assert found.shown == 1


def test_ties_alone_show_nothing() -> None:
    found = win_rate([known(0.5)] * 200)
    assert (found.value, found.p, found.shown) == (0.5, 1.0, 0)


def test_one_pair_shows_nothing() -> None:
    found = win_rate([known(1.0)])
    assert (found.value, found.shown) == (1.0, 0)


def test_missing_preferences_are_taken_against_a_claim() -> None:
    assert win_rate([known(1.0)] * 12).shown == 1
    found = win_rate([known(1.0)] * 12 + [MISSING] * 12)
    assert (found.value, found.shown) == (1.0, 0)
    assert found.low is not None
    assert found.low < 0.5


def test_no_preference_at_all_has_no_value() -> None:
    found = win_rate([MISSING] * 3)
    assert (found.value, found.p, found.shown) == (None, None, 0)


def test_the_same_case_many_times_tells_as_much_as_once() -> None:
    assert win_rate([known(1.0)] * 12, cluster_numbers=[0] * 12).shown == 0


@pytest.mark.battery
def test_intervals_of_win_rates_hold_what_they_promise() -> None:
    rng = Random(29)
    for won, tied, n in ((0.3, 0.4, 60), (0.5, 0.1, 40), (0.2, 0.7, 100)):
        truth, covered, shown = won + tied / 2, 0, 0
        for _ in range(2_000):
            draws = [rng.random() for _ in range(n)]
            found = win_rate([known(1.0 if x < won else 0.5 if x < won + tied else 0.0) for x in draws])
            assert found.low is not None
            assert found.high is not None
            covered += found.low <= truth <= found.high
            shown += found.shown == -1
        assert covered / 2_000 > 0.94, (won, tied, n)
        if truth >= 0.5:
            assert shown / 2_000 < 0.03


@pytest.mark.battery
def test_intervals_of_strengths_hold_what_they_promise() -> None:
    rng = Random(31)
    truth = [0.0, 0.6, -0.4]
    chance = {
        (one, other): 1 / (1 + math.exp(truth[other] - truth[one])) for one in range(3) for other in range(one + 1, 3)
    }
    covered = [0, 0, 0]
    for round_ in range(300):
        cases = [{pair: known(float(rng.random() < rate)) for pair, rate in chance.items()} for _ in range(40)]
        for run, found in enumerate(strengths(cases, 3, seed=round_, draws=300)):
            assert found.low is not None
            assert found.high is not None
            covered[run] += found.low <= truth[run] <= found.high
    assert min(covered) / 300 > 0.91, covered
