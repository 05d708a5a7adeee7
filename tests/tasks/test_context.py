from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fepflow.errors import InputError, NotFoundError, RunBusyError
from fepflow.store.store import Store
from fepflow.tasks import open_run as open_run_module
from fepflow.tasks.batches import Batch
from fepflow.tasks.open_run import open_run
from tests.tasks.conftest import Plan


async def test_one_executor_at_a_time(plan: Plan, store: Store) -> None:
    run_id = plan(["a"])
    async with open_run(run_id):
        assert store.runs.get(run_id).status == "running"
        with pytest.raises(RunBusyError, match="is being executed by"):
            async with open_run(run_id):
                pytest.fail("a second one got in")
        assert store.runs.get(run_id).status == "running", "and it does not end the first one's run"


async def test_the_flow_run_is_stored(plan: Plan, store: Store) -> None:
    run_id = plan(["a"])
    async with open_run(run_id, "flow-run-1"):
        assert store.runs.get(run_id).flow_run_id == "flow-run-1"


async def test_an_exception_inside_ends_the_run_as_failed(plan: Plan, store: Store) -> None:
    run_id = plan(["a"])
    with pytest.raises(ZeroDivisionError):
        async with open_run(run_id):
            raise ZeroDivisionError("division by zero")
    record = store.runs.get(run_id)
    assert (record.status, record.error) == ("failed", "ZeroDivisionError: division by zero")
    assert record.lease_owner is None


async def test_a_cancelled_run_is_cancelled_and_its_lease_given_back(plan: Plan, store: Store) -> None:
    run_id = plan(["a"])
    inside = asyncio.Event()

    async def execute() -> None:
        async with open_run(run_id):
            inside.set()
            await asyncio.sleep(60)

    executing = asyncio.create_task(execute())
    await inside.wait()
    executing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await executing
    record = store.runs.get(run_id)
    assert (record.status, record.lease_owner) == ("cancelled", None)


@pytest.mark.battery
async def test_an_executor_that_has_lost_its_lease_stops(
    plan: Plan, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_run_module, "LEASE_SECONDS", 0)
    monkeypatch.setattr(open_run_module, "RENEW_SECONDS", 0.2)
    run_id = plan(["a"])

    async def execute() -> None:
        async with open_run(run_id):
            store.leases.acquire(run_id, "another/1/x", 60)
            await asyncio.sleep(60)

    with pytest.raises(RunBusyError, match="Another executor has taken over run"):
        await execute()
    assert store.runs.get(run_id).lease_owner == "another/1/x"
    assert store.runs.get(run_id).status == "running"


async def test_the_lease_is_renewed_while_the_run_lasts(
    plan: Plan, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_run_module, "LEASE_SECONDS", 1.0)
    monkeypatch.setattr(open_run_module, "RENEW_SECONDS", 0.02)
    run_id = plan(["a"])
    async with open_run(run_id):
        first = store.runs.get(run_id).lease_until
        assert first is not None
        async with asyncio.timeout(20):
            while store.runs.get(run_id).lease_until == first:  # noqa: ASYNC110  # it is in the database
                await asyncio.sleep(0.01)
        later = store.runs.get(run_id).lease_until
    assert later is not None
    assert later > first


async def test_a_secret_that_is_not_there_any_more_is_named(
    plan: Plan, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENT_TOKEN", "canary-4711")
    run_id = plan(["a"], target={"http": {"headers": {"Authorization": "Bearer ${AGENT_TOKEN}"}}})
    monkeypatch.delenv("AGENT_TOKEN")
    with pytest.raises(InputError, match=r"\$\{AGENT_TOKEN\} is not set in the environment"):
        async with open_run(run_id):
            pytest.fail("it began without its secret")
    record = store.runs.get(run_id)
    assert record.status == "failed"
    assert "AGENT_TOKEN" in str(record.error)
    assert "canary-4711" not in str(record)


async def test_a_run_that_is_not_there_is_not_found(store: Store) -> None:
    with pytest.raises(NotFoundError, match="There is no run nowhere"):
        async with open_run("nowhere"):
            pytest.fail("it is not there")


@pytest.mark.parametrize(
    ("cases", "repeats", "batch", "label"),
    [
        (["refund"], 1, Batch(0, 1), "refund"),
        (["a", "b", "c"], 1, Batch(1, 3), "cases 2-3"),
        (["a", "b"], 3, Batch(1, 2), "a #2"),
        (["a", "b"], 3, Batch(0, 3), "a #1-3"),
        (["two\nlines\x00"], 1, Batch(0, 1), r"two lines\u0000"),
        (["x" * 500], 1, Batch(0, 1), "x" * 79 + "…"),
    ],
)
async def test_a_task_run_is_named_after_what_it_carries(
    plan: Plan, cases: list[Any], repeats: int, batch: Batch, label: str
) -> None:
    async with open_run(plan(cases, repeats=repeats)) as context:
        assert (await context.begin(batch)).label == label
