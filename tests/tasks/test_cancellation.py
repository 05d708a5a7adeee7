from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from fepflow.errors import InfrastructureError, RunInterruptedError
from fepflow.settings import settings
from fepflow.store.store import Store
from fepflow.tasks import open_run as cancellation
from fepflow.tasks.open_run import open_run
from fepflow.tasks.plan_run import resume_run
from fepflow.tasks.run_shard import stop_shards
from tests.tasks.conftest import Plan


@pytest.fixture(autouse=True)
def same_handler() -> Iterator[None]:
    """A run that was stopped keeps SIGTERM to itself, because its process is about to end; this one is not."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


async def execute(run_id: str, then: Callable[[], object]) -> None:
    """A run that would last a minute; `then` happens in it."""
    async with open_run(run_id):
        await asyncio.sleep(0.1)
        then()
        await asyncio.sleep(60)


def told_to_end() -> None:
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGTERM)


async def test_a_flag_in_the_store_stops_the_run_within_the_promised_five_seconds(plan: Plan, store: Store) -> None:
    run_id = plan(["a"])
    asked: list[float] = []

    def ask() -> None:
        asked.append(time.monotonic())
        store.runs.request_cancel(run_id)

    with pytest.raises(asyncio.CancelledError):
        await execute(run_id, ask)
    assert time.monotonic() - asked[0] < 5
    assert store.runs.get(run_id).status == "cancelled"


async def test_a_run_that_was_cancelled_before_it_began_does_not_begin(plan: Plan, store: Store) -> None:
    run_id = plan(["a"])
    store.runs.request_cancel(run_id)
    resume_run(store, run_id)
    with pytest.raises(asyncio.CancelledError):
        await execute(run_id, lambda: pytest.fail("it has begun"))
    assert store.runs.get(run_id).status == "cancelled"


async def test_a_resumed_cancelled_run_is_not_cancelled_again(
    plan: Plan, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancellation, "STORE_SECONDS", 0.05)
    run_id = plan(["a"])
    with pytest.raises(asyncio.CancelledError):
        await execute(run_id, lambda: store.runs.request_cancel(run_id))
    resume_run(store, run_id)
    async with open_run(run_id) as context:
        await asyncio.sleep(0.1)
        await context.finish("completed", outcome="pass")
    assert store.runs.get(run_id).status == "completed"


async def test_an_unavailable_store_does_not_cancel_a_run(
    plan: Plan, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancellation, "STORE_SECONDS", 0.02)
    run_id = plan(["a"])
    path = settings().store_address.removeprefix("sqlite:///")
    async with open_run(run_id) as context:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("ALTER TABLE run RENAME TO elsewhere")
            await asyncio.sleep(0.2)
            connection.execute("ALTER TABLE elsewhere RENAME TO run")
        await asyncio.sleep(0.1)
        await context.finish("completed", outcome="pass")
    assert store.runs.get(run_id).status == "completed"


async def test_sigterm_leaves_an_interrupted_run_that_can_be_resumed(plan: Plan, store: Store) -> None:
    run_id = plan(["a"])
    with pytest.raises(RunInterruptedError, match=f"told to end.*--resume {run_id}"):
        await execute(run_id, told_to_end)
    record = store.runs.get(run_id)
    assert (record.status, record.lease_owner) == ("interrupted", None)


async def test_sigterm_after_a_wish_to_cancel_is_that_wish(
    plan: Plan, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancellation, "STORE_SECONDS", 60)
    run_id = plan(["a"])

    def cancelled_and_told_to_end() -> None:
        store.runs.request_cancel(run_id)
        told_to_end()

    with pytest.raises(asyncio.CancelledError):
        await execute(run_id, cancelled_and_told_to_end)
    assert store.runs.get(run_id).status == "cancelled"


async def test_an_undisturbed_run_leaves_the_signal_handler_as_it_was(plan: Plan, store: Store) -> None:
    before = signal.getsignal(signal.SIGTERM)
    async with open_run(plan(["a"])):
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


async def lose_a_shard(run_id: str, store: Store) -> None:
    async with open_run(run_id) as context:
        await stop_shards(context)
        assert store.runs.cancel_requested(run_id)
        await asyncio.sleep(cancellation.STORE_SECONDS * 4)
        raise InfrastructureError("a shard is lost for good")


async def test_the_stop_flag_of_a_runs_own_shards_does_not_cancel_it(
    plan: Plan, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancellation, "STORE_SECONDS", 0.1)
    run_id = plan(["a"])
    with pytest.raises(InfrastructureError):
        await lose_a_shard(run_id, store)
    assert (store.runs.get(run_id).status, store.runs.get(run_id).error) == ("failed", "a shard is lost for good")


async def test_an_executor_that_has_lost_its_run_does_not_stop_the_shards_of_the_next_one(
    plan: Plan, store: Store
) -> None:
    run_id = plan(["a"])
    async with open_run(run_id) as context:
        await context.finish("interrupted")
        store.leases.acquire(run_id, "another-host/1/x", 60)
        await stop_shards(context)
        assert not store.runs.cancel_requested(run_id)
    assert store.runs.get(run_id).status == "running"
