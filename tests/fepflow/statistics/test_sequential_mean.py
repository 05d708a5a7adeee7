"""Means whose interval may be looked at again and again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fepflow.statistics.estimate import PROPORTION, Counts, Estimate, Scale
from fepflow.statistics.means import mean_estimate
from fepflow.statistics.sequential import Values, confidence_sequence, sequential_estimate

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
