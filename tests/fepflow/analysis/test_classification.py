"""Precision, recall and F1 of a run: their values, what is missing, and passes that must not be."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from fepflow.analysis.metrics import compute_verdict
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckError, CheckResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.statistics.proportions import clopper_pearson_interval
from fepflow.store.records import NewCheckResult, NewOutput, RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import Suite
from fepflow.verdict.verdict import MetricVerdict, Verdict

NUMBERS = count()

E = "error"
NEVER = None


def judged(store: Store, cells: Sequence[tuple[str, Any]], *metrics: str, repeats: int = 1, **sections: Any) -> Verdict:
    """The verdict on expected labels and what was predicted for them: a label, several of repeats, "error" or None."""
    run_id = f"{next(NUMBERS):032x}"
    cases = [TestCase(id=str(n), input=n, expected=expected) for n, (expected, _) in enumerate(cells)]
    check = {"type": "classification", "id": "c"}
    declared = [{"id": f"m{n}", "check": "c", "aggregate": metric} for n, metric in enumerate(metrics)]
    target = {"http": {"url": "http://127.0.0.1:9/"}}
    document = {"name": "s", "target": target, "test_cases": [], "checks": [check], "repeats": repeats, **sections}
    suite = Suite.model_validate({**document, **({"metrics": declared} if declared else {})})
    store.runs.create(RunRecord(id=run_id, name="s", suite={}, repeats=repeats), cases)
    rows = [
        _row(index, repeat, expected, cell)
        for index, (expected, predicted) in enumerate(cells)
        for repeat, cell in enumerate(predicted if isinstance(predicted, list) else [predicted])
        if cell is not NEVER
    ]
    outputs = [NewOutput(row.case_index, row.repeat, "o", Output(value="x")) for row in rows]
    store.results.write(run_id, outputs, rows)
    return compute_verdict(store, store.runs.get(run_id), suite)


def _row(index: int, repeat: int, expected: str, predicted: str) -> NewCheckResult:
    passed = None if predicted == E else predicted == expected
    results = {} if predicted == E else {"passed": passed, "predicted": predicted, "label": expected}
    error = {"error": CheckError(type="unknown_error", message="away", recoverable=True)} if predicted == E else {}
    status = "error" if predicted == E else "completed"
    found = {"check_type": "classification", "status": status, "results": results, "evaluated_at": utc_now(), **error}
    return NewCheckResult(index, repeat, "c", "a", CheckResult.model_validate(found), passed)


def metric(store: Store, cells: Sequence[tuple[str, Any]], aggregate: str, **sections: Any) -> MetricVerdict:
    (found,) = judged(store, cells, aggregate, **sections).metrics
    return found


# As scikit-learn has it: precision 2/3, 1, 1/2; recall 1, 1/2, 1/2; F1 .8, 2/3, 1/2.
CELLS = [("a", "a"), ("a", "a"), ("b", "a"), ("b", "b"), ("c", "c"), ("c", "other")]


def test_values_are_those_of_the_textbook(store: Store) -> None:
    wanted = {"precision@a": 2 / 3, "recall@a": 1, "f1@a": 0.8, "f1@b": 2 / 3, "recall@c": 0.5, "precision@c": 1}
    wanted |= {"precision": (2 / 3 + 1 + 1) / 3, "recall": 2 / 3, "f1": (0.8 + 2 / 3 + 2 / 3) / 3}
    for aggregate, value in wanted.items():
        assert metric(store, CELLS, aggregate).value == pytest.approx(value), aggregate


def test_a_class_has_the_exact_interval_of_the_results_that_concern_it(store: Store) -> None:
    cells = [("a", "a")] * 8 + [("a", "b")] * 2 + [("b", "a")] + [("b", "b")] * 9
    recall, f1 = metric(store, cells, "recall@a"), metric(store, cells, "f1@a")
    assert (recall.low, recall.high) == pytest.approx(clopper_pearson_interval(0.8, 10))
    low, high = clopper_pearson_interval(8 / 11, 11)
    assert (f1.low, f1.high) == pytest.approx((2 * low / (1 + low), 2 * high / (1 + high)))
    assert (recall.n_completed, f1.n_completed, recall.method) == (10, 11, "classification")


def test_a_class_whose_results_are_all_missing_counts_as_wrong(store: Store) -> None:
    cells = [("a", "a")] * 100 + [("fraud", E)] * 3
    for aggregate in ("f1", "recall", "precision"):
        found = metric(store, cells, aggregate, gate={"min": {"m0": 0.5}})
        assert found.low is not None
        assert found.low < 0.5, "the mean over classes has one more, of which nothing is known"
        assert found.outcome == "inconclusive"
    of_class = metric(store, cells, "recall@fraud", gate={"min": {"m0": 0.5}})
    assert (of_class.value, of_class.outcome, of_class.n_expected, of_class.n_error) == (None, "inconclusive", 3, 3)


def test_what_is_missing_counts_against_its_own_class_and_against_the_one_that_loses_most(store: Store) -> None:
    cells = [("a", "a")] * 20 + [("b", "b")] * 20 + [("a", E)] * 5
    recall_a, recall_b = metric(store, cells, "recall@a"), metric(store, cells, "recall@b")
    assert recall_a.low == pytest.approx(clopper_pearson_interval(20 / 25, 25)[0])
    assert recall_b.low == pytest.approx(clopper_pearson_interval(1.0, 20)[0]), "none of the missing expects b"
    assert metric(store, cells, "precision@b").low == pytest.approx(clopper_pearson_interval(20 / 25, 25)[0])
    assert metric(store, cells, "precision@a").low == pytest.approx(clopper_pearson_interval(1.0, 20)[0])
    never = [("a", "a")] * 20 + [("b", "b")] * 20 + [("a", NEVER)] * 5
    assert metric(store, never, "f1").low == metric(store, cells, "f1").low


def test_a_class_that_no_test_case_expects_has_no_value_and_does_not_pass(store: Store) -> None:
    for aggregate in ("f1@refnd", "recall@refnd", "precision@refnd"):
        verdict = judged(store, [("refund", "refund")] * 100, aggregate, gate={"min": {"m0": 0.1}})
        assert verdict.outcome == "inconclusive", aggregate
    verdict = judged(store, [("refund", "refund")] * 100, "f1@refnd", gate={"min": {"m0": 0.1}})
    assert "no test case expects the label refnd (they expect refund)" in verdict.reasons[0]


def test_one_class_alone_is_its_own_mean(store: Store) -> None:
    cells = [("a", "a")] * 30
    of_class, whole = metric(store, cells, "f1@a"), metric(store, cells, "f1")
    assert (whole.value, whole.low, whole.high) == (of_class.value, of_class.low, of_class.high)
    assert whole.low is not None
    assert whole.low < 1, "an interval without any width would pass whatever is asked"


def test_a_label_may_be_named_in_other_upper_and_lower_case(store: Store) -> None:
    assert metric(store, [("not found", "not found")] * 5, "recall@Not found").value == 1


def test_repeats_are_not_independent(store: Store) -> None:
    once = metric(store, [("a", "a")] * 10 + [("b", "b")] * 10, "recall@a")
    thrice = metric(store, [("a", ["a"] * 3)] * 10 + [("b", ["b"] * 3)] * 10, "recall@a", repeats=3)
    assert thrice.n_completed == 30
    assert thrice.low == pytest.approx(once.low), "repeats that agree are one observation"
    mixed = [("a", ["a", E, "a"])] * 10 + [("b", ["b"] * 3)] * 10
    assert metric(store, mixed, "recall@a", repeats=3).low < once.low


def test_every_run_of_a_classification_has_its_confusion_matrix(store: Store) -> None:
    verdict = judged(store, [*CELLS, ("a", E)])
    (matrix,) = verdict.confusions
    assert (matrix.check, matrix.columns) == ("c", ["a", "b", "c", "(other)", "(none)"])
    assert {row.label: (row.n, row.predicted) for row in matrix.classes} == {
        "a": (3, [2, 0, 0, 0, 1]),
        "b": (2, [1, 1, 0, 0, 0]),
        "c": (2, [0, 0, 1, 1, 0]),
    }
    assert matrix.classes[0].f1.value == pytest.approx(0.8)
    assert matrix.recall.value == pytest.approx(2 / 3)
    many = judged(store, [(str(n), str(n)) for n in range(50)])
    assert (len(many.confusions[0].classes), many.confusions[0].left_out) == (20, 30)


def test_a_measure_of_labels_reads_no_other_value() -> None:
    with pytest.raises(ValueError, match="f1@a is of the labels of a check: name it, without value and range"):
        Suite.model_validate(
            {
                "name": "s",
                "target": {"http": {"url": "http://127.0.0.1:9/"}},
                "test_cases": [],
                "metrics": [{"id": "m", "check": "c", "aggregate": "f1@a", "value": "$.score"}],
            }
        )
