import math
from random import Random

import pytest

from fepflow.statistics.planning import variance_parts


def drawn(rng: Random, cases: int, runs: int, repeats: int) -> list[list[list[float]]]:
    """Values whose parts are 4 (cases), 1 (runs) and 2 (repeats)."""
    of_cases = [rng.gauss(0, 2) for _ in range(cases)]
    of_runs = [rng.gauss(0, 1) for _ in range(runs)]
    return [[[case + run + rng.gauss(0, math.sqrt(2)) for _ in range(repeats)] for case in of_cases] for run in of_runs]


@pytest.mark.parametrize(("runs", "repeats"), [(8, 1), (8, 3), (1, 3)])
def test_the_parts_are_found_again(runs: int, repeats: int) -> None:
    rng = Random(f"{runs} {repeats}")
    found = [variance_parts(drawn(rng, 60, runs, repeats)) for _ in range(60)]
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
