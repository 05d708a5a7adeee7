from __future__ import annotations

import logging

import pytest

from fepflow.protocol.test_case import Output
from fepflow.store.records import NewOutput
from fepflow.store.store import Store
from fepflow.tasks.batches import Batch
from fepflow.tasks.call_target import call_target
from fepflow.tasks.open_run import open_run

from .conftest import Agent, Plan


async def test_only_missing_outputs_are_called(plan: Plan, store: Store, agent: Agent) -> None:
    run_id = plan(["a", "b", "c"])
    store.results.write(run_id, [NewOutput(1, 0, "x" * 64, Output(value="from before"))], [])
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, 3))
        assert (await call_target(context, work)).calls == 2
        assert (await call_target(context, work)).calls == 0
    assert agent.requests == {"a": 1, "c": 1}
    assert {unit: stored.output.value for unit, stored in store.results.outputs(run_id).items()} == {
        (0, 0): "a",
        (1, 0): "from before",
        (2, 0): "c",
    }


async def test_a_batch_keeps_to_its_own_cases(plan: Plan, store: Store, agent: Agent) -> None:
    run_id = plan(["a", "b", "c", "d"])
    async with open_run(run_id) as context:
        work = await context.begin(Batch(1, 3))
        await call_target(context, work)
    assert agent.requests == {"b": 1, "c": 1}


async def test_a_call_that_fails_for_good_is_an_output_with_its_cause(plan: Plan, store: Store, agent: Agent) -> None:
    run_id = plan(["fail 9"])
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, 1))
        await call_target(context, work)
        assert (await call_target(context, work)).calls == 0, "it is not asked again by itself"
        assert (context.counts["calls"], context.counts["failed_calls"]) == (2, 1)
    stored = store.results.outputs(run_id)[0, 0]
    assert stored.failed
    assert stored.output.value is None
    assert stored.output.metadata is not None
    assert stored.output.metadata["error"]["message"].startswith("HTTP 503 Service Unavailable: not yet")
    assert agent.requests == {"fail 9": 2}


async def test_each_retry_is_logged_with_case_attempt_and_cause_and_without_the_secret(
    plan: Plan, agent: Agent, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_TOKEN", "canary-4711")
    run_id = plan(["fail 1"], target={"http": {"headers": {"Authorization": "Bearer ${AGENT_TOKEN}"}}})
    with caplog.at_level(logging.WARNING, "fepflow.run"):
        async with open_run(run_id) as context:
            work = await context.begin(Batch(0, 1))
            await call_target(context, work)
    slower, message = [record.getMessage() for record in caplog.records]
    assert slower.startswith("the target is overloaded, 8 calls at once from now on: HTTP 503")
    assert message.startswith("fail 1: attempt 1 failed, again in ")
    assert message.endswith("HTTP 503 Service Unavailable: not yet: Bearer ***")
    assert "canary" not in caplog.text


async def test_no_more_calls_are_under_way_than_the_suite_allows(plan: Plan, agent: Agent) -> None:
    agent.delay = 0.02
    run_id = plan([f"q{number}" for number in range(12)], target={"concurrency": 3})
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, 12))
        await call_target(context, work)
    assert agent.most_at_once == 3


async def test_each_repeat_is_a_call_with_its_own_content_hash(plan: Plan, store: Store, agent: Agent) -> None:
    run_id = plan(["a", "b"], repeats=3)
    async with open_run(run_id) as context:
        work = await context.begin(Batch(2, 5))
        assert (await call_target(context, work)).calls == 3
    outputs = store.results.outputs(run_id)
    assert set(outputs) == {(0, 2), (1, 0), (1, 1)}
    assert len({stored.content_hash for stored in outputs.values()}) == 3


async def test_a_case_whose_request_cannot_be_made_is_an_error_without_a_call(
    plan: Plan, store: Store, agent: Agent
) -> None:
    other = {"id": "b", "input": "b", "metadata": {"question": "b"}}
    run_id = plan(["a", other], target={"http": {"body": {"question": "$.test_case.metadata.question"}}})
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, 1))
        await call_target(context, work)
    stored = store.results.outputs(run_id)[0, 0]
    assert stored.output.metadata is not None
    assert stored.output.metadata["error"]["type"] == "jsonpath_error"
    assert not agent.requests


@pytest.mark.parametrize("value", ["", "$.x", 0, False, [], {}])
async def test_any_json_value_is_a_successful_response(plan: Plan, store: Store, value: object) -> None:
    run_id = plan([{"id": "a", "input": value}])
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, 1))
        await call_target(context, work)
    stored = store.results.outputs(run_id)[0, 0]
    assert stored.output.value == value
    assert not stored.failed
