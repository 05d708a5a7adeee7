"""The batches of a run, or of a shard of it: what both flows do.

batch 1: call target ─► run checks
batch 2: call target ─► run checks beside run model checks, where there are any
batch n: …
case that still fails: a task run of its own, retried by Prefect ─► run checks
output whose judge does not respond: the same
all complete, and the verdict open: top up ─► batches of more repeats, or cases, where the gate says so
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fepflow.tasks.call_target import BatchResult, call_target_task
from fepflow.tasks.retry_case import retry_case
from fepflow.tasks.retry_model_checks import retry_model_checks
from fepflow.tasks.run.asyncio_helpers import gather_or_raise, task_result
from fepflow.tasks.run.batches import Batch, split_into_batches
from fepflow.tasks.run.context import RunContext
from fepflow.tasks.run.log import run_log
from fepflow.tasks.run_checks import run_checks_task
from fepflow.tasks.run_model_checks import ModelCheckResult, PendingRetry, run_model_checks_task
from fepflow.tasks.top_up import top_up_task

BUFFERED_CALLS = 4
"""Calls in memory for each that may be in flight: the others wait for their commit, or have their case loaded."""

CHECKED_AT_ONCE = 500
"""Outputs that are in memory to be checked. A batch waits for its commit; others are computed meanwhile."""


async def run_until_decided(context: RunContext) -> None:
    """All calls of the run; where its gate tops it up, more of them as long as its verdict is open."""
    await run_batches(context)
    if context.suite.top_up is None:
        return
    while batches := await task_result(top_up_task(context, return_state=True)):
        await run_batches(context, batches)


async def run_batches(context: RunContext, batches: Sequence[Batch] | None = None) -> None:
    """Call, check and store; batches flow on independently, and a bounded number is in memory. Default: all."""
    if batches is None:
        batches = split_into_batches(context.shard_spec.calls(context.run), context.suite.batch_size)
    calls = sum(batch.stop - batch.start for batch in batches)
    run_log().info("run %s: %d calls in %d batches", context.run.id, calls, len(batches))
    if not batches:
        return
    size = batches[0].stop - batches[0].start
    # Two at least: while one waits for its commit, the next is at work.
    calling = asyncio.Semaphore(context.suite.target.calls_at_once * BUFFERED_CALLS // size + 2)
    checking = asyncio.Semaphore(CHECKED_AT_ONCE // size + 2)

    async def run(batch: Batch) -> None:
        label = await context.label(batch)
        async with calling:
            result: BatchResult = await task_result(call_target_task(context, batch, label, return_state=True))
        await check(batch, label)
        if result.to_retry:
            await gather_or_raise(retry_case(context, outcome) for outcome in result.to_retry)
            await check(batch, f"{label} again")

    async def check(batch: Batch, label: str) -> None:
        if checking.locked():
            context.forget(batch)  # a batch that has to wait does so without its cases
        async with checking:
            to_retry = await _checked(context, batch, label)
        await gather_or_raise(retry_model_checks(context, pending) for pending in to_retry)

    await gather_or_raise(map(run, batches))


async def _checked(context: RunContext, batch: Batch, label: str) -> list[PendingRetry]:
    """Run the checks of a batch, model checks beside the others; returns the outputs whose model did not respond."""
    local, model_checks = await context.check_kinds(batch)
    if not model_checks:
        await task_result(run_checks_task(context, batch, label, return_state=True))
        return []
    to_retry: list[PendingRetry] = []

    async def run_model_checks() -> None:
        result: ModelCheckResult = await task_result(run_model_checks_task(context, batch, label, return_state=True))
        to_retry.extend(result.to_retry)

    async def others() -> None:
        await task_result(run_checks_task(context, batch, label, return_state=True))

    await gather_or_raise([run_model_checks(), others()] if local else [run_model_checks()])
    return to_retry
