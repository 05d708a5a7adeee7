"""A task that is stopped, and a caller that is cancelled meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from fepflow.asyncio_helpers import cancel_and_wait
from fepflow.store.store import Store
from fepflow.tasks.open_run import hold_lease, stopped_on_request
from tests.tasks.conftest import Plan

Body = Callable[[Store, str], AbstractAsyncContextManager[None]]

BODIES: dict[str, Body] = {
    "hold_lease": lambda store, run_id: hold_lease(lambda: True, "the run"),
    "stopped_on_request": lambda store, run_id: stopped_on_request(store, run_id, None),
}


async def test_a_task_is_cancelled_and_has_ended() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            ended.append("work")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    await cancel_and_wait(task)
    assert ended == ["work"]
    assert task.cancelled()


async def test_what_a_task_raises_at_its_end_is_raised() -> None:
    async def work() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise ValueError("it broke") from None

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    with pytest.raises(ValueError, match="it broke"):
        await cancel_and_wait(task)


@pytest.mark.parametrize("name", BODIES)
async def test_a_caller_cancelled_while_its_helper_ends_is_cancelled(name: str, plan: Plan, store: Store) -> None:
    run_id = plan(["a"])
    leave, entered = asyncio.Event(), asyncio.Event()

    async def caller() -> str:
        async with BODIES[name](store, run_id):
            entered.set()
            await leave.wait()
        return "went on"

    task = asyncio.create_task(caller())
    await entered.wait()
    await asyncio.sleep(0.05)  # the helper is at work
    leave.set()
    await asyncio.sleep(0)  # the caller has left its body, and waits for the helper's end
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
