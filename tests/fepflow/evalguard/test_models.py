import math

import pytest
from pydantic import ValidationError

from fepflow.evalguard.models import Metric, Range, Task, Thresholds


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
