"""The verdict of a run, compared with its baseline, and written down."""

from __future__ import annotations

import asyncio

from prefect import task
from prefect.cache_policies import NO_CACHE

from fepflow.errors import FepflowError
from fepflow.evalguard.verdict import Verdict
from tasks.baseline import compare, find_baseline
from tasks.judge import judge_run
from tasks.log import run_log
from tasks.runtime import Runtime


async def decide_run(runtime: Runtime) -> Verdict:
    """Judge the run and write the verdict: from here on the store has it, whatever becomes of Prefect."""
    verdict = await asyncio.to_thread(judge_run, runtime.store, runtime.run, runtime.suite)
    if reason := await asyncio.to_thread(_left_out, runtime):
        verdict = verdict.model_copy(update={"reasons": [reason, *verdict.reasons]})
    if runtime.suite.baseline is not None:
        verdict = await _beside_baseline(runtime, verdict, runtime.suite.baseline)
    document = verdict.model_dump(mode="json", exclude_none=True)
    await runtime.finish(
        "completed",
        outcome=verdict.outcome,
        metrics=document.pop("metrics"),
        verdict=document,
        stats=dict(runtime.counts),
    )
    return verdict


def _left_out(runtime: Runtime) -> str | None:
    """What the run's deadline or budget kept it from asking, if it did."""
    reached = runtime.caller.allowance.ended
    missing = runtime.calls - runtime.store.progress(runtime.run.id).outputs if reached else 0
    return f"{missing} of {runtime.calls} outputs are missing: the run reached {reached}." if missing else None


async def _beside_baseline(runtime: Runtime, verdict: Verdict, named: str) -> Verdict:
    try:
        baseline = await asyncio.to_thread(find_baseline, runtime.store, runtime.run, named)
    except FepflowError as error:
        run_log().warning("there is no baseline to compare with: %s", error)
        return verdict
    return verdict.model_copy(update={"baseline": compare(verdict, baseline)}) if baseline else verdict


@task(name="decide", task_run_name="decide", cache_policy=NO_CACHE, persist_result=False)
async def decide_task(runtime: Runtime) -> Verdict:
    """`decide_run` as a Prefect task run."""
    return await decide_run(runtime)
