import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fepflow.evalguard.gate import decide
from fepflow.evalguard.models import Range, Thresholds
from fepflow.evalguard.verdict import CheckTotals, MetricEstimate, Mode, Outcome, Verdict
from fepflow.statistics.estimate import Counts, Estimate, mean_estimate
from fepflow.suite import Gate, Impact

RANKS: tuple[Outcome, ...] = ("pass", "inconclusive", "fail")

HIGHER_IS_BETTER: list[Range] = [
    Range(impact="severe", max=0.5, interpretation="guesses"),
    Range(impact="moderate", min=0.5, max=0.8, interpretation="errs at times"),
    Range(impact="low", min=0.8, interpretation="mostly right"),
]
LOWER_IS_BETTER: list[Range] = [
    Range(impact="no_measurable", max=0.2),
    Range(impact="low", min=0.2, max=0.4),
    Range(impact="high", min=0.4),
]
GRID = st.sampled_from([0.0, 0.25, 0.5, 0.75, 0.8, 0.9, 0.95])


def proportion(passed: int, failed: int = 0, error: int = 0, name: str = "acc") -> MetricEstimate:
    values = [[1.0]] * passed + [[0.0]] * failed + [[]] * error
    return MetricEstimate(name, "contains", mean_estimate(values, Counts(len(values), passed + failed, error)))


def mean(values: Sequence[float], error: int = 0, name: str = "acc") -> MetricEstimate:
    cases = [[value] for value in values] + [[]] * error
    return MetricEstimate(name, "similarity", mean_estimate(cases, Counts(len(cases), len(values), error)))


def thresholds(**ranges: list[Range]) -> Thresholds:
    return Thresholds(task="sums", thresholds=ranges)


def by_impact(
    *metrics: MetricEstimate,
    ranges: list[Range] = HIGHER_IS_BETTER,
    max_impact: Impact | None = None,
    mode: Mode = "interval",
) -> Verdict:
    gate = Gate(max_impact=max_impact) if max_impact else None
    return decide(metrics, gate, thresholds(acc=ranges), CheckTotals(), mode)


def by_minimum(*metrics: MetricEstimate, mode: Mode = "interval", **minima: float) -> Verdict:
    return decide(metrics, Gate(min=minima), None, CheckTotals(), mode)


def by_checks(passed: int = 0, failed: int = 0, error: int = 0, skipped: int = 0, unjudged: int = 0) -> Verdict:
    return decide([], None, None, CheckTotals(passed, failed, error, skipped, unjudged))


def rank(verdict: Verdict) -> int:
    return RANKS.index(verdict.outcome)


class TestImpact:
    def test_it_passes_when_the_whole_interval_has_an_allowed_impact(self) -> None:
        verdict = by_impact(proportion(95, 5))
        assert verdict.outcome == "pass"
        assert verdict.gate == "No metric's impact may be worse than low (95 % intervals)."
        assert verdict.reasons == [
            "acc: 0.95 (95 % interval 0.8882 to 0.9785, n = 100) has the impact low; low is the worst allowed."
        ]

    def test_it_fails_when_the_value_has_a_worse_one(self) -> None:
        verdict = by_impact(proportion(70, 30))
        assert verdict.outcome == "fail"
        assert "has the impact moderate; low is the worst allowed" in verdict.reasons[0]

    def test_it_is_inconclusive_when_only_the_interval_reaches_a_worse_one(self) -> None:
        verdict = by_impact(proportion(85, 15))
        assert verdict.outcome == "inconclusive"
        assert verdict.reasons == [
            "acc: 0.85 (95 % interval 0.7672 to 0.9069, n = 100) has the impact low, "
            "but its interval reaches moderate; low is the worst allowed."
        ]
        (metric,) = verdict.metrics
        assert (metric.impact, metric.worst_impact, metric.interpretation) == ("low", "moderate", "mostly right")

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
        assert "without an interval it could reach severe; low is the worst allowed" in verdict.reasons[0]
        assert by_impact(some_missing, max_impact="severe").outcome == "pass"

    def test_where_ranges_overlap_the_worst_counts_with_a_warning(self) -> None:
        verdict = by_impact(proportion(95, 5), ranges=[Range(impact="low", min=0), Range(impact="high", min=0.9)])
        assert verdict.outcome == "fail"
        assert verdict.warnings == ["acc: several ranges hold 0.95; the worst impact counts."]

    def test_a_scale_that_looks_mismatched_gives_a_warning_and_is_not_rescaled(self) -> None:
        verdict = by_impact(mean([61.0, 64.0, 66.0]))
        assert verdict.metrics[0].impact == "low"
        assert "is it a percentage?" in verdict.warnings[0]

    def test_thresholds_of_a_metric_that_was_not_computed_are_skipped_with_a_warning(self) -> None:
        both = thresholds(acc=HIGHER_IS_BETTER, acc_norm=HIGHER_IS_BETTER)
        verdict = decide([proportion(95, 5)], None, both, CheckTotals())
        assert verdict.outcome == "pass"
        assert verdict.warnings == ["Skipped, for there are thresholds but no such metric: acc_norm."]

    def test_a_metric_that_nothing_judges_is_named_in_a_warning(self) -> None:
        verdict = by_impact(proportion(95, 5), proportion(1, 99, name="style"))
        assert verdict.outcome == "pass"
        assert verdict.metrics[1].outcome is None
        assert verdict.warnings == ["Not judged, for neither thresholds nor a minimum name it: style."]

    @pytest.mark.parametrize("given_thresholds", [None, thresholds(other=HIGHER_IS_BETTER)])
    def test_a_gate_on_impacts_without_any_to_judge_is_inconclusive(self, given_thresholds: Thresholds | None) -> None:
        verdict = decide([proportion(95, 5)], Gate(max_impact="low"), given_thresholds, CheckTotals(passed=95))
        assert verdict.outcome == "inconclusive"
        assert "No impact was judged" in verdict.reasons[0]

    def test_a_gate_that_only_sets_the_confidence_allows_low_as_usual(self) -> None:
        verdict = decide([proportion(70, 30)], Gate(confidence=0.9), thresholds(acc=HIGHER_IS_BETTER), CheckTotals())
        assert verdict.outcome == "fail"
        assert verdict.gate == "No metric's impact may be worse than low (90 % intervals)."


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

    def test_it_fails_when_the_value_is_below(self) -> None:
        verdict = by_minimum(proportion(89, 11), acc=0.9)
        assert verdict.outcome == "fail"
        assert verdict.reasons == ["acc: 0.89 (95 % interval 0.8137 to 0.9375, n = 100) is below the minimum of 0.9."]

    def test_it_is_inconclusive_when_only_the_low_bound_is_below(self) -> None:
        verdict = by_minimum(proportion(91, 9), acc=0.9)
        assert verdict.outcome == "inconclusive"
        assert "reaches the minimum of 0.9, but its interval begins below." in verdict.reasons[0]

    def test_when_everything_passed_it_says_how_many_cases_would_be_enough(self) -> None:
        assert "(0.9 takes at least 35 test cases, all passed)" in by_minimum(proportion(34), acc=0.9).reasons[0]
        assert "no sample can show a proportion of 1" in by_minimum(proportion(500), acc=1.0).reasons[0]

    def test_a_mean_without_an_interval_is_inconclusive(self) -> None:
        verdict = by_minimum(mean([0.97]), acc=0.9)
        assert verdict.outcome == "inconclusive"
        assert "0.97 (no 95 % interval, n = 1)" in verdict.reasons[0]

    def test_missing_results_count_as_failed_for_the_low_bound(self) -> None:
        assert by_minimum(proportion(100), acc=0.95).outcome == "pass"
        verdict = by_minimum(proportion(97, error=3), acc=0.95)
        assert verdict.outcome == "inconclusive"
        assert "n = 97 of 100: 3 errors" in verdict.reasons[0]

    def test_a_metric_without_a_value_is_inconclusive(self) -> None:
        assert by_minimum(proportion(0, error=3), acc=0.0).outcome == "inconclusive"

    def test_a_metric_that_was_not_computed_is_inconclusive_and_says_so(self) -> None:
        verdict = by_minimum(proportion(100), acc=0.9, f1=0.5)
        assert verdict.outcome == "inconclusive"
        assert verdict.reasons[0] == "f1: the gate asks for at least 0.5, but it was not computed."

    def test_a_minimum_that_is_no_number_never_passes(self) -> None:
        assert by_minimum(proportion(100), acc=math.nan).outcome == "fail"

    def test_a_value_just_below_is_not_rounded_onto_the_minimum(self) -> None:
        verdict = by_minimum(proportion(89999, 10001), acc=0.9)
        assert verdict.reasons[0].startswith("acc: 0.89999 (")

    def test_equal_values_give_an_interval_without_width_and_a_warning(self) -> None:
        verdict = by_minimum(mean([0.93, 0.93]), acc=0.9)
        assert verdict.outcome == "pass"
        assert "2 values, all equal" in verdict.warnings[0]


class TestBoth:
    GATE = Gate(max_impact="low", min={"f1": 0.9})

    @pytest.mark.parametrize(
        ("acc", "f1", "outcome"),
        [
            (proportion(95, 5), proportion(99, 1, name="f1"), "pass"),
            (proportion(85, 15), proportion(99, 1, name="f1"), "inconclusive"),
            (proportion(95, 5), proportion(91, 9, name="f1"), "inconclusive"),
            (proportion(85, 15), proportion(80, 20, name="f1"), "fail"),
            (proportion(60, 40), proportion(91, 9, name="f1"), "fail"),
        ],
    )
    def test_the_worst_outcome_wins(self, acc: MetricEstimate, f1: MetricEstimate, outcome: Outcome) -> None:
        verdict = decide([acc, f1], self.GATE, thresholds(acc=HIGHER_IS_BETTER), CheckTotals())
        assert verdict.outcome == outcome
        assert verdict.gate == (
            "No metric's impact may be worse than low and f1 must be at least 0.9 (95 % intervals)."
        )

    def test_a_metric_may_be_judged_by_both_and_gives_both_reasons_worst_first(self) -> None:
        gate = Gate(max_impact="moderate", min={"acc": 0.9})
        verdict = decide([proportion(85, 15)], gate, thresholds(acc=HIGHER_IS_BETTER), CheckTotals())
        assert verdict.outcome == "fail"
        assert "below the minimum" in verdict.reasons[0]
        assert "has the impact low" in verdict.reasons[1]
        assert verdict.metrics[0].reason == " ".join(verdict.reasons)

    def test_thresholds_count_even_if_the_gate_names_only_minima(self) -> None:
        verdict = decide([proportion(60, 40)], Gate(min={"acc": 0.5}), thresholds(acc=HIGHER_IS_BETTER), CheckTotals())
        assert verdict.outcome == "fail"


class TestPointMode:
    def test_the_value_alone_decides(self) -> None:
        assert by_impact(proportion(85, 15), mode="point").outcome == "pass"
        assert by_impact(proportion(79, 21), mode="point").outcome == "fail"
        verdict = by_minimum(proportion(9, 1), mode="point", acc=0.9)
        assert verdict.outcome == "pass"
        assert verdict.gate == "acc must be at least 0.9 (point values)."

    def test_missing_results_give_a_warning(self) -> None:
        verdict = by_minimum(proportion(97, error=3), mode="point", acc=0.95)
        assert verdict.outcome == "pass"
        assert verdict.warnings == ["acc: judged by its point value, in spite of 3 missing results."]

    def test_nothing_is_still_no_pass(self) -> None:
        assert by_minimum(proportion(0, error=3), mode="point", acc=0.0).outcome == "inconclusive"
        assert by_impact(proportion(0, error=3), mode="point").outcome == "inconclusive"


class TestChecks:
    @pytest.mark.parametrize(
        ("totals", "outcome", "reason"),
        [
            ({"passed": 5}, "pass", "5 of 5 checks passed."),
            ({"passed": 5, "unjudged": 2}, "pass", "5 of 5 checks passed."),
            ({"passed": 4, "failed": 1}, "fail", "1 of 5 checks failed."),
            ({"passed": 4, "failed": 1, "error": 2}, "fail", "1 of 5 checks failed, and 2 ended in an error."),
            (
                {"passed": 4, "error": 1, "skipped": 2},
                "inconclusive",
                "No check failed and 4 passed, but 1 ended in an error and 2 skipped.",
            ),
            ({"unjudged": 3}, "inconclusive", "Nothing was judged: no check gave a pass or a fail."),
            ({}, "inconclusive", "Nothing was judged: no check gave a pass or a fail."),
        ],
    )
    def test_every_check_must_pass(self, totals: dict[str, int], outcome: Outcome, reason: str) -> None:
        verdict = by_checks(**totals)
        assert (verdict.outcome, verdict.gate, verdict.reasons) == (outcome, "Every check must pass.", [reason])

    def test_results_that_never_came_are_no_pass(self) -> None:
        cut_short = MetricEstimate("acc", "contains", mean_estimate([[1.0], [1.0], []], Counts(3, 2)))
        verdict = decide([cut_short], None, None, CheckTotals(passed=2))
        assert verdict.outcome == "inconclusive"
        assert verdict.reasons == ["No check failed and 2 passed, but 1 never came."]

    def test_metrics_are_shown_but_do_not_decide(self) -> None:
        verdict = decide([proportion(3, 97)], Gate(), None, CheckTotals(passed=1))
        assert verdict.outcome == "pass"
        assert verdict.metrics[0].value == 0.03
        assert verdict.metrics[0].outcome is None


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
        verdict = decide(metrics, Gate(min={"style": 0.2}) if gated else None, None, CheckTotals(passed, failed))
        assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict
