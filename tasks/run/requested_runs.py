"""Runs that were requested over the network and never began, as Prefect ended their flow runs before."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.states import Crashed

from fepflow.protocol.model import utc_now
from fepflow.store.records import RunStatus
from fepflow.store.store import Store

MAX_RUNS = 100
"""Runs that are looked at in one go."""
STARTING = timedelta(minutes=10)
"""What a process has from the moment that Prefect has it started until it has taken its run's lease.

Prefect itself says of one that ended before: this is only for those that were killed together with their worker. On a
machine with ten times more to do than it can, a living one took three minutes.
"""

_STARTED = (StateType.PENDING, StateType.RUNNING, StateType.CANCELLING)


async def end_unbegun_runs(store: Store, client: PrefectClient) -> list[str]:
    """End the runs whose flow run is over in Prefect, or gone, without having begun its run; their ids."""
    unbegun = {
        UUID(run.flow_run_id): run
        for run in await asyncio.to_thread(store.unbegun_runs, MAX_RUNS)
        if run.flow_run_id is not None
    }
    if not unbegun:
        return []
    by_id = FlowRunFilter(id=FlowRunFilterId(any_=list(unbegun)))
    flow_runs = {each.id: each for each in await client.read_flow_runs(flow_run_filter=by_id, limit=MAX_RUNS)}
    ended = []
    for flow_run_id, run in unbegun.items():
        flow_run = flow_runs.get(flow_run_id)
        found = _end_of(flow_run)
        if found is not None and await asyncio.to_thread(store.end_unbegun, run.id, *found):
            ended.append(run.id)
            if flow_run is not None and flow_run.state is not None and not flow_run.state.is_final():
                gone: State[None] = Crashed(message=found[1])
                await client.set_flow_run_state(flow_run_id, gone, force=True)
    return ended


def _end_of(flow_run: FlowRun | None) -> tuple[RunStatus, str] | None:
    """How a run has ended whose flow run is so, though it never began; None if it may begin yet."""
    if flow_run is None:
        return "failed", "its flow run was deleted in Prefect before it began"
    state = flow_run.state
    if state is None:
        return None
    if state.is_cancelled():
        return "cancelled", "cancelled before it began"
    if state.is_final():
        return "failed", f"its flow run ended before it began ({state.name}): {state.message or 'Prefect says no more'}"
    if state.type in _STARTED and state.timestamp + STARTING < utc_now():
        minutes = STARTING.seconds // 60
        message = f"the process that was to execute it did not begin within {minutes} minutes, and is taken for gone"
        return ("cancelled" if state.is_cancelling() else "failed"), message
    return None
