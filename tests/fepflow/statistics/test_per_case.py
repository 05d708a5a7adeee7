from itertools import combinations
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fepflow.statistics.estimate import PROPORTION, Counts, Scale
from fepflow.statistics.means import CaseValue, estimate_of_cases, k_of_repeats, majority, pass_at_k, pass_hat_k, worst

SHARES = Scale(0.0, 1.0)


def passes(passed: int, n: int) -> list[float]:
    return [1.0] * passed + [0.0] * (n - passed)


def test_pass_at_k_and_pass_hat_k_of_three_of_five() -> None:
    ks = range(1, 6)
    assert [pass_at_k(5, 3, k) for k in ks] == pytest.approx([0.6, 0.9, 1, 1, 1])
    assert [pass_hat_k(5, 3, k) for k in ks] == pytest.approx([0.6, 0.3, 0.1, 0, 0])


@given(st.integers(1, 8), st.data())
def test_they_are_the_shares_of_all_draws_of_k(n: int, data: st.DataObject) -> None:
    passed, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    draws = list(combinations(passes(passed, n), k))
    assert pass_at_k(n, passed, k) == pytest.approx(fmean(any(draw) for draw in draws))
    assert pass_hat_k(n, passed, k) == pytest.approx(fmean(all(draw) for draw in draws))


@pytest.mark.parametrize("k", [0, -1, 4])
def test_no_more_can_be_drawn_than_there_are(k: int) -> None:
    with pytest.raises(ValueError, match="cannot be drawn"):
        pass_at_k(3, 1, k)


def test_the_mean_of_pass_hat_2_over_cases_has_the_interval_of_bounded_scores() -> None:
    cases = [k_of_repeats(passes(passed, 5), 5, 2, every=True) for passed in (5, 5, 4, 3, 0)]
    result = estimate_of_cases(cases, Counts(5, 5), scale=SHARES)
    assert (result.value, result.low, result.high) == pytest.approx((0.58, 0.24427, 0.85507), abs=5e-6)
    assert result.method == "bounded"


def test_a_majority_is_more_than_half_of_the_repeats() -> None:
    assert majority(passes(2, 3), 3) == CaseValue(1, 1, 1)
    assert majority(passes(2, 4), 4) == CaseValue(0, 0, 0)
    assert majority(passes(2, 2), 3) == CaseValue(1, 1, 1), "the missing one cannot turn it"
    assert majority(passes(1, 2), 3) == CaseValue(0, 0, 1)
    assert majority([], 3) == CaseValue(None, 0, 1)


def test_the_worst_of_missing_repeats_may_be_the_least_that_there_is() -> None:
    assert worst([3.0, 5.0], 2, Scale(1, 5)) == CaseValue(3, 3, 3)
    assert worst([3.0, 5.0], 3, Scale(1, 5)) == CaseValue(3, 1, 3)
    assert worst([1.0], 3, Scale(1, 5)) == CaseValue(1, 1, 1), "it cannot get worse"
    assert worst([], 3, Scale(1, 5)) == CaseValue(None, 1, 5)


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=6), st.data())
def test_what_is_missing_is_bounded_by_every_completion(repeats: list[float], data: st.DataObject) -> None:
    n, came = len(repeats), repeats[: data.draw(st.integers(0, len(repeats)))]
    k = data.draw(st.integers(1, n))
    for of in (
        lambda values: k_of_repeats(values, n, k, every=False),
        lambda values: k_of_repeats(values, n, k, every=True),
        lambda values: majority(values, n),
        lambda values: worst(values, n, PROPORTION),
    ):
        partial, whole = of(came), of(repeats)
        assert whole.value == whole.least == whole.most
        assert partial.least <= whole.value <= partial.most
        if partial.value is not None:
            assert 0 <= partial.value <= 1


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=3, max_size=3), min_size=1, max_size=12), st.data())
def test_losing_repeats_only_ever_widens_the_interval(cases: list[list[float]], data: st.DataObject) -> None:
    kept = [case[: data.draw(st.integers(0, 3))] for case in cases]
    every = data.draw(st.booleans())
    values = [k_of_repeats(case, 3, 2, every=every) for case in kept]
    known = sum(value.least == value.most for value in values)
    result = estimate_of_cases(values, Counts(len(cases), known, len(cases) - known), scale=SHARES)
    whole = [k_of_repeats(case, 3, 2, every=every) for case in cases]
    complete = estimate_of_cases(whole, Counts(len(cases), len(cases)), scale=SHARES)
    if result.value is not None:
        assert result.low <= complete.low + 1e-12
        assert result.high >= complete.high - 1e-12
        assert result.point_range[0] <= complete.value + 1e-12
        assert result.point_range[1] >= complete.value - 1e-12


def test_without_any_value_there_is_no_estimate() -> None:
    result = estimate_of_cases([CaseValue(None, 0, 1)] * 3, Counts(3, 0, 3))
    assert (result.value, result.low, result.high, result.counts.expected) == (None, None, None, 3)
