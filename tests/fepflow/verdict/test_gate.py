"""A gate's verdict on impacts: the whole interval decides, and what is missing is at its worst."""

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fepflow.evalguard.models import Range, Thresholds
from fepflow.statistics.estimate import Counts, Estimate
from fepflow.suite.models import Gate
from fepflow.verdict.gate import decide
from fepflow.verdict.verdict import MetricEstimate, Outcome, Verdict

from .metrics import (
    GRID,
    HIGHER_IS_BETTER,
    LOWER_IS_BETTER,
    by_impact,
    by_minimum,
    checked,
    mean,
    proportion,
    rank,
    thresholds,
)


class TestImpact:
    def test_it_passes_when_the_whole_interval_has_an_allowed_impact(self) -> None:
        verdict = by_impact(proportion(95, 5))
        assert verdict.outcome == "pass"
        assert verdict.gate == "No metric's impact may be worse than low (95 % intervals)."
        assert verdict.reasons == [
            "acc: 0.95 (95 % interval 0.8882 to 0.9785, n = 100) has the impact low; low is the worst allowed."
        ]

    def test_it_fails_when_the_whole_interval_has_a_worse_one(self) -> None:
        verdict = by_impact(proportion(60, 40))
        assert verdict.outcome == "fail"
        assert "has the impact moderate; low is the worst allowed" in verdict.reasons[0]

    def test_it_is_inconclusive_when_only_the_interval_reaches_a_worse_one(self) -> None:
        verdict = by_impact(proportion(85, 15))
        assert verdict.outcome == "inconclusive"
        assert verdict.reasons == [
            "acc: 0.85 (95 % interval 0.7672 to 0.9069, n = 100) has the impact low; low is the worst allowed, "
            "but its interval reaches moderate; it leans towards a pass, and about 474 test cases like these would "
            "settle it in 4 of 5 runs, if 0.85 is its true value."
        ]
        (metric,) = verdict.metrics
        assert (metric.impact, metric.worst_impact, metric.interpretation) == ("low", "moderate", "mostly right")

    def test_it_is_inconclusive_when_the_value_has_a_worse_one_and_the_interval_an_allowed_one(self) -> None:
        verdict = by_impact(proportion(78, 22))
        assert verdict.outcome == "inconclusive"
        assert "but its interval reaches low; it leans towards a fail, and about 3210 test cases" in verdict.reasons[0]

    def test_the_gate_may_allow_more_or_less(self) -> None:
        assert by_impact(proportion(85, 15), max_impact="moderate").outcome == "pass"
        assert by_impact(proportion(95, 5), max_impact="very_low").outcome == "fail"

    def test_a_value_in_no_range_is_inconclusive(self) -> None:
        verdict = by_impact(proportion(50), ranges=[Range(impact="low", min=0.5, max=1.0)])
        assert verdict.outcome == "inconclusive"
        assert "has no impact: no range holds 1" in verdict.reasons[0]

    def test_an_interval_that_reaches_into_a_gap_is_inconclusive(self) -> None:
        verdict = by_impact(proportion(95, 5), ranges=[Range(impact="low", min=0.9)])
        assert verdict.outcome == "inconclusive"
        assert "its interval reaches values that no range holds" in verdict.reasons[0]

    def test_without_a_single_value_it_is_inconclusive(self) -> None:
        verdict = by_impact(proportion(0, error=12))
        assert verdict.outcome == "inconclusive"
        assert verdict.reasons == ["acc: no value (n = 0 of 12: 12 errors) has no impact: there is no value."]

    def test_a_mean_with_missing_values_is_inconclusive_unless_every_impact_is_allowed(self) -> None:
        some_missing = mean([0.9, 0.95, 0.99], error=1)
        verdict = by_impact(some_missing)
        assert verdict.outcome == "inconclusive"
        assert "it is not known how large or small a single value can be" in verdict.reasons[0]
        assert by_impact(some_missing, max_impact="severe").outcome == "pass"

    def test_where_ranges_overlap_the_worst_counts_with_a_warning(self) -> None:
        ranges = [Range(impact="low", min=0), Range(impact="high", min=0.85)]
        verdict = by_impact(proportion(95, 5), ranges=ranges)
        assert verdict.outcome == "fail"
        assert verdict.warnings == ["acc: several ranges hold 0.95; the worst impact counts."]

    def test_a_scale_that_looks_mismatched_gives_a_warning_and_is_not_rescaled(self) -> None:
        verdict = by_impact(mean([61.0, 64.0, 66.0]))
        assert verdict.metrics[0].impact == "low"
        assert "is it a percentage?" in verdict.warnings[0]

    def test_thresholds_of_a_metric_that_was_not_computed_are_skipped_with_a_warning(self) -> None:
        both = thresholds(acc=HIGHER_IS_BETTER, acc_norm=HIGHER_IS_BETTER)
        verdict = decide([proportion(95, 5)], None, both, [])
        assert verdict.outcome == "pass"
        assert verdict.warnings == ["Skipped, for there are thresholds but no such metric: acc_norm."]

    def test_a_metric_that_nothing_judges_is_named_in_a_warning(self) -> None:
        verdict = by_impact(proportion(95, 5), proportion(1, 99, name="style"))
        assert verdict.outcome == "pass"
        assert verdict.metrics[1].outcome is None
        assert verdict.not_judged == ["style"]
        assert verdict.warnings[0].startswith("NOT JUDGED, as no rule of the gate is about them: style (gate: {checks")

    @pytest.mark.parametrize("given_thresholds", [None, thresholds(other=HIGHER_IS_BETTER)])
    def test_a_gate_on_impacts_without_any_to_judge_is_inconclusive(self, given_thresholds: Thresholds | None) -> None:
        verdict = decide([proportion(95, 5)], Gate(max_impact="low"), given_thresholds, [checked(passed=95)])
        assert verdict.outcome == "inconclusive"
        assert "No impact was judged" in verdict.reasons[0]

    def test_a_gate_that_only_sets_the_confidence_allows_low_as_usual(self) -> None:
        verdict = decide([proportion(70, 30)], Gate(confidence=0.9), thresholds(acc=HIGHER_IS_BETTER), [])
        assert verdict.outcome == "fail"
        assert verdict.gate == "No metric's impact may be worse than low (90 % intervals)."


class TestBoth:
    GATE = Gate(max_impact="low", min={"f1": 0.9})

    @pytest.mark.parametrize(
        ("acc", "f1", "outcome"),
        [
            (proportion(95, 5), proportion(99, 1, name="f1"), "pass"),
            (proportion(85, 15), proportion(99, 1, name="f1"), "inconclusive"),
            (proportion(95, 5), proportion(91, 9, name="f1"), "inconclusive"),
            (proportion(85, 15), proportion(75, 25, name="f1"), "fail"),
            (proportion(60, 40), proportion(91, 9, name="f1"), "fail"),
            (proportion(95, 5), proportion(70, 30, name="f1"), "fail"),
        ],
    )
    def test_the_worst_outcome_wins(self, acc: MetricEstimate, f1: MetricEstimate, outcome: Outcome) -> None:
        verdict = decide([acc, f1], self.GATE, thresholds(acc=HIGHER_IS_BETTER), [])
        assert verdict.outcome == outcome
        assert verdict.gate == (
            "No metric's impact may be worse than low and f1 must be at least 0.9 (95 % intervals)."
        )

    def test_a_metric_may_be_judged_by_both_and_gives_both_reasons_worst_first(self) -> None:
        gate = Gate(max_impact="moderate", min={"acc": 0.9})
        verdict = decide([proportion(79, 21)], gate, thresholds(acc=HIGHER_IS_BETTER), [])
        assert verdict.outcome == "fail"
        assert "below the minimum" in verdict.reasons[0]
        assert "has the impact moderate" in verdict.reasons[1]
        assert [(rule.rule, rule.outcome) for rule in verdict.rules] == [
            ("acc: at least 0.9", "fail"),
            ("acc: impact at most moderate", "pass"),
        ]
        assert verdict.metrics[0].reason == " ".join(verdict.reasons)

    def test_thresholds_count_even_if_the_gate_names_only_minima(self) -> None:
        verdict = decide([proportion(60, 40)], Gate(min={"acc": 0.5}), thresholds(acc=HIGHER_IS_BETTER), [])
        assert verdict.outcome == "fail"


class TestPointMode:
    def test_the_value_alone_decides(self) -> None:
        assert by_impact(proportion(85, 15), mode="point").outcome == "pass"
        assert by_impact(proportion(79, 21), mode="point").outcome == "fail"
        verdict = by_minimum(proportion(9, 1), mode="point", acc=0.9)
        assert verdict.outcome == "pass"
        assert verdict.gate == "acc must be at least 0.9 (point values)."

    def test_missing_results_that_could_decide_leave_it_open(self) -> None:
        verdict = by_minimum(proportion(97, error=3), mode="point", acc=0.95)
        assert verdict.outcome == "pass"
        assert verdict.warnings == ["acc: judged by its point value, in spite of 3 missing results."]
        few = by_minimum(proportion(5, error=95), mode="point", acc=0.5)
        assert few.outcome == "inconclusive"
        assert "reaches the minimum of 0.5, but what is missing could turn that" in few.reasons[0]
        assert by_minimum(proportion(4, 1, error=95), mode="point", acc=0.9).outcome == "inconclusive"
        assert by_minimum(proportion(0, 11, error=89), mode="point", acc=0.9).outcome == "fail"
        assert by_impact(proportion(90, 5, error=5), mode="point").outcome == "pass"
        assert by_impact(proportion(80, 5, error=15), mode="point").outcome == "pass"
        assert by_impact(proportion(79, 5, error=16), mode="point").outcome == "inconclusive"

    def test_nothing_is_still_no_pass(self) -> None:
        assert by_minimum(proportion(0, error=3), mode="point", acc=0.0).outcome == "inconclusive"
        assert by_impact(proportion(0, error=3), mode="point").outcome == "inconclusive"


class TestBlocking:
    @pytest.mark.parametrize("inconclusive", ["block", "allow"])
    @pytest.mark.parametrize(("error", "failed"), [(0, 0), (1, 0), (0, 1), (1, 1)])
    def test_a_fail_blocks_always_and_an_inconclusive_run_as_the_gate_says(
        self, inconclusive: Literal["block", "allow"], error: int, failed: int
    ) -> None:
        verdict = decide([], Gate(inconclusive=inconclusive), None, [checked(passed=1, failed=failed, error=error)])
        assert verdict.blocks is (bool(failed) or (bool(error) and inconclusive == "block"))


class TestProperties:
    @given(
        st.sampled_from([HIGHER_IS_BETTER, LOWER_IS_BETTER]),
        st.integers(1, 80),
        st.integers(0, 80),
        st.integers(0, 5),
    )
    def test_worsening_a_proportion_never_improves_the_verdict(
        self, ranges: list[Range], ones: int, zeros: int, error: int
    ) -> None:
        better, worse = proportion(ones, zeros, error), proportion(ones - 1, zeros + 1, error)
        if ranges is LOWER_IS_BETTER:
            better, worse = worse, better
        assert rank(by_impact(worse, ranges=ranges)) >= rank(by_impact(better, ranges=ranges))

    @given(GRID, GRID, st.sampled_from([0.0, 0.01, 0.1, None]))
    def test_a_lower_value_with_the_same_spread_never_improves_the_verdict(
        self, one: float, other: float, margin: float | None
    ) -> None:
        def of(value: float) -> MetricEstimate:
            low, high = (None, None) if margin is None else (value - margin, value + margin)
            return MetricEstimate("acc", "c", Estimate(value, margin, low, high, 0.95, "t", Counts(9, 9)))

        worse, better = of(min(one, other)), of(max(one, other))
        for mode in ("interval", "point"):
            assert rank(by_impact(worse, mode=mode)) >= rank(by_impact(better, mode=mode))
            assert rank(by_minimum(worse, mode=mode, acc=0.8)) >= rank(by_minimum(better, mode=mode, acc=0.8))

    @given(st.integers(0, 60), st.integers(0, 60), st.data(), st.sampled_from([HIGHER_IS_BETTER, LOWER_IS_BETTER]))
    def test_losing_data_never_makes_a_pass(
        self, passed: int, failed: int, data: st.DataObject, ranges: list[Range]
    ) -> None:
        lost_passed, lost_failed = data.draw(st.integers(0, passed)), data.draw(st.integers(0, failed))
        whole = proportion(passed, failed)
        rest = proportion(passed - lost_passed, failed - lost_failed, lost_passed + lost_failed)
        if by_impact(whole, ranges=ranges).outcome != "pass":
            assert by_impact(rest, ranges=ranges).outcome != "pass"
        if by_minimum(whole, acc=0.7).outcome != "pass":
            assert by_minimum(rest, acc=0.7).outcome != "pass"

    @given(st.lists(st.floats(-2, 2), min_size=1, max_size=20), st.integers(1, 5))
    def test_a_mean_that_lost_data_never_passes(self, values: list[float], error: int) -> None:
        values[0] = 0.4321  # neither 0 nor 1: no proportion
        assert by_minimum(mean(values, error), acc=-5.0).outcome != "pass"
        assert by_impact(mean(values, error)).outcome != "pass"

    @given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.booleans())
    def test_a_verdict_survives_json(self, passed: int, failed: int, error: int, gated: bool) -> None:
        metrics = [proportion(passed, failed, error), mean([0.1, 0.7], name="style")]
        gate = Gate(min={"style": 0.2}) if gated else None
        verdict = decide(metrics, gate, None, [checked(passed=passed, failed=failed)])
        assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict
