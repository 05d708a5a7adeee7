"""Show a run's verdict, or that of all variants, in Prefect: artifacts for people, events for automations."""

from __future__ import annotations

import asyncio

from prefect import task
from prefect.artifacts import acreate_markdown_artifact, acreate_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.runtime import deployment, flow_run

from fepflow.analysis.causes import causes_of
from fepflow.analysis.drift import MOST_RUNS, series_of
from fepflow.analysis.judge_reliability import reliability_of_judges
from fepflow.analysis.regressions import compare, find_baseline
from fepflow.analysis.variants import VariantTable, as_markdown, variant_table
from fepflow.analysis.verdict_page import failed_cases, verdict_page, verdict_summary
from fepflow.store.store import Store
from fepflow.suite.values import PREVIOUS
from fepflow.tasks.context import RunContext
from fepflow.tasks.events import Happening, emit_drift, emit_verdict
from fepflow.tasks.flow_state import own_flow_run, run_log, variants_state
from fepflow.text import plain_markdown, slug
from fepflow.verdict.verdict import Comparison, Verdict


async def publish(context: RunContext, verdict: Verdict) -> None:
    """Create the artifacts and emit the events. Refusals by Prefect are logged, not raised.

    A suite without a baseline is compared with the previous run, for the event `worsened`.
    """
    run, part = await asyncio.to_thread(context.store.runs.get, context.run.id), slug(context.run.title)
    store = context.store
    compared, failed, judges, causes, drifted, before = await asyncio.to_thread(
        lambda: (
            _compared(context, verdict),
            failed_cases(store, run, verdict),
            reliability_of_judges(store, run),
            causes_of(store, run),
            [
                series
                for series in series_of(run, store.runs.alike(run, MOST_RUNS), context.suite)
                if series.has_drifted
            ],
            store.runs.decided_before(run),
        )
    )
    try:
        key = f"failed-cases-{part}"
        table = await acreate_table_artifact(failed.table(), key=key, description=failed.about) if failed.rows else None
        drifts = [series.sentence for series in drifted]
        page = verdict_page(run, verdict, judges, failed, str(table) if table else None, causes, drifts)
        await acreate_markdown_artifact(page, key=f"verdict-{part}", description=verdict_summary(verdict))
        for drift in drifts:
            run_log().warning("%s", drift)
        if context.retried is not None and context.retried.outcome == verdict.outcome:
            run_log().info("the verdict is %s as before: its events are not emitted again", verdict.outcome)
            return
        last = before.outcome if before is not None else None
        if context.retried is not None and context.retried.outcome != "inconclusive":
            last = context.retried.outcome
        emit_verdict(run, verdict, compared, Happening(last, await _deployment()))
        if drifted:
            emit_drift(run, verdict, drifted)
    except Exception as error:
        run_log().warning("the verdict is in the store, but could not be published in Prefect: %s", error)


async def _deployment() -> str | None:
    """Return the name of the flow run's deployment; None for a run that was started manually."""
    if FlowRunContext.get() is None or own_flow_run().deployment_id is None:
        return None
    name = await asyncio.to_thread(lambda: deployment.name)  # it may ask Prefect's API
    return f"{flow_run.flow_name}/{name}"


def _compared(context: RunContext, verdict: Verdict) -> Comparison | None:
    if context.suite.baseline is not None:
        return verdict.baseline
    before = find_baseline(context.store, context.run, PREVIOUS)
    return compare(verdict, before) if before else None


@task(name="publish", task_run_name="publish", cache_policy=NO_CACHE, persist_result=False)
async def publish_task(context: RunContext, verdict: Verdict) -> None:
    """`publish` as a Prefect task run."""
    await publish(context, verdict)


async def compare_variants(store: Store, variants_id: str) -> VariantTable:
    """Compare the runs with the first one, and show the table in Prefect. What Prefect refuses is logged."""
    table = await asyncio.to_thread(variant_table, store, variants_id)
    for sentence in table.sentences:
        run_log().info("%s", sentence)
    try:
        summary = plain_markdown(table.summary)
        await acreate_markdown_artifact(as_markdown(table), key=f"variants-{slug(table.suite)}", description=summary)
    except Exception as error:
        run_log().warning("the variants were compared, but this could not be shown in Prefect: %s", error)
    return table


@task(name="compare-variants", task_run_name="compare variants", retries=0, cache_policy=NO_CACHE, persist_result=False)
async def compare_variants_task(store: Store, variants_id: str) -> State[VariantTable]:
    """`compare_variants` as a Prefect task run, whose state is that of all variants."""
    table = await compare_variants(store, variants_id)
    return variants_state(table, data=table)
