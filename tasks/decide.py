"""The verdict of a run, compared with its baseline, and written down."""

from __future__ import annotations

import asyncio

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State

from fepflow.analysis.metrics import compute_verdict, costs_of
from fepflow.analysis.regressions import compare, find_baseline, why_none
from fepflow.analysis.sampling import outcome_of_top_up
from fepflow.errors import FepflowError
from fepflow.tasks.run.context import RunContext
from fepflow.tasks.run.log import run_log
from fepflow.tasks.run.outcome import verdict_state
from fepflow.verdict.verdict import Verdict


async def decide_run(context: RunContext) -> Verdict:
    """Compute the run's verdict and store it: from here on it does not depend on Prefect."""
    verdict = await asyncio.to_thread(compute_verdict, context.store, context.run, context.suite)
    if left_out := await asyncio.to_thread(_left_out, context):
        decisive, *others = verdict.reasons
        verdict = verdict.model_copy(update={"reasons": [decisive, *left_out, *others]})
    if context.suite.top_up is not None:
        reached = outcome_of_top_up(context.run, context.suite.top_up, verdict)
        verdict = verdict.model_copy(update={"top_up": reached})
    if context.uses_models:
        verdict = await asyncio.to_thread(_with_costs, context, verdict)
    if context.suite.baseline is not None:
        verdict = await _beside_baseline(context, verdict, context.suite.baseline)
    document = verdict.model_dump(mode="json", exclude_none=True)
    await context.finish(
        "completed",
        outcome=verdict.outcome,
        metrics=document.pop("metrics"),
        verdict=document,
        stats=dict(context.counts),
    )
    return verdict


def _left_out(context: RunContext) -> list[str]:
    """The calls and checks that were left out as the run reached its deadline or budget, in sentences."""
    reached = context.target_client.budget.ended
    if not reached:
        return []
    outputs = context.run.calls - context.store.results.progress(context.run.id).outputs
    checks = sum(context.left_out.values())
    reasons = [f"{outputs} of {context.run.calls} outputs are missing"] if outputs else []
    if checks:
        reasons.append(f"{checks} {'check' if checks == 1 else 'checks'} by models are missing")
    return [f"{reason}: the run reached {reached}." for reason in reasons]


def _with_costs(context: RunContext, verdict: Verdict) -> Verdict:
    """The verdict with what models have cost, and a warning where a budget of money cannot know it."""
    costs = costs_of(context.store, context.run.id)
    budget = context.suite.budget
    warnings = verdict.warnings
    if budget and budget.usd is not None and costs.without_usd:
        uncounted = f"{costs.without_usd} of {costs.answers} answers of models"
        warnings = [*warnings, f"The budget of {budget.usd:g} usd does not count {uncounted}: their cost is not known."]
    return verdict.model_copy(update={"models": costs, "warnings": warnings})


async def _beside_baseline(context: RunContext, verdict: Verdict, named: str) -> Verdict:
    try:
        baseline = await asyncio.to_thread(find_baseline, context.store, context.run, named)
        if baseline is not None:
            return verdict.model_copy(update={"baseline": compare(verdict, baseline)})
        reason = await asyncio.to_thread(why_none, context.store, context.run)
    except FepflowError as error:
        reason = str(error)
    run_log().warning("there is no baseline to compare with: %s", reason)
    return verdict.model_copy(update={"not_compared": reason})


@task(name="decide", task_run_name="decide", retries=0, cache_policy=NO_CACHE, persist_result=False)
async def decide_task(context: RunContext) -> State[Verdict]:
    """`decide_run` as a Prefect task run, whose state is the verdict's."""
    verdict = await decide_run(context)
    return verdict_state(verdict, context.retried, data=verdict)
