"""The demo suite is valid, and gives a pass with failures worth a look."""

import re
from collections import Counter
from pathlib import Path

import pytest

from fepflow.checks.core.declarations import CheckDefaults
from fepflow.checks.llm_judge import LLMJudgeCheck
from fepflow.diagnose.validate_suite import validate_suite
from fepflow.evalguard.documents import load_metrics, load_tasks, load_thresholds
from fepflow.evalguard.models import check_ranges
from fepflow.protocol.test_case import TestCase
from fepflow.statistics.estimate import PROPORTION, Counts
from fepflow.statistics.means import mean_estimate
from fepflow.suite.reader import load_suite
from fepflow.verdict.gate import decide
from fepflow.verdict.verdict import MetricEstimate

DEMO = Path(__file__).parents[2] / "deployments" / "suites" / "demo"


@pytest.fixture(scope="module")
def suite():
    loaded = load_suite(DEMO / "suite.yaml", env={})
    assert loaded.problems == []
    return loaded.suite


@pytest.fixture(scope="module")
def thresholds(suite):
    return load_thresholds(DEMO / suite.thresholds, suite.task)


@pytest.fixture(scope="module")
def definitions():
    return load_metrics(DEMO / "metrics")


@pytest.fixture(scope="module")
def results(suite, cases, story):
    """Per metric, for each case that has an answer, whether it passes."""
    arguments = {check.id: check.arguments for check in suite.checks}
    passed: dict[str, list[bool]] = {"acc": [], "intent": [], "format": [], "confident": []}
    for case, told in zip(cases, story, strict=True):
        if told.tries[-1] != 200:
            continue
        text = told.reply["answer"]
        passed["acc"].append(all(phrase.lower() in text.lower() for phrase in case["expected"]))
        passed["intent"].append(told.reply["intent"] == case["metadata"]["topic"])
        passed["format"].append(not re.search(arguments["no_internal_codes"]["pattern"], text))
        passed["confident"].append(told.reply["confidence"] >= arguments["confidence"]["min_value"])
    return passed


def test_it_shows_the_four_standard_checks_and_a_judge(suite):
    assert [check.type for check in suite.checks] == ["contains", "exact_match", "regex", "threshold", "llm_judge"]


def test_its_judge_needs_no_key_and_is_where_the_agent_is(monkeypatch):
    monkeypatch.setenv("FEPFLOW_DEMO_AGENT_URL", "http://agent.test:1234")
    inspection = validate_suite(DEMO / "suite.yaml")
    assert inspection.problems == []
    (judge,) = CheckDefaults(inspection.require().judge).complete(inspection.require().checks)[-1:]
    (model,) = LLMJudgeCheck.model_validate(judge.to_check().arguments).check_models()
    assert (model.name, model.api_base, model.api_key) == (
        "hosted_vllm/stand-in",
        "http://agent.test:1234/judge/v1",
        None,
    )


def test_its_metrics_name_its_checks(suite):
    assert [metric.check for metric in suite.metrics] == [check.id for check in suite.checks]


def test_the_agent_may_be_elsewhere():
    loaded = load_suite(DEMO / "suite.yaml", env={"FEPFLOW_DEMO_AGENT_URL": "http://agent.test:1234"})
    assert loaded.suite.target.http.url == "http://agent.test:1234/ask"


def test_every_case_is_a_test_case_with_an_id_of_its_own(cases):
    ids = [TestCase.model_validate(case).id for case in cases]
    assert len(ids) == len(set(ids)) == 120


def test_questions_are_unique(cases):
    assert len({case["input"] for case in cases}) == len(cases)


def test_every_topic_of_the_agent_has_its_cases(cases, story):
    topics = Counter(case["metadata"]["topic"] for case in cases)
    assert set(topics) == {told.reply["intent"] for told in story if "intent" in told.reply}
    assert min(topics.values()) >= 10


def test_one_case_has_no_answer(cases, story):
    unanswered = [case["id"] for case, told in zip(cases, story, strict=True) if told.tries[-1] != 200]
    assert unanswered == ["order-status-06"]


def test_a_few_answers_are_wrong(results):
    wrong = {metric: passed.count(False) for metric, passed in results.items()}
    assert wrong == {"acc": 7, "intent": 2, "format": 3, "confident": 3}


def test_the_verdict_is_a_pass_though_an_answer_is_missing(suite, thresholds, results, cases):
    verdict = judge(suite, thresholds, results, len(cases))
    assert (verdict.outcome, verdict.warnings) == ("pass", [])
    assert {metric.n_error for metric in verdict.metrics} == {1}
    assert {metric.id: metric.impact for metric in verdict.metrics} == {
        "acc": "low",
        "intent": "very_low",
        "format": "very_low",
        "confident": "very_low",
    }


def test_three_more_unlucky_cases_do_not_change_the_verdict(suite, thresholds, results, cases):
    fewer = {metric: sorted(passed)[:-3] for metric, passed in results.items()}  # the wrong ones come first
    assert judge(suite, thresholds, fewer, len(cases)).outcome == "pass"


def test_an_agent_that_is_wrong_three_times_as_often_does_not_pass(suite, thresholds, results, cases):
    wrong = 3 * results["acc"].count(False)
    worse = {**results, "acc": [False] * wrong + [True] * (len(results["acc"]) - wrong)}
    assert judge(suite, thresholds, worse, len(cases)).outcome != "pass"


def test_the_ranges_give_every_value_one_impact(thresholds, definitions):
    for metric, ranges in thresholds.thresholds.items():
        assert list(check_ranges(ranges, definitions[metric].direction)) == []


def test_the_catalogue_knows_what_the_thresholds_name(suite, thresholds, definitions):
    task = load_tasks(DEMO / "tasks")["refund_desk"]
    assert suite.task == thresholds.task == task.id
    assert set(task.metrics) == set(definitions) == set(thresholds.thresholds)
    assert {metric.id for metric in suite.metrics} - set(task.metrics) == {"tone"}


def judge(suite, thresholds, results, n):
    """The verdict on results by metric, when `n` cases were asked."""
    metrics = []
    for metric in [metric for metric in suite.metrics if metric.id in results]:
        missing = n - len(results[metric.id])
        values = [[float(passed)] for passed in results[metric.id]] + [[]] * missing
        counts = Counts(expected=n, completed=n - missing, error=missing)
        estimate = mean_estimate(values, counts, suite.gate.confidence, PROPORTION)
        metrics.append(MetricEstimate(metric.id, metric.check, estimate))
    return decide(metrics, suite.gate, thresholds, [])
