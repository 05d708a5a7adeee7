import math
from random import Random

import pytest
import scipy  # its parts are loaded when they are used

from fepflow.statistics.estimate import PROPORTION, Counts
from fepflow.statistics.means import mean_estimate
from fepflow.statistics.planning import (
    _low,
    cases_for_power,
    cases_with_repeats,
    intraclass_correlation,
    power,
    simulated_power,
)


@pytest.mark.parametrize(
    ("minimum", "expected", "cases"),
    [(0.9, 0.95, 254), (0.9, 0.97, 113), (0.8, 0.9, 112), (0.95, 0.98, 337), (0.95, 0.99, 173), (0.5, 0.6, 198)],
)
def test_golden_numbers_of_cases(minimum: float, expected: float, cases: int) -> None:
    assert cases_for_power(minimum, expected, 0.8) == cases


@pytest.mark.parametrize("n", [1, 10, 34, 35, 100, 254])
@pytest.mark.parametrize(("kind", "method"), [("wilson", "wilson"), ("clopper-pearson", "beta")])
def test_power_is_the_chance_of_enough_passes(n: int, kind, method: str) -> None:
    from statsmodels.stats.proportion import proportion_confint

    shown = [k for k in range(n + 1) if proportion_confint(k, n, method=method)[0] >= 0.9]
    expected = scipy.stats.binom.sf(shown[0] - 1, n, 0.95) if shown else 0.0
    assert power(n, 0.9, 0.95, kind=kind) == pytest.approx(expected, abs=1e-12)


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
