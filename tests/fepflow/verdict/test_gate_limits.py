"""A gate's verdict on minima and maxima: the whole interval decides, and passes are as hard as fails."""

import math
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fepflow.statistics.estimate import Counts, Estimate, Scale
from fepflow.statistics.planning import power
from fepflow.suite.models import Gate
from fepflow.verdict.gate import decide
from fepflow.verdict.verdict import MetricEstimate

from .metrics import (
    GRID,
    LOWER_IS_BETTER,
    by_impact,
    by_minimum,
    chance,
    mean,
    outcomes,
    proportion,
)


class TestMaximum:
    def test_errors_in_few_of_many_calls_keep_to_it(self) -> None:
        gate = Gate(max={"errors": 0.1})
        passing, failing = proportion(2, 98, name="errors"), proportion(30, 70, name="errors")
        assert decide([passing], gate, None, []).outcome == "pass"
        verdict = decide([failing], gate, None, [])
        assert verdict.outcome == "fail"
        assert verdict.reasons == ["errors: 0.3 (95 % interval 0.2189 to 0.3958, n = 100) is above the maximum of 0.1."]
        assert decide([proportion(8, 92, name="errors")], gate, None, []).outcome == "inconclusive"

    def test_a_metric_without_a_value_or_that_was_not_computed_keeps_to_none(self) -> None:
        gate = Gate(max={"errors": 0.1})
        assert decide([proportion(0, 0, 9, name="errors")], gate, None, []).outcome == "inconclusive"
        verdict = decide([], gate, None, [])
        assert verdict.reasons == ["errors: the gate asks for at most 0.1, but it was not computed."]

    @given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 9), GRID)
    def test_it_is_the_minimum_of_what_is_mirrored(self, passed: int, failed: int, error: int, limit: float) -> None:
        mirrored = decide([proportion(failed, passed, error)], Gate(min={"acc": 1 - limit}), None, [])
        assert (
            decide([proportion(passed, failed, error)], Gate(max={"acc": limit}), None, []).outcome == mirrored.outcome
        )


class TestMinimum:
    def test_it_passes_when_the_low_bound_reaches_it(self) -> None:
        verdict = by_minimum(proportion(35), acc=0.9)
        assert verdict.outcome == "pass"
        assert verdict.gate == "acc must be at least 0.9 (95 % intervals)."
        assert verdict.metrics[0].threshold == 0.9

    def test_a_low_bound_that_equals_it_is_enough(self) -> None:
        low = proportion(35).estimate.low
        assert low is not None
        assert by_minimum(proportion(35), acc=low).outcome == "pass"

    def test_it_fails_when_the_whole_interval_is_below(self) -> None:
        verdict = by_minimum(proportion(80, 20), acc=0.9)
        assert verdict.outcome == "fail"
        assert verdict.reasons == ["acc: 0.8 (95 % interval 0.7112 to 0.8666, n = 100) is below the minimum of 0.9."]

    @pytest.mark.parametrize(
        ("passed", "reason"),
        [
            (91, "reaches the minimum of 0.9, but its interval begins below; it leans towards a pass, and about 6875 "),
            (89, "is below the minimum of 0.9, but its interval ends above; it leans towards a fail, and about 7252 "),
        ],
    )
    def test_it_is_inconclusive_when_the_minimum_is_within_the_interval(self, passed: int, reason: str) -> None:
        verdict = by_minimum(proportion(passed, 100 - passed), acc=0.9)
        assert verdict.outcome == "inconclusive"
        assert reason in verdict.reasons[0]
        assert "test cases like these would settle it in 4 of 5 runs, if 0." in verdict.reasons[0]

    @pytest.mark.parametrize(("passed", "n"), [(85, 100), (86, 100), (87, 100), (92, 100), (95, 100), (66, 68)])
    def test_the_number_that_would_settle_it_does_so_in_four_of_five_runs(self, passed: int, n: int) -> None:
        """By the exact chance of so many passes, if the measured rate is the true one."""
        (reason,) = by_minimum(proportion(passed, n - passed), acc=0.9).reasons
        rate = passed / n
        cases = int(reason.split("about ")[1].split()[0])
        chance = power(cases, 0.9, rate) if rate > 0.9 else power(cases, 0.1, 1 - rate)
        assert 0.75 <= chance <= 0.88
        assert f"would settle it in 4 of 5 runs, if {rate:.4g} is its true value." in reason

    def test_of_an_agent_that_makes_no_mistake_the_least_number_settles_it(self) -> None:
        assert "about 35 test cases like these" in by_minimum(proportion(34), acc=0.9).reasons[0]
        assert by_minimum(proportion(35), acc=0.9).outcome == "pass"

    def test_a_gate_that_no_number_of_cases_can_show_is_reported(self) -> None:
        assert "no sample can show a proportion of 1" in by_minimum(proportion(500), acc=1.0).reasons[0]
        assert (
            "up to 1,000,000 test cases would not settle it in 4 of 5 runs, if 0.9 is its true value"
            in by_minimum(proportion(90, 10), acc=0.9).reasons[0]
        )

    def test_the_advice_names_missing_results_that_would_decide(self) -> None:
        (reason,) = by_minimum(proportion(95, error=5), acc=0.9).reasons
        assert (
            "it leans towards a pass, and the results that are missing would settle it, if they come out as" in reason
        )

    def test_a_gate_may_fail_by_value(self) -> None:
        verdict = by_minimum(proportion(89, 11), fail="value", acc=0.9)
        assert (verdict.outcome, verdict.gate) == (
            "fail",
            "acc must be at least 0.9 (95 % intervals; a fail by value).",
        )
        assert by_minimum(proportion(91, 9), fail="value", acc=0.9).outcome == "inconclusive"
        open_yet = by_minimum(proportion(80, 15, error=5), fail="value", acc=0.85)
        assert open_yet.outcome == "inconclusive", "the five could make it 0.85"
        assert by_minimum(proportion(80, 15, error=5), fail="value", acc=0.86).outcome == "fail"

    def test_a_mean_without_an_interval_is_inconclusive(self) -> None:
        verdict = by_minimum(mean([0.97]), acc=0.9)
        assert verdict.outcome == "inconclusive"
        assert "0.97 (no 95 % interval, n = 1)" in verdict.reasons[0]

    def test_missing_results_count_as_passed_for_a_fail(self) -> None:
        assert by_minimum(proportion(4, 1, error=95), acc=0.9).outcome == "inconclusive"
        assert by_minimum(proportion(0, 5), acc=0.9).outcome == "fail"

    def test_scores_that_happen_to_be_zeros_are_no_proportion(self) -> None:
        verdict = by_minimum(mean([0.0] * 97, error=3), acc=-0.05)
        assert verdict.outcome == "inconclusive"
        assert by_impact(mean([0.0] * 97, error=3), ranges=LOWER_IS_BETTER).outcome == "inconclusive"

    def test_missing_results_count_as_failed_for_the_low_bound(self) -> None:
        assert by_minimum(proportion(100), acc=0.95).outcome == "pass"
        verdict = by_minimum(proportion(97, error=3), acc=0.95)
        assert verdict.outcome == "inconclusive"
        assert "n = 97 of 100: 3 errors" in verdict.reasons[0]

    def test_it_says_how_many_of_the_missing_would_have_to_fail(self) -> None:
        """At least 96 of 100 cases have to pass."""
        open_one = by_minimum(proportion(88, error=12), acc=0.9)
        assert open_one.reasons[0].endswith("it passes unless 5 of the 12 missing failed.")
        hopeless = by_minimum(proportion(85, failed=5, error=10), acc=0.9)
        assert hopeless.reasons[0].endswith("; it would be no pass even if all 10 missing results passed.")
        sure = by_minimum(proportion(99, error=1), acc=0.9)
        assert (sure.outcome, sure.reasons[0][-36:]) == ("pass", ", even if the missing result failed.")

    def test_a_maximum_is_kept_unless_so_many_of_the_missing_passed(self) -> None:
        verdict = decide([proportion(0, 95, 5, name="refused")], Gate(max={"refused": 0.07}), None, [])
        assert verdict.reasons[0].endswith("it passes unless 2 of the 5 missing passed.")

    def test_a_fail_of_a_one_sided_gate_takes_the_wider_interval(self) -> None:
        """The 90 % interval of 84 of 100 ends below 0.9, and so does that of 95 % for 82."""
        gate = Gate(min={"acc": 0.9}, sides="one")
        found = {}
        for passed in (82, 84):
            estimate = proportion(passed, 100 - passed).estimate.at(gate.pass_confidence)
            found[passed] = decide([MetricEstimate("acc", "contains", estimate)], gate, None, [])
        assert (found[82].outcome, found[84].outcome) == ("fail", "inconclusive")
        assert "that may be chance: a fail takes the 95 % interval" in found[84].reasons[0]

    def test_a_metric_without_a_value_is_inconclusive(self) -> None:
        assert by_minimum(proportion(0, error=3), acc=0.0).outcome == "inconclusive"

    def test_a_metric_that_was_not_computed_is_inconclusive_with_the_reason(self) -> None:
        verdict = by_minimum(proportion(100), acc=0.9, f1=0.5)
        assert verdict.outcome == "inconclusive"
        assert verdict.reasons[0] == "f1: the gate asks for at least 0.5, but it was not computed."

    def test_a_nan_minimum_never_passes(self) -> None:
        assert by_minimum(proportion(100), acc=math.nan).outcome == "inconclusive"

    def test_a_value_just_below_is_not_rounded_onto_the_minimum(self) -> None:
        verdict = by_minimum(proportion(89999, 10001), acc=0.9)
        assert verdict.reasons[0].startswith("acc: 0.89999 (")

    def test_values_that_are_all_equal_are_no_proof(self) -> None:
        verdict = by_minimum(mean([0.93, 0.93]), acc=0.9)
        assert verdict.outcome == "inconclusive"
        assert by_minimum(mean([0.93, 0.93], scale=Scale(0, 1)), acc=0.9).outcome == "inconclusive"
        assert by_minimum(mean([0.93] * 400, scale=Scale(0, 1)), acc=0.9).outcome == "pass"

    def test_a_mean_of_unknown_range_neither_passes_nor_fails(self) -> None:
        many = mean([0.9, 1.0] * 1_000)
        for minimum, leans in ((0.5, "a pass"), (1.5, "a fail")):
            verdict = by_minimum(many, acc=minimum)
            assert verdict.outcome == "inconclusive"
            assert "0.95 (95 % interval 0.9478 to 0.9522, n = 2000)" in verdict.reasons[0]
            assert "but it is not known how large or small a single value can be" in verdict.reasons[0]
            assert verdict.reasons[0].endswith(f"(aggregate: p95); it leans towards {leans}.")

    def test_a_mean_of_unknown_range_is_judged_by_its_value_only_where_that_is_asked_for_and_warned_of(self) -> None:
        verdict = by_minimum(mean([0.9, 1.0] * 10), acc=0.5, mode="point")
        assert verdict.outcome == "pass"
        assert verdict.warnings[0].startswith("acc: judged by its point value; it is not known how large or small a")

    def test_a_metric_that_cannot_be_computed_is_inconclusive_with_its_reason(self) -> None:
        counts = Counts(3, 3)
        broken = Estimate(None, None, None, None, 0.95, "none", counts, problem="OverflowError: too large")
        verdict = by_minimum(MetricEstimate("acc", "c", broken), proportion(100, name="f1"), acc=0.9, f1=0.5)
        assert verdict.outcome == "inconclusive"
        assert verdict.reasons[0].endswith("cannot be computed: OverflowError: too large.")


class TestSymmetry:
    """A fail takes as much evidence as a pass: table by exact enumeration, minimum 0.9."""

    TABLE: ClassVar = {
        (0.85, 10): (0, 0.46, 0.05),
        (0.85, 35): (0.003, 0.79, 0.27),
        (0.85, 100): (0, 0.90, 0.43),
        (0.85, 1000): (0, 1, 1),
        (0.9, 10): (0, 0.26, 0.013),
        (0.9, 35): (0.025, 0.47, 0.055),
        (0.9, 100): (0.024, 0.42, 0.04),
        (0.9, 1000): (0.023, 0.47, 0.028),
        (0.92, 10): (0, 0.19, 0.006),
        (0.92, 35): (0.05, 0.31, 0.02),
        (0.92, 100): (0.09, 0.18, 0.006),
        (0.92, 1000): (0.58, 0.01, 0),
        (0.95, 10): (0, 0.09, 0.001),
        (0.95, 35): (0.17, 0.10, 0.002),
        (0.95, 100): (0.44, 0.01, 0),
        (0.95, 1000): (1, 0, 0),
    }

    @pytest.mark.parametrize(("p", "n"), TABLE)
    def test_how_often_an_agent_passes_and_fails(self, p: float, n: int) -> None:
        passes = sum(chance(k, n, p) for k in outcomes(n, "interval")["pass"])
        fails_by_value = sum(chance(k, n, p) for k in outcomes(n, "value")["fail"])
        fails = sum(chance(k, n, p) for k in outcomes(n, "interval")["fail"])
        assert (passes, fails_by_value, fails) == pytest.approx(self.TABLE[p, n], abs=0.006)

    @pytest.mark.parametrize(("metrics", "expected"), [(1, 0.04), (10, 0.020)])
    @pytest.mark.battery
    def test_many_metrics_at_their_minimum_seldom_fail_a_run(self, metrics: int, expected: float) -> None:
        others = [f"m{number}" for number in range(metrics - 1)]
        good = [proportion(91, 9, name=name) for name in others]
        minima: dict[str, Any] = dict.fromkeys(["acc", *others], 0.9)
        fails = sum(
            chance(k, 100, 0.9)
            for k in range(101)
            if by_minimum(proportion(k, 100 - k), *good, **minima).outcome == "fail"
        )
        assert 1 - (1 - fails) ** metrics == pytest.approx(expected, abs=0.002)

    def test_a_metric_that_only_chance_may_have_below_is_inconclusive_among_many(self) -> None:
        others = [f"m{number}" for number in range(9)]
        good = [proportion(95, 5, name=name) for name in others]
        minima: dict[str, Any] = dict.fromkeys(["acc", *others], 0.9)
        assert by_minimum(proportion(82, 18), acc=0.9).outcome == "fail"
        verdict = by_minimum(proportion(82, 18), *good, **minima)
        assert verdict.outcome == "inconclusive"
        assert verdict.rules[0].metric == "acc"
        assert "may be chance where 10 metrics are judged: a fail takes the exact 99.5 % interval" in verdict.reasons[0]

    def test_each_fail_makes_the_next_one_easier(self) -> None:
        low, lower = proportion(83, 17, name="low"), proportion(70, 30, name="lower")
        assert by_minimum(low, proportion(95, 5, name="lower"), low=0.9, lower=0.9).outcome == "inconclusive"
        both = by_minimum(low, lower, low=0.9, lower=0.9)
        assert [rule.outcome for rule in both.rules] == ["fail", "fail"]

    def test_a_single_metric_fails_by_the_interval_that_is_shown(self) -> None:
        verdict = by_minimum(proportion(84, 16), acc=0.9)
        assert verdict.outcome == "fail"
        assert "0.7558 to 0.899, n = 100) is below the minimum of 0.9." in verdict.reasons[0]

    def test_metrics_without_any_value_count_among_those_that_are_judged(self) -> None:
        empty = proportion(0, error=5, name="empty")
        assert by_minimum(proportion(84, 16), empty, acc=0.9, empty=0.5).outcome == "inconclusive"
        assert by_minimum(proportion(84, 16), acc=0.9, never=0.5).outcome == "inconclusive"
