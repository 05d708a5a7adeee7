"""Checks as a step of a run; those that ask a model over real sockets, against the stand-in for models."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import Any

import pytest

from fepflow.analysis.metrics import costs_of
from fepflow.calls import policy
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output
from fepflow.store.records import NewCheckResult, NewOutput
from fepflow.store.store import Store
from fepflow.tasks.batches import Batch
from fepflow.tasks.call_target import call_target
from fepflow.tasks.context import MAX_ESCALATIONS
from fepflow.tasks.decide import decide_run
from fepflow.tasks.open_run import open_run
from fepflow.tasks.plan_run import resume_run
from fepflow.tasks.run_checks import ModelCheckResult, retry_calls, run_checks_of_batch, run_model_checks

from .conftest import SAME, Agent, Plan

pytestmark = pytest.mark.filterwarnings("ignore:.*ReadOnly. qualifier")

NOT_EMPTY = {"id": "not_empty", "type": "regex", "arguments": {"text": "$.output.value", "pattern": "."}}


async def evaluated(run_id: str, calls: int) -> None:
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, calls))
        await call_target(context, work)
        await run_checks_of_batch(context, work)


async def test_every_check_of_every_case_is_answered_a_cases_own_first(plan: Plan, store: Store) -> None:
    own = {"id": "b", "input": "b", "expected": "x", "checks": [{**NOT_EMPTY, "id": "own"}]}
    run_id = plan(["a", own])
    await evaluated(run_id, 2)
    results = {result.case.id: result for result in store.results.by_case(run_id)}
    assert {check.check_id: check.results for check in results["a"].checks} == {"exact_match": {"passed": True}}
    assert {check.check_id: check.results for check in results["b"].checks} == {
        "own": {"passed": True},
        "exact_match": {"passed": False},
    }


async def test_only_the_answers_that_are_missing_are_computed(plan: Plan, store: Store) -> None:
    run_id = plan(["a"], checks=[SAME, NOT_EMPTY])
    before = CheckResult(
        check_type="exact_match", status="completed", results={"passed": False}, evaluated_at=utc_now()
    )
    store.results.write(run_id, [], [NewCheckResult(0, 0, "exact_match", "x" * 64, before, False)])
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, 1))
        await call_target(context, work)
        assert await run_checks_of_batch(context, work) == 1
        assert await run_checks_of_batch(context, work) == 0
    (result,) = store.results.by_case(run_id)
    assert {check.check_id: check.results for check in result.checks} == {
        "exact_match": {"passed": False},
        "not_empty": {"passed": True},
    }


async def test_the_checks_of_a_call_without_an_answer_are_errors_with_its_cause(plan: Plan, store: Store) -> None:
    run_id = plan(["fail 9"], checks=[SAME, NOT_EMPTY])
    await evaluated(run_id, 1)
    (result,) = store.results.by_case(run_id)
    assert [check.status for check in result.checks] == ["error", "error"]
    for check in result.checks:
        assert check.error is not None
        assert check.error.recoverable
        assert "HTTP 503 Service Unavailable" in check.error.message


async def test_a_check_that_cannot_read_an_output_is_an_error_and_others_run(plan: Plan, store: Store) -> None:
    deep = {"id": "deep", "type": "exact_match", "arguments": {"actual": "$.output.value.deep", "expected": 1}}
    run_id = plan(["a", "b"], checks=[deep, SAME])
    await evaluated(run_id, 2)
    rows = {(row.case_index, row.check_id): (row.status, row.passed) for row in store.results.check_rows(run_id)}
    assert rows == {
        (0, "deep"): ("error", None),
        (0, "exact_match"): ("completed", True),
        (1, "deep"): ("error", None),
        (1, "exact_match"): ("completed", True),
    }


async def test_progress_counts_what_became_of_the_checks(plan: Plan, agent: Agent) -> None:
    run_id = plan(["a", "fail 9", {"id": "c", "input": "c", "expected": "x"}])
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, 3))
        await call_target(context, work)
        await run_checks_of_batch(context, work)
        counts = {name: context.counts[name] for name in ("checks", "passed", "failed", "errors")}
    assert counts == {"checks": 3, "passed": 1, "failed": 1, "errors": 1}


FORMAT = {"type": "object", "properties": {"passed": {"const": True}}, "required": ["passed"]}
JUDGE = {
    "id": "judge",
    "type": "llm_judge",
    "arguments": {"prompt": "Right? {{$.output.value}}", "response_format": FORMAT},
}
ALIKE = {
    "id": "alike",
    "type": "semantic_similarity",
    "arguments": {"text": "$.output.value", "reference": "$.test_case.expected"},
}


@pytest.fixture(autouse=True)
def _own_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "sk-1234567890")


@pytest.fixture
def judged(plan: Plan, model_server: Any) -> Plan:
    """As `plan`, with a judge whose model misbehaves as its name says."""

    def make(cases: Any, model: str = "gpt-4o-mini", **sections: Any) -> str:
        where = {"api_base": f"{model_server.address}/v1", "api_key": "${JUDGE_KEY}", **sections.pop("where", {})}
        judge = {"model_config": {"model": f"openai/{model}"}, "provider_config": where, **sections.pop("judge", {})}
        embedding = {"model_config": {"model": "openai/text-embedding-3-small"}, "provider_config": where}
        checks = sections.pop("checks", [SAME, JUDGE])
        return plan(cases, checks=checks, judge=judge, embedding=embedding, **sections)

    return make


async def asked_for(run_id: str, calls: int) -> ModelCheckResult:
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, calls))
        await call_target(context, work)
        return await run_model_checks(context, work)


def rows(store: Store, run_id: str) -> dict[tuple[int, str], tuple[str, bool | None]]:
    return {(row.case_index, row.check_id): (row.status, row.passed) for row in store.results.check_rows(run_id)}


def usage(store: Store, run_id: str, check_id: str = "judge") -> dict[str, Any]:
    (row,) = [row for row in store.results.check_rows(run_id) if row.check_id == check_id]
    assert row.result is not None
    found: dict[str, Any] = row.result["metadata"]["spent"]
    return found


async def test_only_missing_model_checks_are_run(judged: Plan, store: Store, model_server: Any) -> None:
    run_id = judged(["a", {"id": "b", "input": "b", "expected": "b", "checks": [ALIKE]}])
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, 2))
        await call_target(context, work)
        asked = await run_model_checks(context, work)
        assert (asked.results, asked.completed, asked.requests) == (3, 3, 3)
        assert set(rows(store, run_id)) == {(0, "judge"), (1, "judge"), (1, "alike")}
        assert (work.has_local_checks, work.has_model_checks) == (True, True)
        assert (await run_model_checks(context, work)).requests == 0
        assert await run_checks_of_batch(context, work) == 2
    assert len(model_server.seen) == 3


async def test_a_batch_without_such_checks_is_known_for_it(plan: Plan, judged: Plan) -> None:
    async with open_run(plan(["a"])) as context:
        work = await context.begin(Batch(0, 1))
        assert (work.has_local_checks, work.has_model_checks) == (True, False)
    own = {"id": "b", "input": "b", "expected": "b", "checks": [ALIKE]}
    async with open_run(judged(["a", own], checks=[])) as context:
        first, second = [await context.begin(Batch(start, start + 1)) for start in range(2)]
        assert (first.has_local_checks, first.has_model_checks) == (False, False)
        assert (second.has_local_checks, second.has_model_checks) == (False, True)


async def test_each_result_has_its_usage(judged: Plan, store: Store) -> None:
    run_id = judged(["a"], checks=[JUDGE, ALIKE])
    await asked_for(run_id, 1)
    spent = usage(store, run_id)
    assert (spent["requests"], spent["answers"]) == (1, 1)
    assert spent["tokens"] > 0
    assert spent["usd"] > 0
    costs = costs_of(store, run_id)
    assert costs.answers == 2
    assert costs.usd == pytest.approx(spent["usd"] + usage(store, run_id, "alike")["usd"])


@pytest.mark.parametrize(("model", "tokens"), [("nobody-knows-me", 1), ("gpt-4o-mini?fault=no_usage", None)])
async def test_an_unknown_cost_is_null(judged: Plan, store: Store, model: str, tokens: int | None) -> None:
    run_id = judged(["a"], model, budget={"usd": 1})
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, 1))
        await call_target(context, work)
        await run_model_checks(context, work)
        await run_checks_of_batch(context, work)
        verdict = await decide_run(context)
    spent = usage(store, run_id)
    assert (spent["usd"], spent["without_usd"]) == (None, 1)
    assert (spent["tokens"] is None) is (tokens is None)
    assert "does not count 1 of 1 answers of models: their cost is not known" in verdict.warnings[0]
    assert str(verdict.models) == "1 answer: cost not known"


async def test_unusable_responses_count_towards_the_budget(judged: Plan, store: Store) -> None:
    run_id = judged(["a"], "gpt-4o-mini?fault=misfit")
    await asked_for(run_id, 1)
    assert rows(store, run_id) == {(0, "judge"): ("error", None)}
    spent = usage(store, run_id)
    assert (spent["requests"], spent["answers"]) == (3, 3)
    assert spent["tokens"] > 100


async def test_checks_left_out_by_the_budget_are_run_on_resume(
    judged: Plan, store: Store, model_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = [f"q{number}" for number in range(8)]
    run_id = judged(cases, budget={"tokens": 200}, judge={"concurrency": 1})
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, 8))
        await call_target(context, work)
        await run_checks_of_batch(context, work)
        asked = await run_model_checks(context, work)
        verdict = await decide_run(context)
    assert 0 < asked.results < 8
    assert asked.left_out == 8 - asked.results
    assert len(model_server.seen) == asked.results
    assert verdict.outcome == "inconclusive"
    assert verdict.reasons[1].startswith(f"{asked.left_out} checks by models are missing: the run reached the budget")
    assert {status for status, _ in rows(store, run_id).values()} == {"completed"}

    resume_run(store, run_id)
    async with open_run(run_id) as context:
        assert context.target_client.budget.ended, "what was spent before is not forgotten"
        work = await context.begin(Batch(0, 8))
        assert (await run_model_checks(context, work)).results == 0
        context.target_client.budget.spent = {"tokens": 0.0}
        context.target_client.budget._budget = {"tokens": 10_000.0}
        again = await run_model_checks(context, work)
    assert (again.results, again.left_out) == (asked.left_out, 0)
    assert len(model_server.seen) == 8


async def test_no_retries_are_waited_for_at_the_deadline(judged: Plan, store: Store) -> None:
    run_id = judged(["a", "b"], "gpt-4o-mini?latency=0.6", deadline="200ms")
    asked = await asked_for(run_id, 2)
    assert (asked.results, asked.left_out) == (0, 2)
    assert rows(store, run_id) == {}
    await asyncio.sleep(0.6)  # the stand-in ends in peace


async def test_a_retryable_judge_failure_is_not_stored_but_returned(
    judged: Plan, store: Store, model_server: Any
) -> None:
    run_id = judged(["a"], "gpt-4o-mini?fault=error&times=3", where={"max_retries": 1})
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, 1))
        await call_target(context, work)
        (pending,) = (await run_model_checks(context, work)).to_retry
        assert rows(store, run_id) == {}
        assert len(model_server.seen) == 2
        await retry_calls(context, pending)
        assert len(model_server.seen) == 3, "one request, whatever max_retries says"
        assert pending.calls[0].may_recover
        await retry_calls(context, pending)
        assert len(model_server.seen) == 4
        assert pending.calls[0].result is not None
        assert pending.calls[0].result.status == "completed"
        assert pending.calls[0].request_context.requests == 4


@pytest.mark.parametrize("fault", ["quota", "unauthorized", "refusal", "cut_off", "misfit"])
async def test_non_retryable_errors_are_stored_at_once(judged: Plan, store: Store, fault: str) -> None:
    run_id = judged(["a"], f"gpt-4o-mini?fault={fault}")
    asked = await asked_for(run_id, 1)
    assert asked.to_retry == []
    assert rows(store, run_id) == {(0, "judge"): ("error", None)}


async def test_failed_requests_are_counted(judged: Plan, store: Store) -> None:
    run_id = judged(["a", "b"], "gpt-4o-mini?fault=unauthorized")
    assert str(costs_of(store, run_id)) == "no new answer"
    await asked_for(run_id, 2)
    assert str(costs_of(store, run_id)) == "no answer, to 2 requests"


async def test_a_limited_number_of_outputs_is_tried_again(judged: Plan, store: Store) -> None:
    run_id = judged(["a", "b", "c"], "gpt-4o-mini?fault=error", where={"max_retries": 0})
    async with open_run(run_id) as context:
        context.escalations = MAX_ESCALATIONS - 1
        work = await context.begin(Batch(0, 3))
        await call_target(context, work)
        asked = await run_model_checks(context, work)
        assert len(asked.to_retry) == 1
    assert Counter(rows(store, run_id).values()) == {("error", None): 2}


async def test_no_requests_are_made_while_the_circuit_is_open(
    judged: Plan, store: Store, model_server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "GRACE_SECONDS", 0.3)
    monkeypatch.setattr(policy, "PROBE_SECONDS", 0.1)
    cases = [f"q{number}" for number in range(120)]
    run_id = judged(cases, "gpt-4o-mini?fault=unauthorized")
    asked = await asked_for(run_id, 120)
    assert len(model_server.seen) < 60
    assert asked.results == 120
    assert len(asked.down) > 40
    assert asked.down[0].error is not None
    assert asked.down[0].error.recoverable
    assert re.match(r"openai is down \(\d\d cases in a row failed, the last with: ", asked.down[0].error.message)
    assert "sk-1234567890" not in asked.down[0].error.message


async def test_a_failed_output_is_not_judged(judged: Plan, store: Store, agent: Agent, model_server: Any) -> None:
    run_id = judged(["fail 9"])
    asked = await asked_for(run_id, 1)
    assert rows(store, run_id) == {(0, "judge"): ("error", None)}
    assert (asked.requests, model_server.seen) == (0, [])


async def test_of_a_call_that_broke_off_only_completed_steps_are_judged(
    judged: Plan, store: Store, model_server: Any
) -> None:
    def judge(step: int) -> dict[str, Any]:
        prompt = f"Right? {{{{$.output.value.steps[{step}].public_output}}}}"
        return {**JUDGE, "id": f"step-{step}", "arguments": {"prompt": prompt, "response_format": FORMAT}}

    run_id = judged(["a"], checks=[judge(0), judge(1)])
    error = {"type": "unknown_error", "kind": "crashed", "message": "step 2 of 2: it crashed", "partial": True}
    output = Output(value={"steps": [{"public_output": "one"}]}, metadata={"error": error})
    store.results.write(run_id, [NewOutput(0, 0, "a" * 64, output)], [])
    await asked_for(run_id, 1)
    assert rows(store, run_id) == {(0, "step-0"): ("completed", True), (0, "step-1"): ("error", None)}
    assert len(model_server.seen) == 1


async def test_no_more_requests_are_under_way_than_the_suite_allows(judged: Plan, model_server: Any) -> None:
    run_id = judged([f"q{number}" for number in range(6)], "gpt-4o-mini?latency=0.2", judge={"concurrency": 2})
    started = asyncio.get_running_loop().time()
    await asked_for(run_id, 6)
    assert asyncio.get_running_loop().time() - started > 0.6
    assert len(model_server.seen) == 6
