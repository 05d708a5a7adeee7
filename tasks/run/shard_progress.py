"""What the parent of shards does: it counts progress in the store, and stops them when it is stopped itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import monotonic

from fepflow.errors import FepflowError
from fepflow.tasks.run.context import RunContext
from fepflow.tasks.run.log import run_log
from fepflow.tasks.run.progress import OF_COUNTING

LOOK_SECONDS = 1.0
"""Between two looks, at least; counting a large run takes longer, and is done more seldom."""


@asynccontextmanager
async def progress_watched(context: RunContext) -> AsyncIterator[None]:
    """Count what all shards have stored, for the progress of the run."""
    looking = asyncio.create_task(_look_repeatedly(context), name="fepflow-shards")
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.wait({looking})
    await _look(context)
    if context.target_client.budget.counts:
        await asyncio.to_thread(context.count_spending)


async def _look_repeatedly(context: RunContext) -> None:
    while True:
        began = monotonic()
        with suppress(FepflowError):  # the next time will do
            await _look(context)
        await asyncio.sleep(max(LOOK_SECONDS, OF_COUNTING * (monotonic() - began)))


async def _look(context: RunContext) -> None:
    seen = await asyncio.to_thread(context.store.results.progress, context.run.id)
    context.counts.clear()
    context.count(
        calls=seen.outputs,
        failed_calls=seen.failed_outputs,
        checks=seen.checks,
        passed=seen.passed,
        failed=seen.failed,
        errors=seen.error,
    )


async def stop_shards(context: RunContext) -> None:
    """Raise the flag that every executor of the run looks at; not when another executor has resumed the run."""
    context.stopping_shards = True
    try:
        holder = (await asyncio.to_thread(context.store.runs.get, context.run.id)).lease_owner
        if holder == context.owner:
            await asyncio.to_thread(context.store.runs.request_cancel, context.run.id)
    except FepflowError as error:
        run_log().warning("the shards could not be stopped: %s", error)
