"""Show a run in Prefect: its progress, and its verdict, or that of all variants.

Artifacts are for people, events (`fepflow.tasks.events`) for automations. What Prefect refuses is logged, and fails no
run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import monotonic
from uuid import UUID

from prefect import task
from prefect.artifacts import (
    ProgressArtifact,
    acreate_markdown_artifact,
    acreate_table_artifact,
    aupdate_progress_artifact,
)
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
from fepflow.tasks.context import REST_OF_COUNTING, RunContext
from fepflow.tasks.events import Happening, emit_drift, emit_verdict
from fepflow.tasks.flow_state import own_flow_run, run_log, variants_state
from fepflow.text import plain_markdown, slug
from fepflow.verdict.verdict import Comparison, Verdict

PROGRESS_AFTER = 3.0
"""Age of a run from which on its progress is shown. Nobody looks at that of a shorter one, and each artifact and its
update cost Prefect's server 50 ms. Of many short runs at once, each takes two or three seconds."""

UPDATE_SECONDS = 2.0
"""Shortest pause between two updates."""

OF_AGE = 50
"""And a fiftieth of the run's age: Prefect changes the artifact in place, but keeps an event of each update."""

LAST_UPDATE_SECONDS = 1.0
"""Longest wait for the last update at the end of a run."""


@asynccontextmanager
async def progress_shown(context: RunContext) -> AsyncIterator[None]:
    """Keep the artifact up to date while the body runs. Errors are logged once, and never fail the body."""
    over = asyncio.Event()
    showing = asyncio.create_task(_show(context, over), name="fepflow-progress")
    try:
        yield
    finally:
        over.set()
        await asyncio.wait({showing}, timeout=LAST_UPDATE_SECONDS)
        showing.cancel()
        await asyncio.wait({showing})


def update_pause(age: float, counting: float) -> float:
    """Return the seconds to the next update of a run that is `age` seconds old and was counted in `counting` s."""
    return max(UPDATE_SECONDS, age / OF_AGE, counting * REST_OF_COUNTING)


async def _show(context: RunContext, over: asyncio.Event) -> None:
    key = f"progress-{slug(context.run.title)}"
    artifact: UUID | None = None
    shown: tuple[float, str] | None = None
    failure_logged = last = False
    start = monotonic()
    with suppress(TimeoutError):
        async with asyncio.timeout(PROGRESS_AFTER):
            await over.wait()
            return
    while not last:
        last = over.is_set()
        began = monotonic()
        try:
            progress = await asyncio.to_thread(progress_of, context, over=last)
            counted = monotonic()
            if progress != shown:
                artifact = await _put(artifact, key, *progress)
                shown = progress
        except Exception as error:
            counted = monotonic()
            if not failure_logged:
                run_log().warning("progress cannot be shown in Prefect: %s", error)
            failure_logged = True
        if not last:
            with suppress(TimeoutError):
                async with asyncio.timeout(update_pause(counted - start, counted - began)):
                    await over.wait()


async def _put(artifact: UUID | None, key: str, percent: float, words: str) -> UUID:
    if artifact is not None:
        return await aupdate_progress_artifact(artifact, percent, words)
    return (await ProgressArtifact(key=key, progress=percent, description=words).acreate()).id


def progress_of(context: RunContext, *, over: bool = False) -> tuple[float, str]:
    """Return the stored share of the calls in percent, and the counts in words; 100 % once the run is over."""
    seen = context.store.results.progress(context.run.id)
    words = (
        f"{seen.outputs:,} of {context.run.calls:,} calls, "
        f"{seen.failed_outputs:,} without an answer; "
        f"checks: {seen.passed:,} passed, {seen.failed:,} failed, {seen.error:,} in error. "
        f"So far: `fepflow show {context.run.id[:8]}`"
    )
    return min(100 * seen.outputs / context.run.calls, 100 if over else 99), words


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
