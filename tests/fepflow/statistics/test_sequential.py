"""Intervals that may be looked at again and again, or at a few planned looks."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from random import Random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fepflow.statistics.estimate import PROPORTION, Counts, Estimate, Scale
from fepflow.statistics.means import mean_estimate
from fepflow.statistics.proportions import wilson_interval, z_score
from fepflow.statistics.sequential import (
    Values,
    boundaries,
    confidence_of_look,
    confidence_sequence,
    group_sequential_estimate,
    is_shown_above,
    log_e_above,
    nominal_confidence,
    passes_in_a_row,
    sequential_estimate,
)

RUNS = 1_000
LIMIT = math.log(40)
"""What evidence has to reach, at 95 %."""

SHARES = st.lists(st.floats(0, 1), max_size=60)
MINIMA = st.sampled_from([0.01, 0.2, 0.5, 0.8, 0.9, 0.99])


def log_e_below(values: Values, m: float) -> float:
    """The evidence that the mean is less than `m`."""
    return log_e_above(values.mirrored, 1 - m)


def decide(values: Values, minimum: float, limit: float = LIMIT) -> str:
    """What the evidence shows of a minimum."""
    if log_e_above(values, minimum) >= limit:
        return "pass"
    return "fail" if log_e_below(values, minimum) >= limit else "inconclusive"


def e_above(passed: int, failed: int, m: float) -> float:
    return math.exp(log_e_above(Values.of_passes(passed, failed), m))


def test_golden_values() -> None:
    assert e_above(60, 0, 0.9) == pytest.approx(82.356, abs=5e-4)
    assert e_above(190, 10, 0.9) == pytest.approx(11.385, abs=5e-4)
    assert [passes_in_a_row(m) for m in (0.5, 0.8, 0.9, 0.95, 0.99)] == [8, 25, 52, 107, 545]


@given(SHARES, MINIMA)
def test_it_is_the_mean_wealth_of_twenty_gamblers(values: list[float], m: float) -> None:
    wealth = []
    for j in range(1, 21):
        q = m + (1 - m) * j / 21
        bet = (q - m) / (m * (1 - m))
        wealth.append(math.prod(1 + bet * (y - m) for y in values))
    assert log_e_above(Values.of(values), m) == pytest.approx(math.log(fmean(wealth)), rel=1e-6, abs=1e-6)
    assert log_e_below(Values.of(values), m) == pytest.approx(log_e_above(Values.of(1 - y for y in values), 1 - m))


def test_nothing_shows_nothing() -> None:
    assert log_e_above(Values.of([]), 0.9) == pytest.approx(0)
    assert decide(Values.of([]), 0.9) == "inconclusive"
    assert confidence_sequence(Values.of([])) == (0, 1)


def test_52_passes_show_a_minimum_of_90_percent_and_51_do_not() -> None:
    assert decide(Values.of_passes(51, 0), 0.9) == "inconclusive"
    assert decide(Values.of_passes(52, 0), 0.9) == "pass"
    assert decide(Values.of_passes(0, 2), 0.9) == "inconclusive"
    assert decide(Values.of_passes(0, 3), 0.9) == "fail"


@given(SHARES, st.floats(0.001, 0.999), st.sampled_from([0.8, 0.95, 0.99]))
def test_the_confidence_sequence_decides_as_the_e_process_does(
    shares: list[float], minimum: float, confidence: float
) -> None:
    values = Values.of(shares)
    low, high = confidence_sequence(values, confidence)
    assert 0 <= low <= (values.mean if shares else low) <= high <= 1
    if min(abs(minimum - low), abs(minimum - high)) > 1e-9:
        expected = "pass" if low > minimum else "fail" if high < minimum else "inconclusive"
        assert decide(values, minimum, math.log(2 / (1 - confidence))) == expected


@given(SHARES, st.floats(0, 1), MINIMA)
def test_a_better_value_never_speaks_against_the_mean(shares: list[float], more: float, m: float) -> None:
    better = [min(value + more, 1.0) for value in shares]
    assert log_e_above(Values.of(better), m) >= log_e_above(Values.of(shares), m) - 1e-9


@pytest.mark.parametrize("hostile", [math.nan, math.inf, -math.inf, 1e308, -0.1, 1.1])
def test_values_beyond_the_range_are_refused(hostile: float) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        Values.of([0.5, hostile])


def test_other_numbers_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        log_e_above(Values.of([1.0]), 1.0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        confidence_sequence(Values.of([1.0]), confidence=1.0)


def test_a_million_results_do_not_overflow() -> None:
    values = Values.of_passes(950_000, 50_000)
    assert decide(values, 0.9) == "pass"
    assert decide(values, 0.98) == "fail"
    low, high = confidence_sequence(values)
    assert 0.9 < low < 0.95 < high < 0.98


def test_equal_values_show_no_more_than_they_are_worth() -> None:
    assert decide(Values.of([0.9] * 10_000), 0.9) == "inconclusive"
    assert decide(Values.of([0.9]), 0.5) == "inconclusive"


def outcomes(rate: float, repeats: int = 1) -> tuple[float, float, float]:
    """How often runs pass and fail a minimum of 0.9 if one looks after each ten cases of 1,000, and their mean length.

    With repeats a case's value is its mean, and each case has a rate of its own.
    """
    rng, passed, failed, looked = Random(f"{rate} {repeats}"), 0, 0, 0
    for _ in range(RUNS):
        shares: Counter[float] = Counter()
        decision = "inconclusive"
        while decision == "inconclusive" and shares.total() < 1_000:
            for _ in range(10):
                own = rate if repeats == 1 else rng.betavariate(2 * rate, 2 * (1 - rate))
                shares[sum(rng.random() < own for _ in range(repeats)) / repeats] += 1
            decision = decide(Values(tuple((share, count, 1.0) for share, count in shares.items())), 0.9)
        passed, failed, looked = passed + (decision == "pass"), failed + (decision == "fail"), looked + shares.total()
    return passed / RUNS, failed / RUNS, looked / RUNS


@pytest.mark.battery
@pytest.mark.parametrize("repeats", [1, 3])
def test_looking_often_passes_and_fails_no_more_at_the_boundary(repeats: int) -> None:
    passed, failed, _ = outcomes(0.9, repeats)
    assert passed <= 0.03
    assert failed <= 0.03


@pytest.mark.battery
@pytest.mark.parametrize(("rate", "length"), [(0.8, 136), (0.97, 128), (0.99, 74)])
def test_what_is_far_from_the_boundary_takes_few_cases(rate: float, length: float) -> None:
    passed, failed, looked = outcomes(rate)
    assert (failed if rate < 0.9 else passed) > 0.99
    assert looked == pytest.approx(length, rel=0.06)


@pytest.mark.battery
@pytest.mark.parametrize(
    ("rate", "mean", "open_at_400"), [(0.8, 161, 0.01), (0.95, 313, 0.22), (0.97, 135, 0.0), (0.99, 71, 0.0)]
)
def test_a_topped_up_run_needs_as_many_cases_as_its_page_says(rate: float, mean: float, open_at_400: float) -> None:
    """Against a minimum of 0.9, from 52 cases on, a quarter more each time; the table of docs/verdict.md."""
    rng, runs, made, still_open = Random(f"{rate} sizes"), 1_000, 0, 0
    for _ in range(runs):
        n = 52
        passed = sum(rng.random() < rate for _ in range(n))
        while not (
            is_shown_above(Values.of_passes(passed, n - passed), 0.9)
            or is_shown_above(Values.of_passes(n - passed, passed), 0.1)
        ):
            more = math.ceil(n / 4)
            passed, n = passed + sum(rng.random() < rate for _ in range(more)), n + more
        made, still_open = made + n, still_open + (n > 400)
    assert made / runs == pytest.approx(mean, rel=0.08)
    assert still_open / runs == pytest.approx(open_at_400, abs=0.05)


def test_the_confidence_of_all_looks_together_is_that_of_one() -> None:
    assert [round(confidence_of_look(0.95, look), 6) for look in (1, 2, 3, 20)] == [
        0.969604,
        0.992401,
        0.996623,
        0.999924,
    ]
    spent = sum(1 - confidence_of_look(0.95, look) for look in range(1, 100_000))
    assert spent == pytest.approx(0.05, abs=1e-6)


CASES = st.lists(st.lists(st.sampled_from([0.0, 1.0]), max_size=3), min_size=1, max_size=30)


def estimated(
    cases: Sequence[Sequence[float]], repeats: int, scale: Scale = PROPORTION, *, these_cases: bool = False
) -> Estimate:
    completed, expected = sum(map(len, cases)), len(cases) * repeats
    counts = Counts(expected, completed, expected - completed)
    return sequential_estimate(
        mean_estimate(cases, counts, scale=scale), cases, repeats, scale, these_cases=these_cases
    )


def test_complete_results_have_the_confidence_sequence_of_their_values() -> None:
    passes = [[1.0]] * 60
    assert estimated(passes, 1).interval == confidence_sequence(Values.of([1.0] * 60))
    of_these = estimated([[1.0] * 3] * 20, 3, these_cases=True)
    assert of_these.interval == estimated(passes, 1).interval, "of these cases each result counts"
    of_all = estimated([[1.0] * 3] * 20, 3)
    assert of_all.interval == estimated([[1.0]] * 20, 1).interval, "of all such cases each case does"


def test_scores_are_judged_on_their_scale() -> None:
    shares, scores = estimated([[0.75], [0.5]] * 30, 1, Scale(0, 1)), estimated([[4.0], [3.0]] * 30, 1, Scale(1, 5))
    assert scores.interval == pytest.approx(tuple(1 + 4 * end for end in shares.interval))
    assert scores.value == 3.5


@given(CASES, st.booleans())
def test_what_is_missing_could_be_anything(cases: list[list[float]], these_cases: bool) -> None:
    found = estimated(cases, 3, these_cases=these_cases)
    if found.value is None:
        return
    low, high = found.interval
    for end in (0.0, 1.0):
        complete = estimated([[*case, *[end] * (3 - len(case))] for case in cases], 3, these_cases=these_cases)
        assert low <= complete.interval[0] + 1e-9
        assert high >= complete.interval[1] - 1e-9


def test_more_cases_like_these_are_said_to_settle_it() -> None:
    found = estimated([[1.0]] * 30, 1)
    assert found.sample is not None
    assert found.sample.with_cases(52, 0.95)[0] == pytest.approx(0.9, abs=1e-3)
    assert found.at(0.99).interval[0] < found.interval[0]
    assert found.at(0.99).confidence == 0.99


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        (1, [1.960]),
        (2, [2.963, 1.969]),
        (3, [3.710, 2.511, 1.993]),
        (4, [4.333, 2.963, 2.359, 2.014]),
        (5, [4.877, 3.357, 2.680, 2.290, 2.031]),
    ],
)
def test_golden_boundaries(looks: int, expected: list[float]) -> None:
    assert boundaries(looks) == pytest.approx(expected, abs=0.0006)


def test_boundaries_fall_and_the_last_is_above_that_of_one_look() -> None:
    for confidence in (0.9, 0.95, 0.995):
        limits = boundaries(10, confidence)
        assert list(limits) == sorted(limits, reverse=True)
        assert limits[-1] > z_score(confidence)
    with pytest.raises(ValueError, match="1 to 10 looks"):
        boundaries(11)


def test_an_interval_is_that_of_its_looks_boundary() -> None:
    plain = mean_estimate([[1.0]] * 96 + [[0.0]] * 4, Counts(100, 100), scale=PROPORTION)
    first, last = (group_sequential_estimate(plain, look, 4) for look in (1, 4))
    assert (first.low, first.high) == pytest.approx(wilson_interval(0.96, 100, nominal_confidence(1, 4, 0.95)))
    assert first.low < last.low < plain.low
    assert (last.confidence, last.method, last.counts) == (0.95, "sequential-few-looks", plain.counts)
    wider = last.at(0.975)
    assert wider.low < last.low
    assert (wider.confidence, wider.at(0.95)) == (0.975, last)
    assert last.sample.with_cases(400, 0.95)[0] > last.low


def test_without_a_value_there_is_no_interval() -> None:
    nothing = mean_estimate([[], []], Counts(2, 0, error=2), scale=PROPORTION)
    assert group_sequential_estimate(nothing, 1, 4) is nothing
