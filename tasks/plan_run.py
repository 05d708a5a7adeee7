"""The first step of a flow run that evaluates or rescores: find or create the run that it executes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import get_client, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import FlowRun
from prefect.runtime import flow_run

from fepflow.diagnose.validate_suite import validate_suite
from fepflow.errors import UserError
from fepflow.settings import SUITE_VARIABLES, settings
from fepflow.store.leases import new_owner
from fepflow.store.records import Cause, Progress, RunRecord
from fepflow.store.store import Store
from fepflow.suite.reader import LoadedSuite, require_allowed
from fepflow.tasks.create_rescore import create_rescore, find_rescorable
from fepflow.tasks.create_run import RunOptions, create_run, create_variants
from fepflow.tasks.flow_state import Retried, own_flow_run, run_log, without_verdict
from fepflow.tasks.local_run import LEASE_SECONDS, local_run, local_variants, reaped_elsewhere
from fepflow.tasks.prefect_blocks import read_block
from fepflow.tasks.reaping import reap
from fepflow.text import plural


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run to execute, with its suite if this process has read it; `retried` if it had a verdict before."""

    run: RunRecord
    loaded: LoadedSuite | None = None
    retried: Retried | None = None


@dataclass(frozen=True, slots=True)
class PlannedVariants:
    """The runs of all variants of a suite, which are executed in this order."""

    id: str
    runs: Sequence[PlannedRun]


def resume_run(store: Store, run_id: str) -> PlannedRun:
    """Return a run to resume. In a completed one, only errors are run again.

    Raises UserError for one with an erased test case: the target and the checks would get nothing in its place.
    """
    record, retried = store.runs.get(run_id), None
    if (case_id := store.retention.erased_case(record.id)) is not None:
        short = record.id[:8]
        raise UserError(f"Run {short} cannot be resumed, because its test case {case_id} was erased: start a new run.")
    if record.status == "completed":
        if record.outcome is not None:
            retried = Retried(record.outcome, _asked_again(record, store.results.progress(record.id)))
        store.results.delete_errors(record.id)
    if record.cancel_requested_at != record.completed_at:  # else it was cancelled while it waited for an executor
        store.runs.withdraw_cancel(record.id)
    return PlannedRun(record, retried=retried)


def _asked_again(run: RunRecord, seen: Progress) -> str:
    """Return in words what an ended run is asked again, and what it keeps."""
    calls = seen.failed_outputs + run.calls - seen.outputs
    again = [f"{plural(calls, 'call')} without an answer"] if calls else []
    again += [f"{plural(seen.error, 'check')} in error"] if seen.error else []
    kept = [plural(seen.outputs - seen.failed_outputs, "output"), plural(seen.passed + seen.failed, "check result")]
    failed = f", {seen.failed} of which failed" if seen.failed else ""
    if run.rescored_from is not None:
        advice = " The outputs are those of an earlier run, and nobody is asked for them."
    else:
        advice = " Stored answers are not asked for again: start a new run for an agent that was repaired."
    return (
        f"Tried again after the verdict {run.outcome}. "
        f"Asked again: {' and '.join(again) or 'nothing, as nothing was in error'}. "
        f"Kept: {' and '.join(kept)}{failed}.{advice}"
    )


def flow_run_name() -> str:
    """Return the first name of a flow run."""
    begun = local_run.get()
    if begun is not None:
        return begun.run.name
    if (variants := local_variants.get()) is not None:
        return variants.name
    suite = flow_run.parameters["suite"]
    # Its plan will name it after its suite. A requested run has no file, and the name that it was dispatched under.
    return Path(suite).stem if suite else str(flow_run.name)


def rescored_run_name() -> str:
    """Return the first name of a flow run that rescores."""
    begun = local_run.get()
    return begun.run.title if begun is not None else f"rescore {str(flow_run.parameters['run'])[:8]}"


@task(name="plan", task_run_name="plan", cache_policy=NO_CACHE, persist_result=False)
async def plan_task(store: Store, suite: str, run_id: str | None, options: RunOptions) -> PlannedRun | PlannedVariants:
    """Find or create the run that this flow run executes: the given one, the one that it started before, or a new one.

    For a suite with variants, a run of each.
    """
    begun = await _flow_run_after_reaping(store)
    variants = await asyncio.to_thread(_variants_begun_before, store, run_id, flow_run.id)
    if variants is not None:
        return variants
    if begun.deployment_id is not None:
        if run_id is None:
            await asyncio.to_thread(require_allowed, Path(suite))
        else:
            await asyncio.to_thread(require_own, store, run_id, flow_run.id)
    planned = await asyncio.to_thread(begun_before, store, run_id, flow_run.id)
    if planned is not None:
        return await _go_on_with(planned, planned.run.name if suite else None)
    SUITE_VARIABLES.read_blocks_with(read_block)
    validation = await asyncio.to_thread(validate_suite, Path(suite), limit=options.limit, version=options.version)
    for problem in validation.notes:
        run_log().warning("%s", problem)
    await describe(validation.loaded.section("name"), validation.loaded.section("tags") or ())
    if validation.variants:
        variants_id = UUID(flow_run.id).hex
        runs = await asyncio.to_thread(
            create_variants, store, validation, options, variants_id, _cause(begun), takeovers_of(begun)
        )
        return PlannedVariants(variants_id, [PlannedRun(run.run, run.loaded) for run in runs])
    created = await asyncio.to_thread(
        create_run, store, validation, options, flow_run.id, _cause(begun), takeovers=takeovers_of(begun)
    )
    return PlannedRun(created.run, created.loaded)


async def _flow_run_after_reaping(store: Store) -> FlowRun:
    if not reaped_elsewhere.get():
        await reap(store)
    return own_flow_run()


async def _go_on_with(planned: PlannedRun, name: str | None) -> PlannedRun:
    await describe(name, planned.run.tags)
    if planned.retried is not None:
        run_log().info("run %s: %s", planned.run.id, planned.retried.sentence)
    return planned


def _variants_begun_before(store: Store, run_id: str | None, flow_run_id: str) -> PlannedVariants | None:
    """Return the runs of variants that this process or the flow run has started before, if any."""
    handed = local_variants.get()
    if handed is not None and local_run.get() is None:
        return PlannedVariants(handed.id, [PlannedRun(run.run, run.loaded) for run in handed.runs])
    runs = store.runs.of_variants(UUID(flow_run_id).hex if run_id is None else run_id)
    is_taken_over = any(run.status == "pending" and run.takeovers for run in runs)
    for run in runs:
        if run.status == "pending":
            store.leases.claim(run.id, new_owner(), LEASE_SECONDS)
        elif not is_taken_over:  # else nobody asked for what was cancelled
            store.runs.withdraw_cancel(run.id)
    runs = store.runs.of_variants(str(runs[0].variants_id)) if runs else []
    return PlannedVariants(str(runs[0].variants_id), list(map(PlannedRun, runs))) if runs else None


def require_own(store: Store, run_id: str, flow_run_id: str) -> None:
    """Raise UserError if a requested run was dispatched again, and another flow run executes it."""
    record = store.runs.get(run_id)
    if record.is_requested and record.flow_run_id not in (None, flow_run_id):
        raise UserError(f"Run {record.id} belongs to the flow run {record.flow_run_id}: retry that one instead.")


async def describe(name: str | None, tags: Sequence[str]) -> None:
    """Set the flow run's name and tags to the suite's, which a deployment cannot know."""
    tagged = without_verdict({*flow_run.tags, *tags})
    changes: dict[str, Any] = {} if tagged == set(flow_run.tags) else {"tags": tagged}
    if name is not None and name != flow_run.name:
        changes["name"] = name
    if changes:
        async with get_client() as client:
            await client.update_flow_run(UUID(flow_run.id), **changes)
        own = own_flow_run()
        own.name, own.tags = changes.get("name", own.name), sorted(tagged)


def _cause(begun: FlowRun) -> Cause:
    """Return what started a flow run."""
    if begun.auto_scheduled:
        return "schedule"
    return "automation" if begun.created_by is not None and begun.created_by.type == "AUTOMATION" else "api"


def takeovers_of(begun: FlowRun) -> int:
    """Return how often workers may take over a new run: never if it is executed without a worker."""
    return 0 if begun.deployment_id is None else settings().takeovers


def begun_before(store: Store, run_id: str | None, flow_run_id: str) -> PlannedRun | None:
    """Return the run that the flow run continues; None if it is to create one."""
    run = store.runs.of_flow_run(flow_run_id) if run_id is None else None
    if run_id is None and run is None:
        return None
    planned, handed = resume_run(store, run.id if run is not None else str(run_id)), local_run.get()
    is_handed = handed is not None and handed.run.id == planned.run.id
    return replace(planned, loaded=handed.loaded) if handed is not None and is_handed else planned


@task(name="plan", task_run_name="plan", cache_policy=NO_CACHE, persist_result=False)
async def plan_rescore_task(store: Store, run: str, suite: str, run_id: str | None, *, gate_only: bool) -> PlannedRun:
    """Find or create the run that this flow run executes; see `find_rescorable` and `create_rescore`."""
    begun = await _flow_run_after_reaping(store)
    planned = await asyncio.to_thread(begun_before, store, run_id, flow_run.id)
    if planned is not None:
        return await _go_on_with(planned, planned.run.title)
    SUITE_VARIABLES.read_blocks_with(read_block)

    def create() -> PlannedRun:
        path = Path(suite) if suite else None
        if begun.deployment_id is not None:
            own = store.runs.get(run).suite_path
            if path is not None or own is not None:
                require_allowed(path or Path(str(own)))
        rescorable = find_rescorable(store, run, path)
        for problem in rescorable.validation.notes:
            run_log().warning("%s", problem)
        created = create_rescore(
            store, rescorable, gate_only=gate_only, flow_run_id=flow_run.id, takeovers=takeovers_of(begun)
        )
        run_log().info("run %s: run %s, rescored %s", created.run.id, created.run.rescored_from, rescorable.told)
        return PlannedRun(created.run, created.loaded)

    made = await asyncio.to_thread(create)
    await describe(made.run.title, made.run.tags)
    return made
