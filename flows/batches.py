"""The batches of a run, or of a shard of it: what both flows do.

batch 1: call target ─► run checks
batch 2: call target ─► run checks beside run model checks, where there are any
batch n: …
case that still fails: a task run of its own, retried by Prefect ─► run checks
output whose judge does not respond: the same
a rescored run: the outputs of the earlier one in place of calls ─► the checks that it has no result of
all complete, and the verdict open: top up ─► batches of more repeats, or cases, where the gate says so
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fepflow.asyncio_helpers import gather_or_raise, task_result
from fepflow.tasks.batches import Batch, BatchWork, split_into_batches
from fepflow.tasks.call_target import BatchResult, call_target_task, retry_case
from fepflow.tasks.context import RunContext
from fepflow.tasks.decide import top_up_task
from fepflow.tasks.flow_state import run_log
from fepflow.tasks.rescore import take_outputs_task
from fepflow.tasks.run_checks import (
    ModelCheckResult,
    PendingRetry,
    retry_model_checks,
    run_checks_task,
    run_model_checks_task,
)

BUFFERED_CALLS = 4
"""Calls in memory for each that may be in flight: the others wait for their commit, or have their case loaded."""

BUFFERED_OUTPUTS = 500
"""Outputs in memory that wait for checks: judges may be slower than the target."""


async def run_until_decided(context: RunContext) -> None:
    """Make all calls of the run; where its gate tops it up, more of them as long as its verdict is open."""
    await run_batches(context)
    if context.suite.top_up is None or context.rescoring is not None:
        return
    while batches := await task_result(top_up_task(context, return_state=True)):
        await run_batches(context, batches)


async def run_batches(context: RunContext, batches: Sequence[Batch] | None = None) -> None:
    """Call, check and store; batches flow on independently, and a bounded number is in memory. Default: all."""
    if batches is None:
        batches = split_into_batches(context.shard_spec.calls(context.run), context.suite.batch_size)
    calls = sum(batch.stop - batch.start for batch in batches)
    what = "calls" if context.rescoring is None else f"outputs of run {context.rescoring.source.id[:8]}"
    run_log().info("run %s: %d %s in %d batches", context.run.id, calls, what, len(batches))
    if not batches:
        return
    size = batches[0].stop - batches[0].start
    # A few more than are at work: while one waits for its commit, the next ones are called and checked.
    at_work = asyncio.Semaphore((context.suite.target.calls_at_once * BUFFERED_CALLS + BUFFERED_OUTPUTS) // size + 4)

    async def run(batch: Batch) -> None:
        async with at_work:
            work = await context.begin(batch)
            label = work.label
            outputs_task = call_target_task if context.rescoring is None else take_outputs_task
            result: BatchResult = await task_result(outputs_task(context, work, label, return_state=True))
            to_judge = await _check(context, work, label)
        # Retries wait for seconds, and hold up no other batch.
        await gather_or_raise(retry_model_checks(context, work, pending) for pending in to_judge)
        if result.to_retry:
            await gather_or_raise(retry_case(context, work, outcome) for outcome in result.to_retry)
            async with at_work:
                to_judge = await _check(context, work, f"{label} again")
            await gather_or_raise(retry_model_checks(context, work, pending) for pending in to_judge)

    await gather_or_raise(map(run, batches))


async def _check(context: RunContext, work: BatchWork, label: str) -> list[PendingRetry]:
    """Run the checks of a batch, model checks beside the others; return the outputs whose model did not respond."""
    to_retry: list[PendingRetry] = []

    async def run_model_checks() -> None:
        result: ModelCheckResult = await task_result(run_model_checks_task(context, work, label, return_state=True))
        to_retry.extend(result.to_retry)

    async def run_checks() -> None:
        await task_result(run_checks_task(context, work, label, return_state=True))

    checking = [run_model_checks()] if work.has_model_checks else []
    if work.has_local_checks or not work.has_model_checks:
        checking.append(run_checks())
    await gather_or_raise(checking)
    work.drop_checked()
    return to_retry
