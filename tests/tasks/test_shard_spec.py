"""What one executor of a run may do and take."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fepflow.calls.client import RetryPolicy
from fepflow.store.store import Store
from fepflow.suite.models import Budget
from fepflow.tasks import open_run as open_run_module
from fepflow.tasks.batches import FULL_RUN, Batch, ShardSpec
from fepflow.tasks.call_target import call_target
from fepflow.tasks.open_run import open_run, open_shard
from tests.tasks.conftest import Agent, Plan


async def test_a_shard_calls_its_cases_and_does_not_end_the_run(plan: Plan, store: Store, agent: Agent) -> None:
    run_id = plan(["a", "b", "c", "d", "e"])
    async with open_run(run_id):
        async with open_shard(run_id, ShardSpec(1, 2)) as context:
            calls = context.shard_spec.calls(context.run)
            work = await context.begin(Batch(calls.start, calls.stop))
            await call_target(context, work)
            assert store.leases.shard_holder(run_id, 1) == (context.owner, True)
        assert store.leases.shard_holder(run_id, 1) is None
        assert store.runs.get(run_id).status == "running"
    assert agent.requests == {"c": 1, "d": 1, "e": 1}


async def test_executors_of_a_run_share_its_limits_budget_and_deadline(plan: Plan, store: Store) -> None:
    http = {"metadata": {"tokens": "$.tokens"}}
    target = {"concurrency": 10, "requests_per_minute": 90, "http": http}
    run_id = plan(["a"], target=target, budget={"tokens": 100}, deadline="1h")
    shard_spec = ShardSpec(0, 3, store.now() + timedelta(seconds=50))
    async with open_shard(run_id, shard_spec) as context:
        policy = RetryPolicy.of(context.suite.target, 3)
        assert (policy.concurrency, policy.requests_per_minute) == (3, 30)
        budget = shard_spec.budget(context.suite, store)
        assert budget.left() < 51
        budget.spend({"tokens": 33})
        assert budget.ended
        assert FULL_RUN.budget(context.suite, store).left() > 3_000
    assert ShardSpec(0, 200).budget(context.suite.model_copy(update={"budget": Budget(tokens=5)}), store).ended is None


async def test_a_shard_waits_for_an_executor_that_is_still_there(
    plan: Plan, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_run_module, "WAIT_SECONDS", 0.1)
    run_id = plan(["a", "b"])
    store.leases.acquire_shard(run_id, 0, "elsewhere/1/x", 0.5)
    async with open_shard(run_id, ShardSpec(0, 2)) as context:
        assert store.leases.shard_holder(run_id, 0) == (context.owner, True)
        assert not store.leases.renew_shard(run_id, 0, "elsewhere/1/x", 60)
        assert store.leases.renew_shard(run_id, 0, context.owner, 60)


async def test_spending_is_counted_once(plan: Plan, store: Store) -> None:
    http = {"metadata": {"tokens": "$.answer"}}
    run_id = plan([{"id": "a", "input": 30}], target={"http": http}, budget={"tokens": 100})
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, 1))
        await call_target(context, work)
        for _ in range(3):
            context.count_spending()
        assert context.target_client.budget.spent == {"tokens": 30}
