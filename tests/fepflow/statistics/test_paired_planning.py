import math
from random import Random

import pytest

from fepflow.statistics.estimate import PROPORTION, Scale
from fepflow.statistics.means import CaseValue
from fepflow.statistics.paired import paired_estimate
from fepflow.statistics.planning import (
    approximate_pairs,
    detectable_regression,
    pairs_for_power,
    power_of_pairs,
    simulated_power_of_pairs,
)


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
