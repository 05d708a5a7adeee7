import math
from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fepflow.evalguard.models import Range, Thresholds
from fepflow.statistics.estimate import Counts, Estimate
from fepflow.statistics.intervals import wilson_interval
from fepflow.statistics.means import mean_estimate
from fepflow.statistics.scale import PROPORTION, Scale
from fepflow.suite.models import Gate, Impact
from fepflow.verdict.gate import decide
from fepflow.verdict.verdict import CheckTotals, MetricEstimate, Mode, Outcome, Verdict

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
    counts = Counts(len(values), passed + failed, error)
    return MetricEstimate(name, "contains", mean_estimate(values, counts, scale=PROPORTION))


def mean(values: Sequence[float], error: int = 0, name: str = "acc", scale: Scale | None = None) -> MetricEstimate:
    cases = [[value] for value in values] + [[]] * error
    estimate = mean_estimate(cases, Counts(len(cases), len(values), error), scale=scale)
    return MetricEstimate(name, "similarity", estimate, of_passes=False)


def thresholds(**ranges: list[Range]) -> Thresholds:
    return Thresholds(task="sums", thresholds=ranges)


def by_impact(
    *metrics: MetricEstimate,
    ranges: list[Range] = HIGHER_IS_BETTER,
    max_impact: Impact | None = None,
    mode: Mode = "interval",
) -> Verdict:
    gate = Gate(max_impact=max_impact, verdict=mode) if max_impact or mode == "point" else None
    return decide(metrics, gate, thresholds(acc=ranges), [])


def by_minimum(
    *metrics: MetricEstimate, mode: Mode = "interval", fail: Literal["interval", "value"] = "interval", **minima: float
) -> Verdict:
    return decide(metrics, Gate(min=minima, fail=fail, verdict=mode), None, [])


def checked(
    expected: int = 0,
    passed: int = 0,
    failed: int = 0,
    error: int = 0,
    skipped: int = 0,
    unjudged: int = 0,
    name: str = "c",
) -> CheckTotals:
    """A check whose results are all there, unless more of them were `expected`."""
    there = passed + failed + error + skipped + unjudged
    return CheckTotals(name, expected or there, passed, failed, error, skipped, unjudged)


def chance(k: int, n: int, p: float) -> float:
    """Of k passes of n."""
    return math.exp(
        math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * math.log(p) + (n - k) * math.log(1 - p)
    )


@cache
def outcomes(n: int, fail: Literal["interval", "value"]) -> dict[Outcome, range]:
    """Which numbers of passes of n come out how, at a minimum of 0.9; more of them never make it worse."""

    def badness(k: int) -> int:
        return -rank(by_minimum(proportion(k, n - k), fail=fail, acc=0.9))

    ks = range(n + 1)
    failing, open_yet = bisect_right(ks, -2, key=badness), bisect_right(ks, -1, key=badness)
    return {"fail": ks[:failing], "inconclusive": ks[failing:open_yet], "pass": ks[open_yet:]}


def rank(verdict: Verdict) -> int:
    return RANKS.index(verdict.outcome)


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
            "but its interval reaches moderate; it leans towards a pass, and about 246 test cases like these would "
            "settle it."
        ]
        (metric,) = verdict.metrics
        assert (metric.impact, metric.worst_impact, metric.interpretation) == ("low", "moderate", "mostly right")

    def test_it_is_inconclusive_when_the_value_has_a_worse_one_and_the_interval_an_allowed_one(self) -> None:
        verdict = by_impact(proportion(78, 22))
        assert verdict.outcome == "inconclusive"
        assert "but its interval reaches low; it leans towards a fail, and about 1537 test cases" in verdict.reasons[0]

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
        assert "there is no interval to show it (scores with a known range can tell more" in verdict.reasons[0]
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
            (91, "reaches the minimum of 0.9, but its interval begins below; it leans towards a pass, and about 3458 "),
            (89, "is below the minimum of 0.9, but its interval ends above; it leans towards a fail, and about 3458 "),
        ],
    )
    def test_it_is_inconclusive_when_the_minimum_is_within_the_interval(self, passed: int, reason: str) -> None:
        verdict = by_minimum(proportion(passed, 100 - passed), acc=0.9)
        assert verdict.outcome == "inconclusive"
        assert reason in verdict.reasons[0]
        assert verdict.reasons[0].endswith("test cases like these would settle it.")

    def test_the_number_that_would_settle_it_is_the_least_that_does(self) -> None:
        assert "about 35 test cases like these" in by_minimum(proportion(34), acc=0.9).reasons[0]
        assert by_minimum(proportion(35), acc=0.9).outcome == "pass"
        (said,) = by_minimum(proportion(86, 14), acc=0.9).reasons
        n = int(said.split("about ")[1].split()[0])
        assert wilson_interval(0.86, n)[1] < 0.9 <= wilson_interval(0.86, n - 1)[1]

    def test_a_gate_that_no_number_of_cases_can_show_is_reported(self) -> None:
        assert "no sample can show a proportion of 1" in by_minimum(proportion(500), acc=1.0).reasons[0]
        assert "no number of them that can be had would settle it" in by_minimum(proportion(90, 10), acc=0.9).reasons[0]

    def test_the_advice_names_missing_results_that_would_decide(self) -> None:
        (reason,) = by_minimum(proportion(95, error=5), acc=0.9).reasons
        assert "its interval begins below; it leans towards a pass, and the results that are missing would" in reason

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
        assert "its 2 values are all equal, which is no proof that others would be (scores with a" in verdict.reasons[0]
        assert by_minimum(mean([0.93, 0.93], scale=Scale(0, 1)), acc=0.9).outcome == "inconclusive"
        assert by_minimum(mean([0.93] * 400, scale=Scale(0, 1)), acc=0.9).outcome == "pass"

    def test_skewed_values_of_unknown_range_pass_only_in_number(self) -> None:
        assert by_minimum(mean([1.0] * 99 + [0.0]), acc=0.9).outcome == "inconclusive"
        assert by_minimum(mean(([1.0] * 99 + [0.0]) * 25), acc=0.9).outcome == "pass"

    def test_a_metric_that_cannot_be_computed_is_inconclusive_with_its_reason(self) -> None:
        counts = Counts(3, 3)
        broken = Estimate(None, None, None, None, 0.95, "none", counts, problem="OverflowError: too large")
        verdict = by_minimum(MetricEstimate("acc", "c", broken), proportion(100, name="f1"), acc=0.9, f1=0.5)
        assert verdict.outcome == "inconclusive"
        assert verdict.reasons[0].endswith("cannot be computed: OverflowError: too large.")


class TestSymmetry:
    """A fail takes as much evidence as a pass: table by exact enumeration, minimum 0.9."""

    TABLE: ClassVar = {
        (0.85, 10): (0, 0.46, 0.18),
        (0.85, 35): (0.003, 0.79, 0.27),
        (0.85, 100): (0, 0.90, 0.43),
        (0.85, 1000): (0, 1, 1),
        (0.9, 10): (0, 0.26, 0.07),
        (0.9, 35): (0.025, 0.47, 0.055),
        (0.9, 100): (0.024, 0.42, 0.04),
        (0.9, 1000): (0.023, 0.47, 0.028),
        (0.92, 10): (0, 0.19, 0.04),
        (0.92, 35): (0.05, 0.31, 0.02),
        (0.92, 100): (0.09, 0.18, 0.006),
        (0.92, 1000): (0.58, 0.01, 0),
        (0.95, 10): (0, 0.09, 0.01),
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

    @pytest.mark.parametrize(("metrics", "expected"), [(1, 0.04), (10, 0.04)])
    def test_many_metrics_at_their_minimum_seldom_fail_a_run(self, metrics: int, expected: float) -> None:
        others = [f"m{number}" for number in range(metrics - 1)]
        good = [proportion(91, 9, name=name) for name in others]
        minima: dict[str, Any] = dict.fromkeys(["acc", *others], 0.9)
        fails = sum(
            chance(k, 100, 0.9)
            for k in range(101)
            if by_minimum(proportion(k, 100 - k), *good, **minima).outcome == "fail"
        )
        assert 1 - (1 - fails) ** metrics == pytest.approx(expected, abs=0.01)

    def test_a_metric_that_only_chance_may_have_below_is_inconclusive_among_many(self) -> None:
        others = [f"m{number}" for number in range(9)]
        good = [proportion(95, 5, name=name) for name in others]
        minima: dict[str, Any] = dict.fromkeys(["acc", *others], 0.9)
        assert by_minimum(proportion(82, 18), acc=0.9).outcome == "fail"
        verdict = by_minimum(proportion(82, 18), *good, **minima)
        assert verdict.outcome == "inconclusive"
        assert verdict.rules[0].metric == "acc"
        assert "may be chance where 10 metrics are judged: a fail takes the 99.5 % interval" in verdict.reasons[0]

    def test_each_fail_makes_the_next_one_easier(self) -> None:
        low, lower = proportion(84, 16, name="low"), proportion(70, 30, name="lower")
        assert by_minimum(low, proportion(95, 5, name="lower"), low=0.9, lower=0.9).outcome == "inconclusive"
        both = by_minimum(low, lower, low=0.9, lower=0.9)
        assert [rule.outcome for rule in both.rules] == ["fail", "fail"]

    def test_metrics_without_any_value_count_among_those_that_are_judged(self) -> None:
        empty = proportion(0, error=5, name="empty")
        assert by_minimum(proportion(84, 16), empty, acc=0.9, empty=0.5).outcome == "inconclusive"
        assert by_minimum(proportion(84, 16), acc=0.9, never=0.5).outcome == "inconclusive"


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


class TestChecks:
    @pytest.mark.parametrize(
        ("totals", "outcome", "reason"),
        [
            (checked(passed=5), "pass", "c: 5 of 5 results passed."),
            (checked(passed=4, failed=1), "fail", "c: 1 of 5 results failed."),
            (checked(passed=4, failed=1, error=2), "fail", "c: 1 of 5 results failed, and 2 ended in an error."),
            (
                checked(passed=4, error=1, skipped=2),
                "inconclusive",
                "c: 4 of 7 passed, but 1 ended in an error and 2 were skipped.",
            ),
            (checked(passed=4, unjudged=2), "inconclusive", "c: 4 of 6 passed, but 2 gave neither pass nor fail."),
            (checked(12, passed=4), "inconclusive", "c: 4 of 12 passed, but 8 never came."),
            (checked(error=3), "inconclusive", "c: no result passed or failed: 3 ended in an error."),
            (checked(3), "inconclusive", "c: no result passed or failed: 3 never came."),
            (
                checked(4, unjudged=3),
                "inconclusive",
                "c: no result passed or failed: 3 gave neither pass nor fail and 1",
            ),
            (checked(unjudged=3), "inconclusive", "Nothing was judged: no check gave a pass or a fail."),
        ],
    )
    def test_every_check_must_pass(self, totals: CheckTotals, outcome: Outcome, reason: str) -> None:
        verdict = decide([], None, None, [totals])
        assert (verdict.outcome, verdict.gate) == (outcome, "Every check must pass.")
        assert verdict.reasons[0].startswith(reason)

    def test_a_suite_without_results_does_not_pass(self) -> None:
        assert decide([], None, None, []).outcome == "inconclusive"

    def test_each_check_is_a_rule_and_the_worst_comes_first(self) -> None:
        checks = [checked(passed=5, name="a"), checked(passed=4, error=1, name="b"), checked(failed=1, name="c")]
        verdict = decide([], None, None, checks)
        assert [(rule.rule, rule.check, rule.outcome) for rule in verdict.rules] == [
            ("c: every case passes", "c", "fail"),
            ("b: every case passes", "b", "inconclusive"),
            ("a: every case passes", "a", "pass"),
        ]
        assert verdict.reasons == [rule.reason for rule in verdict.rules]

    def test_a_check_without_a_metric_is_gated_too(self) -> None:
        verdict = decide([proportion(30)], None, None, [checked(passed=30, name="contains"), checked(30, name="judge")])
        assert verdict.outcome == "inconclusive"
        assert verdict.rules[0].check == "judge"

    def test_a_check_that_only_scores_is_named_as_not_judged(self) -> None:
        verdict = decide([], None, None, [checked(passed=5), checked(unjudged=5, name="tone")])
        assert (verdict.outcome, verdict.not_judged) == ("pass", ["tone"])
        assert "tone" in verdict.warnings[0]

    def test_metrics_are_shown_but_do_not_decide(self) -> None:
        verdict = decide([mean([0.1, 0.2], name="score")], Gate(), None, [checked(passed=1)])
        assert verdict.outcome == "pass"
        assert verdict.metrics[0].outcome is None
        assert verdict.not_judged == ["score"]

    def test_a_gate_on_some_metrics_names_all_others_loudly(self) -> None:
        checks = [checked(passed=100, name="contains"), checked(30, passed=14, failed=2, name="judge")]
        verdict = decide([proportion(100)], Gate(min={"acc": 0.9}), None, checks)
        assert (verdict.outcome, verdict.not_judged) == ("pass", ["judge"])
        assert verdict.warnings == [
            "NOT JUDGED, as no rule of the gate is about them: judge (2 failed and 14 never came) "
            "(gate: {checks: all} judges every check, too)."
        ]

    @pytest.mark.parametrize(
        ("judge", "outcome"),
        [(checked(30, passed=16), "inconclusive"), (checked(passed=29, failed=1), "fail"), (checked(passed=9), "pass")],
    )
    def test_a_gate_may_judge_all_checks_besides(self, judge: CheckTotals, outcome: Outcome) -> None:
        gate = Gate(min={"acc": 0.9}, checks="all")
        verdict = decide([proportion(100)], gate, None, [checked(passed=100, name="contains"), judge])
        assert (verdict.outcome, verdict.not_judged) == (outcome, [])
        assert verdict.gate == "acc must be at least 0.9 and every check must pass (95 % intervals)."
        assert {rule.rule for rule in verdict.rules} == {
            "acc: at least 0.9",
            "contains: every case passes",
            "c: every case passes",
        }


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
