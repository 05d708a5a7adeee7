"""Tell Prefect of runs whose process is gone: left alone, it shows them as running for good."""

from __future__ import annotations

import asyncio

from prefect import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.states import Crashed

from fepflow.store.records import RunRecord
from fepflow.store.store import Store

RUNNING = FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.RUNNING])))


async def crash_interrupted(store: Store) -> list[str]:
    """Set the running flow runs of interrupted runs to Crashed, with the reason; the ids of these runs.

    Flow runs of other stores and of other people's flows stay as they are. Raises what Prefect's client raises when the
    API is away.
    """
    crashed = []
    async with get_client() as client:
        for flow_run in await client.read_flow_runs(flow_run_filter=RUNNING):
            run = await asyncio.to_thread(store.run_of_flow_run, str(flow_run.id))
            if run is not None and _is_dead(run, flow_run):
                await client.set_flow_run_state(flow_run.id, Crashed(message=run.error))
                crashed.append(run.id)
    return crashed


def _is_dead(run: RunRecord, flow_run: FlowRun) -> bool:
    # After a Retry in the UI the flow run is running again, and the run interrupted until its executor takes the lease.
    began = flow_run.state.timestamp if flow_run.state else None
    ended = run.completed_at
    return run.status == "interrupted" and began is not None and ended is not None and began < ended
