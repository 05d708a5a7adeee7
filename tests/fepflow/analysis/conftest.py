"""Runs of a real store and agent, as the steps of a run have them."""

from __future__ import annotations

from fepflow.store.store import Store
from fepflow.tasks.batches import Batch
from fepflow.tasks.call_target import call_target
from fepflow.tasks.decide import decide_run
from fepflow.tasks.open_run import open_run
from fepflow.tasks.run_checks import run_checks_of_batch
from fepflow.verdict.verdict import Verdict
from tests.tasks.conftest import agent, plan, store

__all__ = ["agent", "decided", "plan", "store"]


async def decided(store: Store, run_id: str) -> Verdict:
    """The verdict on a planned run, whose calls are one batch."""
    async with open_run(run_id, None, store) as context:
        work = await context.begin(Batch(0, context.run.calls))
        await call_target(context, work)
        await run_checks_of_batch(context, work)
        return await decide_run(context)
