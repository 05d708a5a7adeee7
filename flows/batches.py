"""The batches of a run, or of a shard of it: what both flows do.

batch 1: call target ─► run checks
batch 2: call target ─► run checks beside ask models, where there are checks that do
batch n: …
case that still fails: a task run of its own, retried by Prefect ─► run checks
output whose judge does not answer: the same
"""

from __future__ import annotations

import asyncio

from tasks.call_target import BatchResult, call_target_task
from tasks.retry_case import escalate
from tasks.retry_model_checks import judge_again
from tasks.run.asyncio_helpers import gather_or_raise, task_result
from tasks.run.batches import Batch, split_into_batches
from tasks.run.context import RunContext
from tasks.run.log import run_log
from tasks.run_checks import run_checks_task
from tasks.run_model_checks import ModelCheckResult, PendingRetry, ask_models_task

CALLS_A_PLACE = 4
"""Calls that are in memory for each that may be under way: others wait to be committed, or have their case at hand."""

CHECKED_AT_ONCE = 500
"""Outputs that are in memory to be checked. A batch waits for its commit; others are computed meanwhile."""


async def run_batches(runtime: RunContext) -> None:
    """Call, check and store; batches flow on independently, and a bounded number is in memory."""
    calls = runtime.share.calls(runtime.run)
    batches = split_into_batches(calls, runtime.suite.batch_size)
    run_log().info("run %s: %d calls in %d batches", runtime.run.id, len(calls), len(batches))
    if not batches:
        return
    size = batches[0].stop - batches[0].start
    # Two at least: while one waits for its commit, the next is at work.
    calling = asyncio.Semaphore(runtime.suite.target.concurrency * CALLS_A_PLACE // size + 2)
    checking = asyncio.Semaphore(CHECKED_AT_ONCE // size + 2)

    async def run(batch: Batch) -> None:
        label = await runtime.label(batch)
        async with calling:
            called: BatchResult = await task_result(call_target_task(runtime, batch, label, return_state=True))
        await check(batch, label)
        if called.troubled:
            await gather_or_raise(escalate(runtime, trouble) for trouble in called.troubled)
            await check(batch, f"{label} again")

    async def check(batch: Batch, label: str) -> None:
        if checking.locked():
            runtime.forget(batch)  # a batch that has to wait does so without its cases
        async with checking:
            troubled = await _checked(runtime, batch, label)
        await gather_or_raise(judge_again(runtime, trouble) for trouble in troubled)

    await gather_or_raise(map(run, batches))


async def _checked(runtime: RunContext, batch: Batch, label: str) -> list[PendingRetry]:
    """Run what checks there are, those that ask models beside the others; the outputs whose model did not answer."""
    local, asking = await runtime.kinds(batch)
    if not asking:
        await task_result(run_checks_task(runtime, batch, label, return_state=True))
        return []
    troubled: list[PendingRetry] = []

    async def judge() -> None:
        asked: ModelCheckResult = await task_result(ask_models_task(runtime, batch, label, return_state=True))
        troubled.extend(asked.troubled)

    async def others() -> None:
        await task_result(run_checks_task(runtime, batch, label, return_state=True))

    await gather_or_raise([judge(), others()] if local else [judge()])
    return troubled
