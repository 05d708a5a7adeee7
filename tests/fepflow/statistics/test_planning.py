"""Planning: the number of test cases for a minimum and for a comparison, and what more calls would tell."""

from __future__ import annotations

import math
from itertools import product
from random import Random

import pytest
import scipy  # its parts are loaded when they are used

from fepflow.statistics.estimate import PROPORTION, Counts, Scale
from fepflow.statistics.means import CaseValue, mean_estimate
from fepflow.statistics.paired import paired_estimate
from fepflow.statistics.planning import (
    _low,
    approximate_pairs,
    cases_for_power,
    cases_with_repeats,
    detectable_regression,
    intraclass_correlation,
    pairs_for_power,
    power,
    power_of_pairs,
    simulated_power,
    simulated_power_of_pairs,
    variance_parts,
)
from fepflow.statistics.proportions import IntervalKind, interval_of


@pytest.mark.parametrize(
    ("minimum", "expected", "cases"),
    [(0.9, 0.95, 254), (0.9, 0.97, 113), (0.8, 0.9, 112), (0.95, 0.98, 337), (0.95, 0.99, 173), (0.5, 0.6, 198)],
)
def test_golden_numbers_of_cases(minimum: float, expected: float, cases: int) -> None:
    assert cases_for_power(minimum, expected, 0.8) == cases


@pytest.mark.parametrize("kind", ["wilson", "clopper-pearson"])
def test_power_is_the_chance_of_enough_passes(kind: IntervalKind) -> None:
    for n, (minimum, confidence) in product((1, 10, 34, 35, 100, 254), ((0.9, 0.95), (0.5, 0.99))):
        shown = [k for k in range(n + 1) if interval_of(kind, k / n, n, confidence)[0] >= minimum]
        expected = scipy.special.bdtrc(shown[0] - 1, n, 0.95) if shown else 0.0
        chance = power(n, minimum, 0.95, confidence=confidence, kind=kind)
        assert chance == pytest.approx(expected, abs=1e-12), (n, minimum)


def test_power_stays_from_there_on() -> None:
    n = cases_for_power(0.9, 0.95, 0.8)
    assert all(power(more, 0.9, 0.95) >= 0.8 for more in range(n, n + 64))
    assert power(n - 1, 0.9, 0.95) < 0.8


def test_the_ends() -> None:
    assert cases_for_power(0.9, 1.0, 0.8) == 35
    assert cases_for_power(0.0, 0.5, 0.99) == 1
    assert cases_for_power(0.9, 0.901, 0.8) is None
    for minimum, expected, wanted in ((0.9, 0.9, 0.8), (1.0, 1.0, 0.8), (0.9, 0.95, 1.0), (math.nan, 1.0, 0.8)):
        with pytest.raises(ValueError, match="no number of cases shows"):
            cases_for_power(minimum, expected, wanted)


def test_how_far_repeats_agree() -> None:
    assert intraclass_correlation([[1, 1, 1], [1, 0, 1], [0, 0, 1], [1, 1, 1], [0, 0, 0]]) == pytest.approx(0.52)
    assert intraclass_correlation([[1, 1], [0, 0]] * 5) == 1
    assert intraclass_correlation([[1, 0], [0, 1]] * 5) == 0
    assert intraclass_correlation([]) is None
    for nothing in ([[1.0, 0.0]], [[1.0], [0.0]], [[1.0, 1.0], [1.0, 1.0]]):
        assert intraclass_correlation(nothing) is None


def test_repeats_that_agree_fully_are_simulated_as_one() -> None:
    assert simulated_power(60, 0.9, 0.98, 3, 1.0) == pytest.approx(power(60, 0.9, 0.98), abs=0.05)


@pytest.mark.battery
def test_repeats_that_agree_fully_add_nothing_and_others_do() -> None:
    assert cases_with_repeats(0.9, 0.95, 0.8, 3, 1.0) == 254
    assert cases_with_repeats(0.9, 0.95, 0.8, 1, 0.3) == 254
    independent, half = (cases_with_repeats(0.9, 0.95, 0.8, 3, rho) for rho in (0.0, 0.52))
    assert 254 / 3 < independent < 0.45 * 254
    assert independent < half < 254
    assert simulated_power(half, 0.9, 0.95, 3, 0.52) == pytest.approx(0.8, abs=0.04)


def test_what_is_simulated_is_the_estimator_of_runs() -> None:
    rng = Random(5)
    passes = [rng.randint(0, 3) for _ in range(40)]
    values = [[1.0] * count + [0.0] * (3 - count) for count in passes]
    real = mean_estimate(values, Counts(120, 120), scale=PROPORTION)
    assert _low(passes, 3, 0.5, 0.95, "wilson") == pytest.approx(real.low)


def drawn(rng: Random, cases: int, better: float, worse: float) -> list[CaseValue]:
    """Cases of yes or no that are better, or worse, with these rates."""
    values = [1.0 if (u := rng.random()) < better else -1.0 if u < better + worse else 0.0 for _ in range(cases)]
    return [CaseValue(value, value, value) for value in values]


def test_the_formula_is_too_hopeful() -> None:
    """The formula gives 314 pairs, and 76 % of comparisons of so many show it."""
    assert approximate_pairs(0.1, 0.05, 0.8) == 314
    assert power_of_pairs(314, 0.05, 0.1) == pytest.approx(0.763, abs=0.001)
    needed = pairs_for_power(lambda cases: power_of_pairs(cases, 0.05, 0.1), 0.8, 314)
    assert needed == 340
    assert power_of_pairs(needed, 0.05, 0.1) >= 0.8


def test_power_is_how_often_the_rule_passes() -> None:
    rng, shown = Random(1), 0
    passes: dict[int, bool] = {}  # by how many cases are better and worse: a thousand draws have few different ones
    for _ in range(1_000):
        cases = drawn(rng, 150, 0.04, 0.04)
        key = sum(1 if case.value > 0 else 1_000 for case in cases if case.value)
        if key not in passes:
            passes[key] = paired_estimate(cases, 0.95, PROPORTION).low >= -0.08
        shown += passes[key]
    assert power_of_pairs(150, 0.08, 0.08) == pytest.approx(shown / 1_000, abs=2.5 * 0.5 / math.sqrt(1_000))


def test_power_at_the_ends() -> None:
    assert power_of_pairs(73, 0.05, 0.0) == 1, "none differs"
    assert power_of_pairs(72, 0.05, 0.0) == 0
    assert power_of_pairs(10, 0.05, 1.0) == pytest.approx(56 / 1024), "all differ, and eight at least are better"
    assert pairs_for_power(lambda cases: power_of_pairs(cases, 0.0001, 0.2), 0.8, 30_000) is None


def test_repeats_are_simulated_with_the_interval_that_judges_them() -> None:
    differences = [1 / 3] * 10 + [-2 / 3] * 5 + [0.0] * 85
    rng, shown = Random(2), 0
    for _ in range(300):
        values = [rng.choice(differences) * rng.choice((-1, 1)) for _ in range(100)]
        estimate = paired_estimate([CaseValue(value, value, value) for value in values], 0.95, Scale(0.0, 1.0))
        shown += estimate.low >= -0.06
    assert simulated_power_of_pairs(100, 0.06, differences) == pytest.approx(shown / 300, abs=0.08)


@pytest.mark.parametrize(("cases", "better", "worse"), [(100, 3, 12), (200, 10, 10), (100, 0, 0), (500, 30, 45)])
@pytest.mark.battery
def test_a_detectable_regression_is_shown_in_four_of_five_comparisons(cases: int, better: int, worse: int) -> None:
    values = [1.0] * better + [-1.0] * worse + [0.0] * (cases - better - worse)
    seen = paired_estimate([CaseValue(value, value, value) for value in values], 0.95, PROPORTION)
    least = detectable_regression(seen)
    assert least is not None
    differing = max((better + worse) / cases, least)
    rng, shown = Random(3), 0
    for _ in range(400):
        sample = drawn(rng, cases, (differing - least) / 2, (differing + least) / 2)
        shown += paired_estimate(sample, 0.95, PROPORTION).high < 0
    assert 0.72 < shown / 400 < 0.88


def values_drawn(rng: Random, cases: int, runs: int, repeats: int) -> list[list[list[float]]]:
    """Values whose parts are 4 (cases), 1 (runs) and 2 (repeats)."""
    of_cases = [rng.gauss(0, 2) for _ in range(cases)]
    of_runs = [rng.gauss(0, 1) for _ in range(runs)]
    return [[[case + run + rng.gauss(0, math.sqrt(2)) for _ in range(repeats)] for case in of_cases] for run in of_runs]


@pytest.mark.parametrize(("runs", "repeats"), [(8, 1), (8, 3), (1, 3)])
def test_the_parts_are_found_again(runs: int, repeats: int) -> None:
    rng = Random(f"{runs} {repeats}")
    found = [variance_parts(values_drawn(rng, 60, runs, repeats)) for _ in range(60)]
    assert sum(parts.case for parts in found) / 60 == pytest.approx(4, rel=0.1)
    assert sum(parts.repeat for parts in found) / 60 == pytest.approx(2, rel=0.1)
    if runs > 1:
        assert sum(parts.run for parts in found) / 60 == pytest.approx(1, rel=0.2)
    else:
        assert {parts.run for parts in found} == {None}


def test_twice_as_many_cases_narrow_most() -> None:
    parts = variance_parts([[[1, 1], [0, 1], [0, 0], [1, 1], [1, 0]]], votes=[[1, 1, 0], [1, 1, 1]])
    assert parts is not None
    assert parts.judge == pytest.approx((2 / 9 / 2 + 0) / 2)
    narrowing = parts.narrowing(2)
    assert narrowing["cases"] == pytest.approx(1 - math.sqrt(0.5))
    assert narrowing["cases"] > narrowing["repeats"] > narrowing["judge_samples"] > 0


def test_one_run_without_repeats_tells_nothing() -> None:
    assert variance_parts([[[1.0], [0.0]]]) is None
    assert variance_parts([[[1.0, 0.0]]]) is None
    assert variance_parts([]) is None
