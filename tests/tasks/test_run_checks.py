from __future__ import annotations

from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckResult
from fepflow.store.records import NewCheckResult
from fepflow.store.store import Store
from fepflow.tasks.batches import Batch
from fepflow.tasks.call_target import call_target
from fepflow.tasks.open_run import open_run
from fepflow.tasks.run_checks import run_checks_of_batch

from .conftest import SAME, Agent, Plan

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
