"""The variants of a suite: each is a run of its own, and a subflow of this flow run.

variant 1: evaluate ─► variant 2: evaluate ─► … ─► compare all with the first

One after the other, so they share the target's limits; what the first ones spent is counted for the next, and they have
one deadline. A variant that could not be evaluated leaves the others as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from prefect import tags
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run

from fepflow.analysis.accumulation import suite_of
from fepflow.asyncio_helpers import task_result
from fepflow.store.store import Store
from fepflow.tasks.flow_state import end_stopped, end_with_variants, handed_over_state
from fepflow.tasks.local_run import Interruption, LocalRun, local_run, local_variants
from fepflow.tasks.open_run import claims_kept, interrupted_with, is_cancelled
from fepflow.tasks.plan_run import PlannedVariants
from fepflow.tasks.publish import compare_variants_task

Evaluate = Callable[..., Awaitable[State[Any]]]


async def run_variants(store: Store, planned: PlannedVariants, evaluate: Evaluate) -> State[Any]:
    """Execute the runs that have no verdict yet, compare all, and return the state that is theirs: the worst."""
    records = [planned_run.run for planned_run in planned.runs]
    deadline = suite_of(records[0]).deadline
    begun = local_variants.get()
    listeners = {begun_run.run.id: begun_run.listener for begun_run in begun.runs} if begun else {}
    interruption = begun.interruption if begun else Interruption()
    warnings = begun.warnings if begun else []
    ends_at = None if deadline is None else await asyncio.to_thread(store.now) + timedelta(seconds=deadline)
    async with claims_kept(store, records), interrupted_with(flow_run.id, interruption):
        for planned_run in planned.runs:
            run = planned_run.run
            if run.outcome is not None:
                continue
            if await asyncio.to_thread(store.runs.cancel_requested, run.id):  # since all of them were begun
                return await end_stopped(planned.id, was_cancelled=True)
            listener = listeners.get(run.id)
            local_run.set(LocalRun(run, store, planned_run.loaded, listener, interruption, warnings, ends_at))
            try:
                with tags(*run.tags):
                    await evaluate(suite=run.suite_path or run.name, run_id=run.id, return_state=True)
            finally:
                local_run.set(None)
            status = (await asyncio.to_thread(store.runs.get, run.id)).status
            if status == "pending":
                return handed_over_state(f"a worker takes over run {run.id}")
            if status in ("cancelled", "interrupted") or interruption.requested:
                # A worker that cancels this flow run tells its process to end, and no more.
                was_cancelled = status != "interrupted" or await is_cancelled(UUID(flow_run.id))
                return await end_stopped(planned.id, was_cancelled=was_cancelled)
    table = await task_result(compare_variants_task(store, planned.id, return_state=True))
    return await end_with_variants(table)
