"""The estimate of a proportion: missing data, repeats, and what is refused."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fepflow.statistics.estimate import PROPORTION, Counts, Estimate, Scale
from fepflow.statistics.means import mean_estimate
from fepflow.statistics.proportions import wilson_interval

from .estimates import CONFIDENCES, ZERO_TO_ONE, bounds, estimate, low, repeated, unbounded


class TestProportions:
    def test_thirty_five_of_thirty_five_show_ninety_percent_and_thirty_four_do_not(self) -> None:
        assert low(estimate([1] * 35)) >= 0.9
        assert low(estimate([1] * 34)) < 0.9

    def test_the_interval_is_wilsons(self) -> None:
        result = estimate([1.0] * 81 + [0.0] * 182)
        assert result.method == "wilson"
        assert result.value == pytest.approx(81 / 263)
        assert bounds(result) == pytest.approx((0.2553, 0.3662), abs=1e-4)  # Newcombe 1998, table I, method 3

    def test_the_standard_error_is_that_of_the_mean(self) -> None:
        assert estimate([1.0] * 75 + [0.0] * 25).stderr == pytest.approx(math.sqrt(0.75 * 0.25 / 99))

    def test_none_of_n_begins_exactly_at_zero_and_n_of_n_ends_exactly_at_one(self) -> None:
        assert low(estimate([0] * 7)) == 0.0
        assert bounds(estimate([1] * 7))[1] == 1.0

    @given(st.integers(1, 500), st.data(), CONFIDENCES)
    def test_bounds_hold_the_value_and_lie_within_zero_and_one(
        self, n: int, data: st.DataObject, confidence: float
    ) -> None:
        proportion = data.draw(st.integers(0, n)) / n
        lower, upper = wilson_interval(proportion, n, confidence)
        assert 0 <= lower <= proportion <= upper <= 1
        assert lower < upper

    def test_a_wider_confidence_is_a_wider_interval(self) -> None:
        values = [1.0] * 30 + [0.0] * 10
        assert low(estimate(values, confidence=0.99)) < low(estimate(values, confidence=0.9))


class TestMissingData:
    def test_missing_results_count_0_for_the_low_bound_and_1_for_the_high(self) -> None:
        result = estimate([1] * 90, missing=10)
        assert result.value == 1.0
        assert bounds(result) == (wilson_interval(0.9, 100)[0], 1.0)
        assert estimate([0] * 90, missing=10).high == wilson_interval(0.1, 100)[1]

    def test_skipped_and_never_seen_results_weigh_as_much_as_errors(self) -> None:
        cases: list[list[float]] = [[1.0]] * 8 + [[], []]
        errors = mean_estimate(cases, Counts(10, 8, error=2), scale=PROPORTION)
        others = mean_estimate(cases, Counts(10, 8, skipped=1), scale=PROPORTION)
        assert bounds(errors) == bounds(others)

    def test_a_mean_of_unknown_range_with_missing_values_has_no_bounds(self) -> None:
        result = unbounded([0.2, 0.5, 0.7], missing=1)
        assert result.value == pytest.approx(1.4 / 3)
        assert (result.low, result.high, result.method) == (None, None, "t")

    def test_without_values_there_is_no_estimate(self) -> None:
        result = estimate([], missing=4)
        assert (result.value, result.stderr, result.low, result.high) == (None, None, None, None)
        assert result.method == "none"
        assert mean_estimate([], Counts(0, 0)).value is None

    @given(st.lists(st.booleans(), min_size=1, max_size=40), st.data(), CONFIDENCES)
    def test_losing_results_only_ever_widens_the_interval(
        self, passed: list[bool], data: st.DataObject, confidence: float
    ) -> None:
        lost = data.draw(st.integers(0, len(passed) - 1))
        values = [float(value) for value in passed]
        lower, upper = bounds(estimate(values[lost:], missing=lost, confidence=confidence))
        whole = bounds(estimate(values, confidence=confidence))
        assert lower <= whole[0] <= whole[1] <= upper

    @given(st.integers(2, 4), st.data())
    def test_losing_repeats_only_ever_widens_the_interval(self, repeats: int, data: st.DataObject) -> None:
        case = st.lists(st.sampled_from([0.0, 1.0]), min_size=repeats, max_size=repeats)
        cases = data.draw(st.lists(case, min_size=1, max_size=12))
        kept = [[value for value in case if data.draw(st.booleans())] for case in cases]
        completed, expected = sum(map(len, kept)), len(cases) * repeats
        if 0 < completed < expected:
            lower, upper = bounds(
                mean_estimate(kept, Counts(expected, completed, expected - completed), scale=PROPORTION)
            )
            whole = bounds(repeated(cases))
            assert lower <= whole[0] <= whole[1] <= upper


class TestRepeats:
    def test_repeats_that_always_agree_add_nothing(self) -> None:
        result = repeated([[1.0] * 5] * 10)
        assert result.method == "wilson-clustered"
        assert bounds(result) == wilson_interval(1.0, 10)

    def test_repeats_that_differ_within_every_case_add_up_to_their_number(self) -> None:
        mixed = repeated([[1.0, 0.0]] * 20)
        agreeing = repeated([[1.0, 1.0], [0.0, 0.0]] * 10)
        assert bounds(mixed) == pytest.approx(wilson_interval(0.5, 40), abs=0.02)
        assert low(mixed) > low(agreeing)

    def test_the_standard_error_sees_cases_not_values(self) -> None:
        once = estimate([1.0, 0.0, 1.0, 1.0, 0.0])
        thrice = repeated([[1.0] * 3, [0.0] * 3, [1.0] * 3, [1.0] * 3, [0.0] * 3])
        assert thrice.stderr == pytest.approx(once.stderr)

    @given(st.integers(1, 5), st.integers(1, 30), st.data(), CONFIDENCES)
    def test_turning_a_pass_into_a_fail_never_raises_a_bound(
        self, repeats: int, cases: int, data: st.DataObject, confidence: float
    ) -> None:
        passes = data.draw(st.lists(st.integers(0, repeats), min_size=cases, max_size=cases))
        worse = [max(count - data.draw(st.integers(0, 1)), 0) for count in passes]

        def bounds_of(counts: list[int]) -> tuple[float, float]:
            return bounds(repeated([[1.0] * count + [0.0] * (repeats - count) for count in counts], confidence))

        before, after = bounds_of(passes), bounds_of(worse)
        assert after[0] <= before[0] + 1e-12
        assert after[1] <= before[1] + 1e-12

    @pytest.mark.parametrize("consistency", [0.1, 1.0, 5.0], ids=["stubborn cases", "mixed cases", "flaky cases"])
    def test_the_interval_holds_the_truth_as_often_as_it_promises(self, consistency: float) -> None:
        randomness = random.Random(20250825)
        held = 0
        for _ in range(400):
            rates = [randomness.betavariate(4 * consistency, consistency) for _ in range(25)]
            cases = [[float(randomness.random() < rate) for _ in range(4)] for rate in rates]
            lower, upper = bounds(repeated(cases))
            held += lower <= 0.8 <= upper
        assert held / 400 >= 0.94


class TestHugeNumbers:
    """Sums and squares of numbers near the end of what a float can hold."""

    def test_their_mean_is_theirs(self) -> None:
        result = unbounded([1e308, 1e308, 1.5e308])
        assert result.value == pytest.approx(3.5e308 / 3 if math.isfinite(3.5e308) else 1e308 + 0.5e308 / 3)
        assert result.stderr == pytest.approx(0.5e308 / 3)

    def test_a_bound_beyond_all_floats_is_none(self) -> None:
        result = unbounded([1.7e308, -1.7e308])
        assert (result.value, result.low, result.high) == (0.0, None, None)

    def test_repeats_too(self) -> None:
        result = repeated([[1e308, 1e308], [-1e308, 1e308], [1e308, 5e307]], scale=None)
        assert result.value is not None
        assert result.value == pytest.approx(5.833333e307)
        assert bounds(repeated([[1e308, 1e308], [-1e308, 1e308]], scale=Scale(-1e308, 1e308)))[1] <= 1e308

    @given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=12))
    def test_any_finite_numbers_give_an_estimate(self, values: list[float]) -> None:
        result = unbounded(values)
        assert result.value is not None
        assert min(values) <= result.value <= max(values)


class TestWhatIsRefused:
    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_values_that_are_not_finite(self, value: float) -> None:
        with pytest.raises(ValueError, match="count it as an error"):
            unbounded([1.0, value])

    def test_values_that_are_not_on_the_scale(self) -> None:
        with pytest.raises(ValueError, match="not within 0"):
            estimate([0.5, 1.5], scale=ZERO_TO_ONE)
        with pytest.raises(ValueError, match="not within 0"):
            estimate([0.5])

    def test_counts_that_contradict_the_values(self) -> None:
        with pytest.raises(ValueError, match="2 values, but 1 completed"):
            mean_estimate([[1.0], [1.0]], Counts(2, 1))
        with pytest.raises(ValueError, match="3 test cases, but only 2 results"):
            mean_estimate([[1.0], [1.0], []], Counts(2, 2))

    def test_counts_that_cannot_be(self) -> None:
        with pytest.raises(ValueError, match="more results than were expected"):
            Counts(expected=3, completed=2, error=1, skipped=1)
        with pytest.raises(ValueError, match="negative"):
            Counts(expected=3, completed=-1)

    @pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0])
    def test_a_confidence_that_is_not_between_zero_and_one(self, confidence: float) -> None:
        with pytest.raises(ValueError, match="between 0 and 1"):
            estimate([1.0], confidence=confidence)

    def test_an_estimate_that_holds_nan(self) -> None:
        with pytest.raises(ValueError, match="finite numbers"):
            Estimate(math.nan, None, None, None, 0.95, "t", Counts(1, 1))
