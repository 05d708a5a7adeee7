"""The estimate of a mean, of values without a range and of scores on a scale."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fepflow.statistics.estimate import Counts, Scale
from fepflow.statistics.means import Moments, mean_estimate
from fepflow.statistics.proportions import wilson_interval

from .estimates import CONFIDENCES, ZERO_TO_ONE, bounds, estimate, low, repeated, unbounded


class TestMeans:
    def test_the_interval_is_students(self) -> None:
        result = unbounded([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0])
        assert result.method == "t"
        assert result.stderr == pytest.approx(math.sqrt(32 / 7 / 8))
        margin = 2.3646 * math.sqrt(4 / 7)  # the table's t for 7 degrees of freedom
        assert bounds(result) == pytest.approx((5 - margin, 5 + margin), abs=1e-4)

    def test_repeats_are_averaged_within_their_case(self) -> None:
        result = repeated([[1.0, 3.0], [4.0, 4.0], [5.0, 7.0]], scale=None)
        once = unbounded([2.0, 4.0, 6.0])
        assert result.method == "t-clustered"
        assert bounds(result) == pytest.approx(bounds(once))

    def test_a_single_case_shows_no_spread_however_often_it_is_repeated(self) -> None:
        result = repeated([[0.5, 0.6, 0.7]], scale=None)
        assert result.value == pytest.approx(0.6)
        assert (result.stderr, result.low, result.high) == (None, None, None)

    @given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
    def test_the_interval_holds_the_value(self, values: list[float]) -> None:
        result = unbounded(values)
        assert result.value is not None
        assert low(result) <= result.value <= bounds(result)[1]

    def test_scores_that_happen_to_be_zeros_and_ones_are_no_proportion(self) -> None:
        assert unbounded([0.0, 1.0, 0.0]).method == "t"
        assert unbounded([0.0] * 97, missing=3).high is None

    def test_no_rule_rests_on_it_however_many_values_there_are(self) -> None:
        result = unbounded([0.0, 1.0] * 5_000)
        assert result.low is not None
        assert result.interval == (-math.inf, math.inf)
        assert result.warning is not None
        assert "declare range: [least, most]" in result.warning


class TestScores:
    """Means of scores with a range."""

    @pytest.mark.parametrize(
        ("values", "expected"),
        [([1.0] * 34 + [0.99], (0.901066, 0.999999)), ([0.9] * 10, (0.67302, 0.97522))],
    )
    def test_known_intervals(self, values: list[float], expected: tuple[float, float]) -> None:
        result = estimate(values, scale=ZERO_TO_ONE)
        assert result.method == "bounded"
        assert bounds(result) == pytest.approx(expected, abs=5e-6)

    def test_the_scale_of_the_scores_does_not_matter(self) -> None:
        shares = [0.2, 0.5, 0.5, 1.0, 0.75]
        once = bounds(estimate(shares, scale=ZERO_TO_ONE))
        stars = bounds(estimate([1 + 4 * share for share in shares], scale=Scale(1.0, 5.0)))
        assert stars == pytest.approx([1 + 4 * bound for bound in once])

    def test_scores_at_the_ends_only_have_wilsons_interval(self) -> None:
        values = [1.0] * 30 + [0.0] * 5
        assert bounds(estimate(values, scale=ZERO_TO_ONE)) == pytest.approx(bounds(estimate(values)))

    def test_missing_results_are_at_the_worst_end_and_each_case_counts_once(self) -> None:
        result = estimate([4.0] * 8, missing=2, scale=Scale(1.0, 5.0))
        assert bounds(result) == pytest.approx(
            (1 + 4 * wilson_interval(0.6, 10)[0], 1 + 4 * wilson_interval(0.8, 10)[1])
        )
        assert [result.least, result.most] == pytest.approx([3.4, 4.2])

    @given(st.integers(1, 4), st.data(), CONFIDENCES)
    def test_whatever_the_missing_would_have_been_the_interval_was_wider(
        self, repeats: int, data: st.DataObject, confidence: float
    ) -> None:
        case = st.lists(st.floats(0, 1), min_size=repeats, max_size=repeats)
        cases = data.draw(st.lists(case, min_size=1, max_size=12))
        kept = [[value for value in case if data.draw(st.booleans())] for case in cases]
        completed, expected = sum(map(len, kept)), len(cases) * repeats
        if completed:
            partly = mean_estimate(kept, Counts(expected, completed), confidence, ZERO_TO_ONE)
            whole = repeated(cases, confidence, ZERO_TO_ONE)
            assert bounds(partly)[0] <= bounds(whole)[0] + 1e-12
            assert bounds(whole)[1] <= bounds(partly)[1] + 1e-12
            assert partly.least is not None
            assert whole.value is not None
            assert partly.least <= whole.value

    @pytest.mark.parametrize(
        ("draw", "truth"),
        [
            (lambda source: 0.0 if source.random() < 0.02 else 0.98 + 0.04 * (source.random() - 0.5), 0.9604),
            (lambda source: source.choice([1.0] * 95 + [0.0, 0.25, 0.5, 0.75, 0.75]), 0.9725),
            (lambda source: source.betavariate(9, 1), 0.9),
        ],
        ids=["near 1 and 2 % zero", "95 % full marks", "beta(9, 1)"],
    )
    @pytest.mark.battery
    def test_the_low_bound_is_above_the_truth_as_seldom_as_promised(self, draw, truth: float) -> None:
        source = random.Random(20250825)
        for n in (10, 35, 100):
            above = sum(low(estimate([draw(source) for _ in range(n)], scale=ZERO_TO_ONE)) > truth for _ in range(400))
            assert above / 400 <= 0.025, n


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
