"""Outputs of earlier runs in place of calls: only for the same request, never silently, and for nothing."""

from __future__ import annotations

from typing import Any

import pytest

from fepflow.errors import UserError
from fepflow.protocol.test_case import Output
from fepflow.reports.fep import test_case_results as results_of
from fepflow.store.store import Store
from fepflow.tasks.batches import Batch
from fepflow.tasks.call_target import BatchResult, call_target, call_target_task
from fepflow.tasks.create_run import RunOptions
from fepflow.tasks.decide import decide_run
from fepflow.tasks.open_run import open_run
from fepflow.tasks.run_checks import run_checks_of_batch
from fepflow.verdict.verdict import Verdict

from .conftest import Agent, Plan

REUSE = RunOptions(reuse_outputs=True)


async def run_whole(run_id: str) -> tuple[BatchResult, Verdict, dict[str, float]]:
    """The calls, the verdict, and what the run has spent."""
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, context.run.calls))
        result = await call_target(context, work)
        await run_checks_of_batch(context, work)
        verdict = await decide_run(context)
        return result, verdict, context.target_client.budget.spent


async def test_an_unchanged_request_is_not_made_again_and_the_verdict_says_so(
    plan: Plan, store: Store, agent: Agent
) -> None:
    first = plan(["a", "b"])
    await run_whole(first)
    again = plan([{"id": "a", "input": "a", "expected": "A"}, "b", "c"], options=REUSE)  # `expected` is not sent
    result, verdict, _ = await run_whole(again)
    assert (result.calls, result.reused) == (1, 2)
    assert agent.requests == {"a": 1, "b": 1, "c": 1}
    assert verdict.outcome == "fail"  # the check judges by the new `expected`
    assert verdict.reused_outputs == 2
    assert "2 of 3 outputs from earlier runs: the target was not called for them" in verdict.warnings[0]
    assert store.results.progress(again).reused == 2
    before, now = store.results.outputs(first)[0, 0].output, store.results.outputs(again)[0, 0].output
    assert now.metadata == {**(before.metadata or {}), "reused_from": first}, "the latency is that of the call"
    assert [
        result["execution_context"]["output"]["metadata"].get("reused_from")
        for result in results_of(store, store.runs.get(again))
    ] == [first, first, None]


@pytest.mark.parametrize(
    "changed", [{"body": {"question": "$.test_case.input", "n": 1}}, {"headers": {"X-N": "1"}}, {"output": "$"}]
)
async def test_another_request_is_made(plan: Plan, agent: Agent, changed: dict[str, Any]) -> None:
    await run_whole(plan(["a"]))
    result, _, _ = await run_whole(plan(["a"], options=REUSE, target={"http": changed}))
    assert (result.calls, result.reused) == (1, 0)


async def test_a_failed_output_and_one_of_another_repeat_are_asked_for(plan: Plan, agent: Agent) -> None:
    await run_whole(plan(["fail 3", "a"], target={"attempts": 1}))
    result, _, _ = await run_whole(plan(["fail 3", "a"], options=REUSE, repeats=2, target={"attempts": 4}))
    assert (result.calls, result.reused) == (3, 1)


async def test_without_the_option_everything_is_asked_again(plan: Plan, agent: Agent) -> None:
    await run_whole(plan(["a"]))
    result, verdict, _ = await run_whole(plan(["a"]))
    assert (result.calls, verdict.reused_outputs, agent.requests["a"]) == (1, None, 2)


async def test_an_output_names_the_run_that_made_it_however_often_it_is_reused(plan: Plan, store: Store) -> None:
    first = plan(["a"])
    await run_whole(first)
    for _ in range(2):
        last = plan(["a"], options=REUSE)
        await run_whole(last)
    assert (store.results.outputs(last)[0, 0].output.metadata or {})["reused_from"] == first


async def test_the_budget_is_not_spent_again(plan: Plan, store: Store) -> None:
    sections: dict[str, Any] = {
        "budget": {"tokens": 1000},
        "target": {"http": {"metadata": {"tokens": "$.answer"}}},  # the agent says back what it is asked
    }
    cases = [{"id": "a", "input": 7}, {"id": "b", "input": 5}]
    _, _, spent = await run_whole(plan(cases, **sections))
    assert spent["tokens"] == 12
    again = plan([*cases, {"id": "c", "input": 3}], options=REUSE, **sections)
    _, _, spent = await run_whole(again)
    assert spent["tokens"] == 3


async def test_a_failed_output_that_tells_its_cost_spends_it(plan: Plan) -> None:
    async with open_run(
        plan(["a"], budget={"tokens": 100}, target={"http": {"metadata": {"tokens": "$.t"}}})
    ) as context:
        failure = {"error": {"message": "the model gave an empty answer"}}
        context.spend(Output(value=None, metadata={**failure, "tokens": 15}))
        context.spend(Output(value=None, metadata=failure))
        assert context.target_client.budget.spent == {"tokens": 15}


async def test_a_batch_of_earlier_outputs_ends_in_a_state_of_its_own(plan: Plan) -> None:
    await run_whole(plan(["a"]))
    async with open_run(plan(["a"], options=REUSE)) as context:
        state = await call_target_task.fn(context, await context.begin(Batch(0, 1)), "a")
    assert (state.name, state.message) == ("Cached", "1 of 1 case not called for: the output is of an earlier run.")


def test_runs_that_are_judged_together_do_not_count_an_output_twice(plan: Plan) -> None:
    gate = {"min": {"exact_match": 0.5}, "looks": "pooled"}
    with pytest.raises(UserError, match="count twice: leave out --reuse-outputs"):
        plan(["a"], options=RunOptions(reuse_outputs=True, version="1"), gate=gate)
