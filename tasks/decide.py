"""The verdict of a run, compared with its baseline, and written down."""

from __future__ import annotations

import asyncio

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State

from fepflow.errors import FepflowError
from fepflow.verdict.verdict import Verdict
from tasks.analysis.baseline import compare, find_baseline, why_none
from tasks.analysis.check_usage import costs_of
from tasks.analysis.metrics import judge_run
from tasks.run.context import RunContext
from tasks.run.log import run_log
from tasks.run.outcome import verdict_state


async def decide_run(runtime: RunContext) -> Verdict:
    """Judge the run and write the verdict: from here on the store has it, whatever becomes of Prefect."""
    verdict = await asyncio.to_thread(judge_run, runtime.store, runtime.run, runtime.suite)
    if left_out := await asyncio.to_thread(_left_out, runtime):
        decisive, *others = verdict.reasons
        verdict = verdict.model_copy(update={"reasons": [decisive, *left_out, *others]})
    if runtime.asks_models:
        verdict = await asyncio.to_thread(_with_costs, runtime, verdict)
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


def _left_out(runtime: RunContext) -> list[str]:
    """What the run's deadline or budget kept it from asking, if it did."""
    reached = runtime.caller.allowance.ended
    if not reached:
        return []
    outputs = runtime.calls - runtime.store.progress(runtime.run.id).outputs
    checks = sum(runtime.left_out.values())
    reasons = [f"{outputs} of {runtime.calls} outputs are missing"] if outputs else []
    if checks:
        reasons.append(f"{checks} {'check' if checks == 1 else 'checks'} by models are missing")
    return [f"{reason}: the run reached {reached}." for reason in reasons]


def _with_costs(runtime: RunContext, verdict: Verdict) -> Verdict:
    """The verdict with what models have cost, and a warning where a budget of money cannot know it."""
    costs = costs_of(runtime.store, runtime.run.id)
    budget = runtime.suite.budget
    warnings = verdict.warnings
    if budget and budget.usd is not None and costs.without_usd:
        uncounted = f"{costs.without_usd} of {costs.answers} answers of models"
        warnings = [*warnings, f"The budget of {budget.usd:g} usd does not count {uncounted}: their cost is not known."]
    return verdict.model_copy(update={"models": costs, "warnings": warnings})


async def _beside_baseline(runtime: RunContext, verdict: Verdict, named: str) -> Verdict:
    try:
        baseline = await asyncio.to_thread(find_baseline, runtime.store, runtime.run, named)
        if baseline is not None:
            return verdict.model_copy(update={"baseline": compare(verdict, baseline)})
        reason = await asyncio.to_thread(why_none, runtime.store, runtime.run)
    except FepflowError as error:
        reason = str(error)
    run_log().warning("there is no baseline to compare with: %s", reason)
    return verdict.model_copy(update={"not_compared": reason})


@task(name="decide", task_run_name="decide", retries=0, cache_policy=NO_CACHE, persist_result=False)
async def decide_task(runtime: RunContext) -> State[Verdict]:
    """`decide_run` as a Prefect task run, whose state is the verdict's."""
    verdict = await decide_run(runtime)
    return verdict_state(verdict, data=verdict)
