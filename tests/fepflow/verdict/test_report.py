"""Reports are judged by their intervals, and whatever cannot be judged is never a pass."""

from __future__ import annotations

from typing import Any

import pytest

from fepflow.evalguard.models import Report, Thresholds, thresholds_digest
from fepflow.suite.models import Gate
from fepflow.verdict.report import judge_report
from fepflow.verdict.verdict import Verdict

ACC = {"acc": [{"impact": "severe", "max": 0.5}, {"impact": "low", "min": 0.5}]}
QA = Thresholds.model_validate({"task": "qa", "thresholds": ACC})
QB = Thresholds.model_validate({"task": "qb", "thresholds": ACC})
BOTH = {"qa": QA, "qb": QB}
POINT = Gate(verdict="point")


def report(*tasks: tuple[dict[str, Any], dict[str, Any]]) -> Report:
    return Report.model_validate({"tasks": [task for task, _ in tasks], "results": [results for _, results in tasks]})


def qa(value: float, stderr: float | None = None, **task: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    result = {"value": value} if stderr is None else {"value": value, "stderr": stderr}
    if stderr and 0 < value < 1:
        task = {"n_samples": {"effective": round(value * (1 - value) / stderr**2) + 1}, **task}
    return {"task_ref": "qa", **task}, {"acc": result}


def judge(*tasks: tuple[dict[str, Any], dict[str, Any]], gate: Gate | None = None, **more: Any) -> Verdict:
    return judge_report(report(*tasks), BOTH, gate, **more)


class TestIntervals:
    @pytest.mark.parametrize(
        ("value", "stderr", "outcome"),
        [(1.6, 0.03, "pass"), (1.6, 0.06, "inconclusive"), (1.4, 0.06, "inconclusive"), (1.4, 0.03, "fail")],
    )
    def test_the_whole_interval_decides(self, value, stderr, outcome):
        ranges = {"acc": [{"impact": "severe", "max": 1.5}, {"impact": "low", "min": 1.5}]}
        thresholds = Thresholds.model_validate({"task": "qa", "thresholds": ranges})
        task = {"n_samples": {"effective": 300}, "metadata": {"range.acc": "0 to 3"}}
        verdict = judge_report(report(qa(value, stderr, **task)), {"qa": thresholds})
        assert verdict.outcome == outcome
        (metric,) = verdict.metrics
        assert metric.low < value - 1.959964 * stderr < value + 1.959964 * stderr < metric.high
        assert (metric.id, metric.method, metric.outcome) == ("qa/acc", "bounded-skewed", outcome)

    def test_without_a_range_or_a_number_of_results_it_describes_only(self):
        for metric, task, why in (
            ("diff", {"n_samples": {"effective": 300}}, "it is not known how large or small a single value can be"),
            ("access_seconds", {"n_samples": {"effective": 300}}, "how large or small a single value can be"),
            ("acc", {}, "the report does not say of how many results it is: give the task n_samples"),
        ):
            thresholds = Thresholds.model_validate({"task": "qa", "thresholds": {metric: ACC["acc"]}})
            document = report(({"task_ref": "qa", **task}, {metric: {"value": 0.9, "stderr": 0.01}}))
            verdict = judge_report(document, {"qa": thresholds})
            assert (verdict.outcome, verdict.metrics[0].method) == ("inconclusive", "normal")
            assert why in verdict.reasons[0]
            assert "0.9 (95 % interval 0.8804 to 0.9196" in verdict.reasons[0]

    def test_another_confidence_is_another_interval(self):
        assert judge(qa(0.6, 0.05), gate=Gate(confidence=0.99)).outcome == "inconclusive"

    def test_of_several_metrics_a_fail_takes_more(self):
        results = {"task_ref": "qb"}, {"acc": {"value": 0.9, "stderr": 0.01}}
        assert judge(qa(0.39, 0.05)).outcome == "fail"
        assert judge(qa(0.39, 0.05), results).outcome == "inconclusive"
        assert judge(qa(0.39, 0.04), results).outcome == "fail"

    def test_without_a_standard_error_only_values_can_be_judged(self):
        verdict = judge(qa(0.9))
        assert verdict.outcome == "inconclusive"
        assert (
            "but the report has no standard error of it; judge by values, with --verdict point; it leans"
            in verdict.reasons[0]
        )
        assert "n not known" in verdict.reasons[0]
        assert judge(qa(0.9), gate=POINT).outcome == "pass"
        assert judge(qa(0.4), gate=POINT).outcome == "fail"

    def test_a_standard_error_of_0_counts_as_much_as_its_results(self):
        for value, outcome in ((1.0, "pass"), (0.0, "fail")):
            few = judge(qa(value, 0, n_samples={"effective": 2}))
            assert (few.outcome, "n = 2" in few.reasons[0]) == ("inconclusive", True)
            assert judge(qa(value, 0, n_samples={"effective": 40})).outcome == outcome
            assert judge(qa(value, 0)).outcome == "inconclusive", "of how many is not known"

    def test_the_number_of_samples_is_the_effective_one(self):
        (metric,) = judge(qa(0.9, 0.01, n_samples={"original": 100, "effective": 20})).metrics
        assert (metric.n_expected, metric.n_completed) == (20, 20)


class TestAbsence:
    def test_a_task_without_thresholds_is_inconclusive_and_named(self):
        verdict = judge(qa(0.9, 0.01), ({"task_ref": "other"}, {"acc": {"value": 1, "stderr": 0.1}}))
        assert verdict.outcome == "inconclusive"
        assert "other is not judged: there are no thresholds for it." in verdict.reasons
        assert [metric.outcome for metric in verdict.metrics] == ["pass", None]

    def test_only_the_tasks_that_are_named_are_judged(self):
        other = ({"task_ref": "other"}, {"acc": {"value": 1}})
        assert judge(qa(0.9, 0.01), other, tasks=["qa"]).outcome == "pass"
        verdict = judge(qa(0.9, 0.01), other, tasks=["qa", "qc"])
        assert verdict.outcome == "inconclusive"
        assert verdict.reasons[0] == "qc is not judged: it is not in the report."

    def test_nothing_that_could_be_judged_is_no_pass(self):
        for nothing in (judge(), judge(({"task_ref": "qa"}, {})), judge(({}, {"acc": {"value": 1, "stderr": 0.1}}))):
            assert (nothing.outcome, nothing.blocks) == ("inconclusive", True)
        assert judge_report(Report(), {}).outcome == "inconclusive"

    def test_a_metric_without_a_value_is_inconclusive_with_its_reason(self):
        task, results = qa(
            0.9, 0.01, metadata={"no_value.f1": "nan is not a finite number", "no_value.acc_norm": "none"}
        )
        thresholds = QA.model_copy(update={"thresholds": {"acc": QA.thresholds["acc"], "f1": QA.thresholds["acc"]}})
        verdict = judge_report(report((task, results)), {"qa": thresholds})
        assert verdict.outcome == "inconclusive"
        assert verdict.reasons[0] == (
            "qa/f1: no value (n = 901) cannot be computed: the report has no value of it: nan is not a finite number."
        )
        assert verdict.not_judged == ["qa/acc_norm"]

    @pytest.mark.parametrize("gate", [None, POINT])
    def test_missing_results_show_nothing(self, gate):
        for value in (0.9, 0.4):
            verdict = judge(qa(value, 0.01, metadata={"missing.acc": "3 of 120"}), gate=gate)
            assert verdict.outcome == "inconclusive"
            assert "n = 117 of 120" in verdict.reasons[0]
        assert judge(qa(0.9, 0.01, metadata={"missing.acc": "none", "missing.f1": "3 of 120"})).outcome == "pass"

    def test_a_metric_of_the_thresholds_that_the_report_has_not_is_skipped_and_said(self):
        thresholds = QA.model_copy(update={"thresholds": {**QA.thresholds, "f1": []}})
        verdict = judge_report(report(qa(0.9, 0.01)), {"qa": thresholds})
        assert verdict.outcome == "pass"
        assert verdict.warnings == ["Skipped, for there are thresholds but no such metric: qa/f1."]

    def test_a_metric_without_thresholds_is_named(self):
        task, results = qa(0.9, 0.01)
        verdict = judge((task, {**results, "f1": {"value": 0}}))
        assert verdict.outcome == "pass"
        assert verdict.warnings == ["NOT JUDGED, as no rule of the gate is about them: qa/f1 (give them thresholds)."]

    def test_a_value_that_no_range_holds_is_inconclusive(self):
        bounded = Thresholds.model_validate(
            {"task": "qa", "thresholds": {"acc": [{"impact": "low", "min": 0.5, "max": 1}]}}
        )
        verdict = judge_report(report(qa(1, 0.001)), {"qa": bounded}, POINT)
        assert verdict.outcome == "inconclusive"
        assert "no range holds 1" in verdict.reasons[0]

    @pytest.mark.parametrize("gate", [None, POINT])
    def test_a_percentage_against_fractions_is_no_pass(self, gate):
        verdict = judge(qa(64.2, 1), gate=gate)
        assert verdict.outcome == "inconclusive"
        assert "the ranges lie within 0 and 1, but the value is 64.2: is it a percentage?" in verdict.warnings[0]

    def test_results_of_no_particular_task_are_refused(self):
        with pytest.raises(ValueError, match="which of 0 tasks"):
            judge_report(Report.model_validate({"results": [{"acc": {"value": 1}}]}), BOTH)


class TestNames:
    def test_each_filter_of_a_metric_is_judged(self):
        strict, flexible = qa(0.4, 0.01, metadata={"filter": "strict"}), qa(0.9, 0.01, metadata={"filter": "flexible"})
        verdict = judge(strict, flexible)
        assert verdict.outcome == "fail"
        assert [(metric.id, metric.outcome) for metric in verdict.metrics] == [
            ("qa/acc,strict", "fail"), ("qa/acc,flexible", "pass"),
        ]  # fmt: skip
        assert verdict.warnings == []

    def test_a_task_that_is_there_twice_is_judged_twice(self):
        verdict = judge(qa(0.9, 0.01), qa(0.4, 0.01))
        assert verdict.outcome == "fail"
        assert [metric.id for metric in verdict.metrics] == ["qa/acc", "qa/acc#2"]


def test_the_worst_impact_allowed_is_the_gates():
    assert judge(qa(0.4, 0.01), gate=Gate(max_impact="severe")).outcome == "pass"
    assert judge(qa(0.9, 0.01), gate=Gate(max_impact="very_low")).outcome == "fail"


def test_the_digest_is_that_of_the_thresholds_that_were_applied():
    assert judge(qa(0.9, 0.01)).thresholds_digest == thresholds_digest([QA])
    assert judge_report(report(qa(0.9)), {}).thresholds_digest is None
