"""One evaluation, as Prefect runs it.

    plan ─► batch 1: call target ─► run checks ─┐
            batch 2: call target ─► run checks ─┼─► decide ─► publish
            batch n: …                          ┘
            case that still fails: a task run of its own, retried by Prefect ─► run checks

Batches flow on independently. The flow run ends Completed whatever the verdict, its state named Pass, Fail or
Inconclusive; Failed means that the infrastructure was in the way.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from prefect import flow
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed
from pydantic import Field

from fepflow.evalguard.verdict import Verdict
from fepflow.suite_file import name_of
from tasks.batches import Batch, split_into_batches
from tasks.call_target import Called, call_target_task
from tasks.decide import decide_task
from tasks.escalate import escalate
from tasks.log import run_log
from tasks.plan_run import plan_task
from tasks.progress import progress_shown
from tasks.publish import publish_task
from tasks.run_checks import run_checks_task
from tasks.runtime import Runtime, open_runtime
from tasks.together import all_of, result_of
from tasks.wishes import Wishes

CALLS_A_PLACE = 4
"""Calls that are in memory for each that may be under way: others wait to be committed, or have their case at hand."""

CHECKED_AT_ONCE = 500
"""Outputs that are in memory to be checked. A batch waits for its commit; others are computed meanwhile."""


def _flow_run_name() -> str:
    return name_of(flow_run.parameters["suite"])


@flow(name="evaluate", flow_run_name=_flow_run_name, persist_result=False)
async def evaluate(
    suite: str,
    limit: Annotated[float, Field(gt=0)] | None = None,
    repeats: Annotated[int, Field(ge=1, le=1000)] | None = None,
    run_id: str | None = None,
) -> Any:
    """Call the suite's target for each test case, check the outputs, and give a verdict.

    Args:
        suite: Path of the suite file, as the machine that runs it sees it.
        limit: Only so many test cases; below 1 a fraction of them. Default: all.
        repeats: How often each case is called and checked. Default: as the suite says.
        run_id: Go on with this run of the store instead of starting a new one.
    """
    verdict: Verdict | None = None
    try:
        planned = await plan_task(suite, run_id, Wishes(limit=limit, repeats=repeats))
        async with open_runtime(planned, flow_run.id) as runtime, progress_shown(runtime):
            await _run_batches(runtime)
            verdict = await decide_task(runtime)
            await publish_task(runtime, verdict)
    except asyncio.CancelledError:
        _stay()
        if verdict is None:
            return Cancelled(message="What was stored is kept, and `fepflow run --resume` goes on with it.")
    return Completed(name=verdict.outcome.capitalize(), message=_message(verdict))


async def _run_batches(runtime: Runtime) -> None:
    batches = split_into_batches(runtime.calls, runtime.suite.batch_size)
    run_log().info("run %s: %d calls in %d batches", runtime.run.id, runtime.calls, len(batches))
    size = batches[0].stop - batches[0].start
    # Two at least: while one waits for its commit, the next is at work.
    calling = asyncio.Semaphore(runtime.suite.target.concurrency * CALLS_A_PLACE // size + 2)
    checking = asyncio.Semaphore(CHECKED_AT_ONCE // size + 2)

    async def run(batch: Batch) -> None:
        label = await runtime.label(batch)
        async with calling:
            called: Called = await result_of(call_target_task(runtime, batch, label, return_state=True))
        async with checking:
            await run_checks_task(runtime, batch, label)
        if called.troubled:
            await all_of(escalate(runtime, trouble) for trouble in called.troubled)
            async with checking:
                await run_checks_task(runtime, batch, f"{label} again")

    await all_of(map(run, batches))


def _message(verdict: Verdict) -> str:
    return " ".join(verdict.reasons[:3])


def _stay() -> None:
    """Take the cancellation back: the flow run is to end in a state of its own choosing."""
    current = asyncio.current_task()
    if current is not None:
        current.uncancel()
