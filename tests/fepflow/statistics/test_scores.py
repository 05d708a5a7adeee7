"""The bounds of a mean of scores, by their moments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fepflow.statistics.means import Moments
from fepflow.statistics.proportions import wilson_interval


@given(st.integers(0, 60), st.integers(1, 60), st.floats(0.05, 1))
def test_scores_of_0_or_another_number_have_wilsons_bound_of_that_share(good: int, bad: int, score: float) -> None:
    n = good + bad
    expected = score * wilson_interval(good / n, n)[0]
    whole = Moments.of([score] * good + [0.0] * bad)
    assert whole.low("skewed", 0.95) == pytest.approx(expected, abs=1e-9)
    assert whole._replace(cube=None).low("skewed", 0.95) == pytest.approx(expected, abs=1e-9)


def test_scores_that_are_all_the_same_leave_room_for_those_that_did_not_come() -> None:
    assert Moments.of([0.9] * 10).low("skewed", 0.95) == pytest.approx(0.9 * wilson_interval(1.0, 10)[0])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=60))
def test_the_bound_is_below_the_mean_and_lower_where_less_is_known(scores: list[float]) -> None:
    moments = Moments.of(scores)
    low = moments.low("skewed", 0.95)
    assert 0 <= low <= moments.mean + 1e-12
    assert moments.low("skewed", 0.99) <= low + 1e-9
    assert moments._replace(cube=None).low("clopper-pearson", 0.95) == moments.low("clopper-pearson", 0.95)
