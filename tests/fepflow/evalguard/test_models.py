"""EvalGuard's definitions, and the impact of a value."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fepflow.evalguard.models import (
    Direction,
    ImpactAssessment,
    ImpactRange,
    Metric,
    Range,
    Task,
    Thresholds,
    assess,
    check_ranges,
    impact_range,
    scale_mismatch,
    severity,
    thresholds_digest,
    worst,
)
from fepflow.suite.models import IMPACTS, Impact
from fepflow.verdict.gate import decide


def test_a_range_holds_its_min_and_not_its_max() -> None:
    middle = Range(impact="moderate", min=0.5, max=0.8)
    assert [middle.holds(value) for value in (0.49, 0.5, 0.79, 0.8)] == [False, True, True, False]


def test_a_bound_that_is_left_out_is_none() -> None:
    assert Range(impact="low", min=0.8).holds(1e300)
    assert Range(impact="severe", max=0.5).holds(-1e300)


def test_no_range_holds_nan() -> None:
    assert not Range(impact="low", min=0.8).holds(math.nan)
    assert not Range(impact="severe", max=0.5).holds(math.nan)


@pytest.mark.parametrize(("low", "high", "empty"), [(0.5, 0.5, True), (0.6, 0.5, True), (0.5, 0.6, False)])
def test_a_range_whose_min_is_not_below_its_max_is_empty(low: float, high: float, empty: bool) -> None:
    assert Range(impact="low", min=low, max=high).empty is empty


def test_a_whole_number_is_a_number() -> None:
    assert Range.model_validate({"impact": "low", "min": 1}).min == 1.0


@pytest.mark.parametrize(
    "data",
    [
        {"impact": "low"},
        {"impact": "low", "min": None},
        {"impact": "terrible", "min": 0},
        {"impact": "low", "min": True},
        {"impact": "low", "min": "0.5"},
        {"impact": "low", "min": math.inf},
        {"impact": "low", "min": math.nan},
        {"impact": "low", "min": 0, "note": ""},
        {"label": "Good", "min": 0.8},
        {"min": 0.8},
    ],
)
def test_an_invalid_range_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Range.model_validate(data)


@pytest.mark.parametrize("identifier", ["", "a b", "a.b", "acc\n", "\nacc", "é", "acc,none"])
def test_an_identifier_is_letters_digits_underscores_and_hyphens_only(identifier: str) -> None:
    with pytest.raises(ValidationError):
        Task.model_validate({"id": identifier, "name": "a task", "metrics": []})
    with pytest.raises(ValidationError):
        Metric.model_validate({"id": identifier, "name": "a metric", "direction": "higher_is_better"})
    with pytest.raises(ValidationError):
        Thresholds.model_validate({"task": identifier, "thresholds": {}})
    with pytest.raises(ValidationError):
        Thresholds.model_validate({"task": "fine", "thresholds": {identifier: []}})


@pytest.mark.parametrize("missing", ["id", "name", "direction"])
def test_a_metric_needs_id_name_and_direction(missing: str) -> None:
    data = {"id": "acc", "name": "Accuracy", "direction": "higher_is_better"}
    assert Metric.model_validate(data).id == "acc"
    del data[missing]
    with pytest.raises(ValidationError):
        Metric.model_validate(data)


LOW, SEVERE = Range(impact="low", min=1), Range(impact="severe", max=1)
FINE = Range(impact="low", min=1, interpretation="fine")
QA = Thresholds(task="qa", thresholds={"acc": [LOW, SEVERE], "f1": [LOW]})
OTHER = Thresholds(task="other", thresholds={})


def test_the_order_of_tasks_metrics_and_ranges_does_not_matter_and_neither_does_1_or_1_0():
    same = Thresholds(task="qa", thresholds={"f1": [LOW], "acc": [SEVERE, Range(impact="low", min=1.0)]})
    assert thresholds_digest([QA, OTHER]) == thresholds_digest([OTHER, same])
    assert len(thresholds_digest([QA])) == 64


def test_whatever_they_say_matters():
    others = [
        [],
        [QA, OTHER],
        [QA.model_copy(update={"task": "qb"})],
        [Thresholds(task="qa", thresholds={"acc": [LOW, SEVERE]})],
        [Thresholds(task="qa", thresholds={"acc": [LOW, SEVERE], "f2": [LOW]})],
        [Thresholds(task="qa", thresholds={"acc": [SEVERE], "f1": [LOW]})],
        [Thresholds(task="qa", thresholds={"acc": [LOW, SEVERE], "f1": [Range(impact="low", max=1)]})],
        [Thresholds(task="qa", thresholds={"acc": [LOW, SEVERE], "f1": [FINE]})],
    ]  # fmt: skip
    assert len({thresholds_digest(each) for each in [[QA], *others]}) == len(others) + 1


def test_a_verdict_has_the_digest_of_its_thresholds():
    assert decide([], None, QA, []).thresholds_digest == thresholds_digest([QA])
    assert decide([], None, None, []).thresholds_digest is None


def band(impact: Impact, low: float | None = None, high: float | None = None, says: str | None = None) -> Range:
    return Range(impact=impact, min=low, max=high, interpretation=says)


ACCURACY = [
    band("severe", None, 0.5, "guesses"),
    band("moderate", 0.5, 0.8, "errs at times"),
    band("low", 0.8, None, "mostly right"),
]


def test_impacts_rank_from_no_measurable_to_severe() -> None:
    assert [severity(impact) for impact in ("no_measurable", "very_low", "low", "moderate", "high", "severe")] == [
        *range(6)
    ]
    assert worst(["low", "severe", "high"]) == "severe"
    assert worst([]) is None


class TestAssess:
    @pytest.mark.parametrize(
        ("value", "impact"), [(-3.0, "severe"), (0.499, "severe"), (0.5, "moderate"), (0.8, "low"), (40.0, "low")]
    )
    def test_a_value_has_the_impact_of_the_range_that_holds_it(self, value: float, impact: Impact) -> None:
        assert assess(value, ACCURACY).impact == impact

    def test_the_interpretation_comes_along(self) -> None:
        assert assess(0.6, ACCURACY) == ImpactAssessment("moderate", None, "errs at times")

    def test_one_against_an_exclusive_max_of_one_is_in_no_range(self) -> None:
        assert assess(1.0, [band("low", 0.5, 1.0)]) == ImpactAssessment(None, "no range holds 1")

    def test_no_value_and_nan_have_a_reason_instead_of_an_impact(self) -> None:
        assert assess(None, ACCURACY) == ImpactAssessment(None, "there is no value")
        assert assess(math.nan, ACCURACY) == ImpactAssessment(None, "the value is not a number")

    def test_where_ranges_overlap_the_worst_counts(self) -> None:
        ranges = [band("low", 0.4, None, "fine"), band("high", None, 0.6, "bad")]
        assert assess(0.5, ranges) == ImpactAssessment("high", None, "bad", overlapping=True)
        assert assess(0.7, ranges) == ImpactAssessment("low", None, "fine", overlapping=False)

    def test_ranges_that_overlap_with_the_same_impact_do_not_contradict(self) -> None:
        assert not assess(0.5, [band("low", 0.4), band("low", 0.3)]).overlapping


class TestReach:
    def test_an_interval_touches_the_impacts_between_its_ends_both_included(self) -> None:
        assert impact_range(0.6, 0.79, ACCURACY) == ImpactRange(frozenset({"moderate"}), gap=False)
        assert impact_range(0.6, 0.8, ACCURACY) == ImpactRange(frozenset({"moderate", "low"}), gap=False)
        assert impact_range(0.5, 0.7, ACCURACY) == ImpactRange(frozenset({"moderate"}), gap=False)

    def test_without_bounds_it_touches_everything(self) -> None:
        assert impact_range(None, None, ACCURACY) == ImpactRange(frozenset({"severe", "moderate", "low"}), gap=False)
        assert impact_range(0.9, None, ACCURACY) == ImpactRange(frozenset({"low"}), gap=False)
        assert impact_range(None, 0.9, [band("low", 0.0)]) == ImpactRange(frozenset({"low"}), gap=True)
        assert impact_range(0.1, None, [band("low", 0.0, 1.0)]) == ImpactRange(frozenset({"low"}), gap=True)

    def test_it_sees_a_gap_between_two_ranges(self) -> None:
        ranges = [band("severe", None, 0.5), band("low", 0.6)]
        assert impact_range(0.4, 0.7, ranges) == ImpactRange(frozenset({"severe", "low"}), gap=True)
        assert impact_range(0.52, 0.55, ranges) == ImpactRange(frozenset(), gap=True)
        assert impact_range(0.6, 0.7, ranges).gap is False

    def test_an_empty_range_is_never_touched(self) -> None:
        assert impact_range(0.0, 1.0, [*ACCURACY, band("high", 0.7, 0.6)]).impacts == {"severe", "moderate", "low"}

    RANGES = st.lists(
        st.builds(
            band,
            st.sampled_from(IMPACTS),
            st.integers(-5, 5),
            st.one_of(st.none(), st.integers(-5, 5)),
        ),
        max_size=6,
    )

    @given(RANGES, st.floats(-6, 6), st.floats(-6, 6), st.floats(0, 1))
    def test_whatever_lies_in_the_interval_was_reached(
        self, ranges: list[Range], one: float, other: float, share: float
    ) -> None:
        low, high = min(one, other), max(one, other)
        value = min(max(low + share * (high - low), low), high)
        reached = impact_range(low, high, ranges)
        impact = assess(value, ranges).impact
        assert reached.gap if impact is None else impact in reached.impacts

    @given(RANGES, st.floats(-6, 6))
    def test_an_interval_without_width_is_its_value(self, ranges: list[Range], value: float) -> None:
        reached = impact_range(value, value, ranges)
        assert worst(reached.impacts) == assess(value, ranges).impact
        assert reached.gap is (assess(value, ranges).impact is None)


@dataclass(frozen=True)
class Doubtful:
    name: str
    ranges: list[Range]
    says: str
    direction: Direction | None = None


DOUBTFUL = [
    Doubtful("gap", [band("severe", None, 0.5), band("low", 0.6)], "values from 0.5 to below 0.6 are in no range"),
    Doubtful("bounded top", [band("severe", None, 0.5), band("low", 0.5, 1.0)], "values from 1 on, 1 included"),
    Doubtful("bounded bottom", [band("severe", 0.0, 0.5), band("low", 0.5)], "values below 0 are in no range"),
    Doubtful("empty", [*ACCURACY, band("high", 0.7, 0.7)], "high [0.7, 0.7) holds no value"),
    Doubtful("no ranges", [], "has no ranges that hold a value"),
    Doubtful(
        "overlap",
        [band("severe", None, 0.6), band("low", 0.5)],
        "severe [-inf, 0.6) and low [0.5, inf) overlap",
    ),
    Doubtful("higher is worse", ACCURACY[:2], "must not fall as the value grows", "lower_is_better"),
    Doubtful(
        "lower is worse",
        [band("low", None, 0.5), band("high", 0.5)],
        "must not rise as the value grows",
        "higher_is_better",
    ),
    Doubtful(
        "up and down",
        [band("low", None, 0.2), band("high", 0.2, 0.8), band("low", 0.8)],
        "neither only rises nor only falls",
    ),
]


class TestCheckRanges:
    @pytest.mark.parametrize("case", DOUBTFUL, ids=lambda case: case.name)
    def test_a_doubtful_range_gives_a_warning_with_advice(self, case: Doubtful) -> None:
        warnings = list(check_ranges(case.ranges, case.direction))
        assert any(case.says in warning.message for warning in warnings), warnings
        assert all(warning.advice for warning in warnings)

    def test_sound_ranges_give_none_in_whichever_order_they_stand(self) -> None:
        assert list(check_ranges(ACCURACY, "higher_is_better")) == []
        assert list(check_ranges(ACCURACY[::-1])) == []

    def test_a_range_inside_another_is_an_overlap_and_hides_no_gap(self) -> None:
        ranges = [band("severe", None, 0.9), band("severe", 0.2, 0.3), band("low", 0.9)]
        assert [warning.message for warning in check_ranges(ranges)] == [
            "severe [-inf, 0.9) and severe [0.2, 0.3) overlap"
        ]


class TestScaleMismatch:
    def test_a_percentage_against_ranges_of_a_fraction(self) -> None:
        assert "is it a percentage?" in str(scale_mismatch(64.2, ACCURACY, proportion=False))

    def test_a_fraction_against_ranges_of_a_percentage(self) -> None:
        ranges = [band("severe", None, 50), band("low", 50)]
        assert "are they percentages?" in str(scale_mismatch(0.64, ranges, proportion=True))
        assert scale_mismatch(0.64, ranges, proportion=False) is None

    def test_equal_scales_give_no_warning(self) -> None:
        assert scale_mismatch(1.0, ACCURACY, proportion=True) is None
        assert scale_mismatch(64.2, [band("low", 50)], proportion=False) is None
