"""Runs that were requested over the network and whose flow run came to nothing before it began them: dispatched again.

Somebody was told that his evaluation is accepted. So it is asked of Prefect again, for as long as it has not begun:
the same flow run is scheduled anew, as the UI's Retry does it, and nothing is executed twice.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from uuid import UUID

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import FlowRun, State, StateType, WorkerStatus
from prefect.exceptions import ObjectNotFound
from prefect.states import AwaitingRetry, Crashed

from fepflow.protocol.model import utc_now
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.text import one_line

MAX_RUNS = 100
"""Runs that are looked at in one go."""
STARTING = timedelta(minutes=10)
"""What a process has from the moment that Prefect has it started until it has taken its run's lease.

Prefect itself says of one that ended before, and of a worker that ended see `worker_is_gone`: this is for a worker
that still lives and has lost the process. On a machine with ten times more to do than it can, a living process took
three minutes.
"""
HEARTBEAT = timedelta(seconds=35)
"""A living worker says so every 30 s."""
LONGEST_PAUSE = 60.0
MAX_CAUSE = 300

_STARTED = (StateType.PENDING, StateType.RUNNING, StateType.CANCELLING)

logger = logging.getLogger("fepflow.run")


async def dispatch_unbegun_runs_again(store: Store, client: PrefectClient) -> None:
    """Have Prefect execute the runs whose flow run is over, or gone, without having begun its run.

    One that was cancelled in Prefect is cancelled.
    """
    unbegun = {
        UUID(run.flow_run_id): run
        for run in await asyncio.to_thread(store.requests.unbegun, MAX_RUNS)
        if run.flow_run_id is not None
    }
    if not unbegun:
        return
    by_id = FlowRunFilter(id=FlowRunFilterId(any_=list(unbegun)))
    flow_runs = {each.id: each for each in await client.read_flow_runs(flow_run_filter=by_id, limit=MAX_RUNS)}
    for flow_run_id, run in unbegun.items():
        flow_run = flow_runs.get(flow_run_id)
        if flow_run is None:
            logger.warning("run %s: its flow run was deleted in Prefect before it began; it gets another one", run.id)
            await asyncio.to_thread(store.requests.withdraw_dispatch, run.id, str(flow_run_id))
        else:
            await _dispatch_again(store, client, run, flow_run)


async def _dispatch_again(store: Store, client: PrefectClient, run: RunRecord, flow_run: FlowRun) -> None:
    state = flow_run.state
    if state is None:
        return
    gone = state.type in _STARTED and await _is_gone(client, flow_run, state)
    if state.is_cancelled() or (gone and state.is_cancelling()):
        await asyncio.to_thread(store.requests.end_unbegun, run.id, "cancelled", "cancelled before it began")
    if gone:  # scheduled again at the next look, if it has not begun until then
        message = "The process that was to execute it is gone; it had not begun."
        crashed: State[None] = Crashed(message=message)
        await client.set_flow_run_state(flow_run.id, crashed)
    elif state.is_final() and not state.is_cancelled():
        states = await client.read_flow_run_states(flow_run.id)
        times = sum(each.is_scheduled() for each in states)
        cause = one_line(f"{state.name}: {state.message or 'Prefect says no more'}", MAX_CAUSE)
        message = f"Dispatched again (number {times + 1}), as it had not begun. Before: {cause}"
        logger.warning("run %s: %s", run.id, message)
        again: State[None] = AwaitingRetry(message=message, scheduled_time=utc_now() + pause(times))
        await client.set_flow_run_state(flow_run.id, again)


def pause(times: int) -> timedelta:
    """Return the time that a run waits after so many dispatches: twice as long each time, up to a minute."""
    return timedelta(seconds=min(2.0 ** min(times, 10), LONGEST_PAUSE))


async def _is_gone(client: PrefectClient, flow_run: FlowRun, state: State[None]) -> bool:
    return state.timestamp + STARTING < utc_now() or await worker_is_gone(client, flow_run)


async def worker_is_gone(client: PrefectClient, flow_run: FlowRun) -> bool:
    """Return whether no worker lives that can have taken the flow run, as all that do began later.

    Prefect does not note which worker has taken a flow run.
    """
    state = flow_run.state
    if state is None or flow_run.work_pool_name is None or state.timestamp + HEARTBEAT > utc_now():
        return False
    try:
        workers = await client.read_workers_for_work_pool(flow_run.work_pool_name)
    except ObjectNotFound:
        return True
    return not any(
        worker.status is WorkerStatus.ONLINE
        and worker.last_heartbeat_time is not None
        and worker.last_heartbeat_time + HEARTBEAT > utc_now()
        and (worker.created is None or worker.created <= state.timestamp)
        for worker in workers
    )
