"""Helpers for asyncio and Prefect's tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any


async def gather_or_raise(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all concurrently. The first failure cancels the others and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for piece in work:
                group.create_task(piece)
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from None


async def task_result(run: Any) -> Any:
    """Return the result of a task run that was called with `return_state`, also of a failed one.

    Raises what it raised. Prefect's types take the state of an async task for a value; it has to be awaited.
    """
    result = await (await run).aresult(raise_on_failure=False)
    if isinstance(result, BaseException):
        raise result
    return result


def uncancel() -> None:
    """Take a cancellation back, so that the flow can return a state."""
    current = asyncio.current_task()
    if current is not None:
        current.uncancel()


@asynccontextmanager
async def in_background(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[None]:
    """Run work beside the body, and cancel it when the body ends. Raises its exception, see `cancel_and_wait`."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        await cancel_and_wait(task)


async def cancel_and_wait(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait for its end. Raises its exception, unless it ended as cancelled.

    A cancellation of the caller meanwhile is the caller's own, and is raised. `await task` under
    `suppress(CancelledError)` would swallow it.
    """
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.result()
