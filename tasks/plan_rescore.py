"""The first step of a flow run that rescores: find or create the run that it executes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

from prefect import get_client, task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run

from fepflow.env_file import SUITE_VARIABLES
from fepflow.store.store import Store
from fepflow.suite.folders import require_allowed
from fepflow.tasks.create_rescore import create_rescore, find_rescorable
from fepflow.tasks.flow_state import run_log
from fepflow.tasks.local_run import reaped_elsewhere
from fepflow.tasks.plan_run import PlannedRun, begun_before, describe, takeovers_of
from fepflow.tasks.prefect_blocks import read_block
from fepflow.tasks.reaping import reap


@task(name="plan", task_run_name="plan", cache_policy=NO_CACHE, persist_result=False)
async def plan_rescore_task(store: Store, run: str, suite: str, run_id: str | None, *, gate_only: bool) -> PlannedRun:
    """Find or create the run that this flow run executes; see `find_rescorable` and `create_rescore`."""
    if not reaped_elsewhere.get():
        await reap(store)
    async with get_client() as client:
        begun = await client.read_flow_run(UUID(flow_run.id))
    planned = await asyncio.to_thread(begun_before, store, run_id, flow_run.id)
    if planned is not None:
        await describe(planned.run.title, planned.run.tags)
        if planned.retried is not None:
            run_log().info("run %s: %s", planned.run.id, planned.retried.sentence)
        return planned
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
