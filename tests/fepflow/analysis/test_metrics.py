"""What is known of a run before it has ended. Its verdict is in test_decide."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from fepflow.analysis.accumulation import range_of
from fepflow.analysis.metrics import compute_verdict, metrics_so_far
from fepflow.protocol.check import Check
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.statistics.estimate import PROPORTION, Scale
from fepflow.store.records import NewCheckResult, NewOutput, RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import Metric, Suite
from fepflow.tasks.batches import Batch
from fepflow.tasks.call_target import call_target
from fepflow.tasks.open_run import open_run
from fepflow.tasks.run_checks import run_checks_of_batch
from fepflow.verdict.verdict import Verdict
from tests.tasks.conftest import Plan


async def test_metrics_so_far_count_missing_results(plan: Plan, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_TOKEN", "abcdefgh")
    headers = {"Authorization": "Bearer ${AGENT_TOKEN}"}
    gate = {"min": {"acc": 0.9}}
    metrics = [{"id": "acc", "check": "exact_match"}]
    run_id = plan(["a", "b", "c", "d"], target={"http": {"headers": headers}}, metrics=metrics, gate=gate)
    async with open_run(run_id) as context:
        await call_target(context, await context.begin(Batch(2, 3)))
        work = await context.begin(Batch(0, 2))
        await call_target(context, work)
        await run_checks_of_batch(context, work)
        monkeypatch.delenv("AGENT_TOKEN")  # whoever looks need not have what the target needs
        (metric,) = metrics_so_far(store, store.runs.get(run_id))
    assert (metric["id"], metric["value"], metric["n_completed"], metric["n_expected"]) == ("acc", 1.0, 2, 4)
    assert metric["low"] < 0.5, "the two that are to come may fail"
    assert metric["threshold"] == 0.9
    assert "outcome" not in metric


NUMBERS = count()


def judged(store: Store, results: dict[str, list[dict[str, Any] | None]], **sections: Any) -> Any:
    """The verdict on results by check, one for each case; None never came."""
    n = max(map(len, results.values()))
    run_id = f"{next(NUMBERS):032x}"
    store.runs.create(
        RunRecord(id=run_id, name="s", suite={}, repeats=1), [TestCase(id=str(case), input=case) for case in range(n)]
    )
    rows = []
    for check, found in results.items():
        for case, given in enumerate(found):
            if given is not None:
                made = CheckResult(check_type="contains", status="completed", results=given, evaluated_at=utc_now())
                rows.append(NewCheckResult(case, 0, check, "a", made, given.get("passed")))
    store.results.write(run_id, [NewOutput(case, 0, "o", Output(value="x")) for case in range(n)], rows)
    checks = [{"type": "contains", "id": check, "arguments": {}} for check in results]
    target = {"http": {"url": "http://127.0.0.1:9/"}}
    suite = {"name": "s", "target": target, "test_cases": [], "checks": checks, **sections}
    return compute_verdict(store, store.runs.get(run_id), Suite.model_validate(suite))


PASSED: dict[str, Any] = {"passed": True}


def test_an_incomplete_check_without_a_metric_does_not_pass(store: Store) -> None:
    results = {"contains": [PASSED] * 30, "judge": [PASSED] * 16 + [None] * 14}
    verdict = judged(store, results, metrics=[{"id": "acc", "check": "contains"}])
    assert (verdict.outcome, verdict.reasons[0]) == ("inconclusive", "judge: 16 of 30 passed, but 14 never came.")
    gated = judged(store, results, metrics=[{"id": "acc", "check": "contains"}], gate={"min": {"acc": 0.8}})
    assert (gated.outcome, gated.not_judged) == ("pass", ["judge"])
    assert "judge (14 never came)" in gated.warnings[0]


@pytest.mark.parametrize(("gate", "outcome"), [({}, "inconclusive"), ({"min": {"own": 0.1}}, "pass")])
def test_answers_that_nothing_judges_are_named_and_do_not_pass_by_default(
    store: Store, gate: dict[str, Any], outcome: str
) -> None:
    own = [Check(type="contains", id="own", arguments={})]
    cases = [TestCase(id=str(case), input=case, checks=own if case < 3 else None) for case in range(10)]
    store.runs.create(RunRecord(id="unchecked", name="s", suite={}, repeats=1), cases)
    made = CheckResult(check_type="contains", status="completed", results=PASSED, evaluated_at=utc_now())
    store.results.write("unchecked", [], [NewCheckResult(case, 0, "own", "a", made, True) for case in range(3)])
    suite = {"name": "s", "target": {"http": {"url": "http://127.0.0.1:9/"}}, "test_cases": [], "gate": gate}
    verdict = compute_verdict(store, store.runs.get("unchecked"), Suite.model_validate(suite))
    assert verdict.outcome == outcome
    (sentence,) = [text for text in [*verdict.reasons, *verdict.warnings] if "7 of 10" in text]
    assert sentence == "7 of 10 test cases have no check, so nothing judges their answers."


def test_a_verdict_can_be_read_from_where_it_is_stored(store: Store) -> None:
    """Without its values that are None: of a check that always ended in an error, and of an open interval."""
    metrics = [{"id": "p", "check": "c", "value": "$.score", "aggregate": "p95"}, {"id": "e", "check": "e"}]
    results: dict[str, Any] = {"c": [{"score": 1.0}] * 3, "e": [None] * 3}
    verdict = judged(store, results, metrics=metrics, gate={"max": {"p": 2}}, slices={"by": "topic"})
    document = verdict.model_dump(mode="json", exclude_none=True)
    assert Verdict.stored(document.pop("outcome"), document.pop("metrics"), document) == verdict


def test_results_without_a_verdict_of_a_check_that_gives_one_elsewhere_are_missing(store: Store) -> None:
    verdict = judged(store, {"contains": [PASSED] * 30 + [{"remark": "odd"}] * 10})
    assert verdict.outcome == "inconclusive"
    assert verdict.reasons == ["contains: 30 of 40 passed, but 10 gave neither pass nor fail."]


def test_a_score_outside_of_its_range_is_an_error_with_a_warning(store: Store) -> None:
    scores = [{"score": score} for score in [1.0] * 36 + [10, -0.5]]
    metrics = [{"id": "score", "check": "c", "value": "$.score", "range": [0, 1]}]
    verdict = judged(store, {"c": scores}, metrics=metrics, gate={"min": {"score": 0.5}})
    (metric,) = verdict.metrics
    assert (metric.n_error, metric.value, metric.method) == (2, 1.0, "bounded-exact")
    assert "score: 2 values outside of the range 0 to 1, such as -0.5, count as errors" in verdict.warnings[0]


@pytest.mark.parametrize("huge", [1e308, 1.7e308, 10**400, -(10**400)])
def test_huge_scores_keep_no_run_from_its_verdict(store: Store, huge: float) -> None:
    scores = [{"passed": True, "score": huge}, {"passed": True, "score": 1e308}, {"passed": True, "score": -1e308}]
    metrics = [{"id": "score", "check": "c", "value": "$.score"}]
    verdict = judged(store, {"c": scores}, metrics=metrics, gate={"min": {"score": 0.5}})
    assert verdict.outcome == "inconclusive"
    assert judged(store, {"c": scores}, metrics=metrics).outcome == "pass"


def test_a_metric_that_cannot_be_computed_is_inconclusive_and_the_others_are_judged(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: Any) -> Any:
        raise OverflowError("too large")

    metrics = [{"id": "acc", "check": "c"}, {"id": "score", "check": "c", "value": "$.score"}]
    monkeypatch.setattr("fepflow.statistics.means.Sums._t_bounds", breaks)
    gate = {"min": {"acc": 0.5, "score": 0.5}}
    verdict = judged(store, {"c": [{"passed": True, "score": 1}] * 40}, metrics=metrics, gate=gate)
    assert [(rule.metric, rule.outcome) for rule in verdict.rules] == [("score", "inconclusive"), ("acc", "pass")]
    assert "cannot be computed: OverflowError: too large" in verdict.reasons[0]


RESPONSE = {
    "properties": {
        "score": {"type": "integer", "minimum": 1, "maximum": 5},
        "polite": {"type": "boolean"},
        "open": {"type": "number", "minimum": 0},
        "inner": {"properties": {"share": {"minimum": 0, "maximum": 1}}},
    }
}


@pytest.mark.parametrize(
    ("check_type", "value", "declared", "scale"),
    [
        ("contains", None, None, PROPORTION),
        ("llm_judge", "$.response.passed", None, PROPORTION),
        ("contains", "$.score", None, None),
        ("contains", "$.score", [0, 10], Scale(0, 10)),
        ("semantic_similarity", "$.response.score", None, Scale(0, 1)),
        ("tool_usage", "$.score", None, Scale(0, 1)),
        ("semantic_similarity", "$.metadata.raw_score", None, None),
        ("llm_judge", "$.response.score", None, Scale(1, 5)),
        ("llm_judge", "$.response.score", [0, 5], Scale(0, 5)),
        ("llm_judge", "$.response.polite", None, Scale(0, 1)),
        ("llm_judge", "$.response.open", None, None),
        ("llm_judge", "$.response.inner.share", None, Scale(0, 1)),
        ("llm_judge", "$.response.nowhere", None, None),
    ],
)
def test_the_range_of_a_metric_is_declared_or_known(
    check_type: str, value: str | None, declared: list[float] | None, scale: Scale | None
) -> None:
    metric = Metric(id="m", check="c", value=value, range=declared)
    check = Check(type=check_type, arguments={"response_format": RESPONSE})
    assert range_of(metric, [check, check]) == scale


def test_checks_of_one_name_with_different_ranges_have_both_and_an_unknown_one_leaves_it_unknown() -> None:
    metric = Metric(id="m", check="c", value="$.response.score")
    wider = {"properties": {"score": {"minimum": -1, "maximum": 3}}}
    checks = [Check(type="llm_judge", arguments={"response_format": schema}) for schema in (RESPONSE, wider)]
    assert range_of(metric, checks) == Scale(-1, 5)
    assert range_of(metric, [*checks, Check(type="llm_judge", arguments={"response_format": {}})]) is None
