"""Zombie runs, whose executor is gone: they are marked as ended in the store, and in Prefect.

A run of a deployment is taken over a few times: its flow run is scheduled again, as the UI's Retry does, and whichever
worker gets it resumes the run, so no committed answer is asked for again. The run is given up if its flow run ends many
times before it reaches the run. A run that was requested over the network is dispatched again without such a limit if
its flow run ended before it began, because a caller was told that the evaluation is accepted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from prefect import get_client
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import (
    FlowFilter,
    FlowFilterName,
    FlowRunFilter,
    FlowRunFilterEndTime,
    FlowRunFilterId,
    FlowRunFilterState,
    FlowRunFilterStateType,
    TaskRunFilter,
    TaskRunFilterState,
    TaskRunFilterStateType,
)
from prefect.client.schemas.objects import TERMINAL_STATES, FlowRun, State, StateType, WorkerStatus
from prefect.client.schemas.sorting import FlowRunSort
from prefect.exceptions import ObjectNotFound
from prefect.states import AwaitingRetry, Cancelled, Crashed, Failed

from fepflow.errors import NotFoundError
from fepflow.protocol.model import utc_now
from fepflow.store.database import chunks
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.tasks.flow_state import handed_over_state, mark_flow_run, not_evaluated, stored_state
from fepflow.text import one_line, plural

FLOW = "evaluate"
FLOWS = [FLOW, "rescore"]
"""Flows that execute a run."""
SHARD_FLOW = "evaluate-shard"
PAGE = 200
"""Flow runs, or task runs, of one request: the most that Prefect's API returns."""
PREFECT_TIMEOUT = 20.0
UNCLAIMED = timedelta(seconds=30)
"""Time for a process to claim its run in the store, from its flow run's last state on."""
OWN_TIME = timedelta(seconds=10)
"""Time for an executor to tell Prefect by itself how its run ended."""

EVENTS_TIME = timedelta(minutes=5)
"""Time for Prefect's server to hear how the task runs of a living process ended: they come as events."""
LOOKS_BACK = timedelta(days=1)
"""Age of the oldest interrupted runs, and ended flow runs, that are looked at again."""
UNENDED_TASK_RUN = TaskRunFilterState(
    type=TaskRunFilterStateType(any_=[StateType.SCHEDULED, StateType.PENDING, StateType.RUNNING])
)

logger = logging.getLogger("fepflow.run")


async def reap(store: Store) -> list[str]:
    """Mark the runs whose executor is gone, and set the state in Prefect of runs that are over.

    Returns the ids of the marked runs. Raises InfrastructureError if the store is unavailable. If Prefect is, the next
    call repeats its part.
    """
    marked = await asyncio.to_thread(store.leases.reap)
    try:
        async with asyncio.timeout(PREFECT_TIMEOUT), get_client() as client:
            killed = await _mark_cancelled(store, client)
            await dispatch_unbegun_runs_again(store, client, marked)
            await _report_runs(store, client, {*marked, *killed})
            await _report_shards(store, client)
            await _end_task_runs(client)
    except Exception as error:
        logger.debug("the states of ended runs could not be set in Prefect: %s", error)
    return marked


async def report_replaced_executor(flow_run_id: str) -> None:
    """Mark a flow run as crashed in Prefect, whose run another flow run has just resumed.

    The store no longer knows the old flow run, so nothing else would end it. If Prefect is unavailable, it stays.
    """
    try:
        async with asyncio.timeout(PREFECT_TIMEOUT), get_client() as client:
            state = (await client.read_flow_run(UUID(flow_run_id))).state
            if state is not None and (state.is_scheduled() or state.type in (StateType.RUNNING, StateType.CANCELLING)):
                message = not_evaluated("its executor is gone; another flow run continues the run")
                await _set_state(client, UUID(flow_run_id), Crashed(message=message))
    except Exception as error:
        logger.debug("the state of flow run %s could not be set in Prefect: %s", flow_run_id, error)


async def _mark_cancelled(store: Store, client: PrefectClient) -> list[str]:
    """Mark runs as cancelled whose process was killed when it did not end, and so could not say why it ended."""
    interrupted = await asyncio.to_thread(store.runs.interrupted, utc_now() - LOOKS_BACK)
    flow_runs = await _by_id(client, map(UUID, interrupted), _in(StateType.CANCELLING, StateType.CANCELLED))
    cancelled = [interrupted[str(flow_run_id)] for flow_run_id in flow_runs]
    return [run_id for run_id in cancelled if await asyncio.to_thread(store.runs.mark_cancelled, run_id)]


async def _report_runs(store: Store, client: PrefectClient, marked: Collection[str]) -> None:
    under_way = FlowRunFilter(state=_in(StateType.PENDING, StateType.RUNNING, StateType.CANCELLING))
    now = await asyncio.to_thread(store.now)
    for flow_run in await _flow_runs(client, under_way, FLOWS):
        run = await asyncio.to_thread(store.runs.of_flow_run, str(flow_run.id))
        if run is None:
            variants_id = flow_run.parameters.get("run_id") or flow_run.id.hex
            if variants := await asyncio.to_thread(store.runs.of_variants, str(variants_id)):
                await _report_variants(store, client, flow_run, variants)
            else:
                await _report_unbegun(store, client, flow_run)
        elif flow_run.state_type is StateType.PENDING or run.status == "pending":
            continue  # somebody is about to execute it
        elif (run.id in marked or _is_overdue(run, now)) and _ended_since(run, flow_run):
            await client.set_flow_run_state(flow_run.id, _state(run))
            if run.status != "cancelled":
                await mark_flow_run(client, flow_run, run.outcome)


async def _report_variants(
    store: Store, client: PrefectClient, flow_run: FlowRun, variants: Sequence[RunRecord]
) -> None:
    """Report the parent of variants whose process is gone: nobody attends to any of them, for a while by now."""
    if flow_run.state is None or flow_run.state.is_pending() or flow_run.state.timestamp + UNCLAIMED > utc_now():
        return
    for run in variants:
        if run.is_under_way and await asyncio.to_thread(store.leases.is_attended, run.id):
            return
    changes = [run.completed_at or run.created_at for run in variants]
    if max(changes) + UNCLAIMED > utc_now():
        return
    if flow_run.state.is_cancelling():
        await _set_state(client, flow_run.id, Cancelled(message="cancelled while it was running"))
        return
    left = any(run.outcome is None for run in variants)
    then = f"`fepflow run --resume {variants[0].variants_id}` goes on" if left else "another flow run went on"
    await _set_state(client, flow_run.id, Crashed(message=not_evaluated(f"its executor is gone; {then}")))
    await mark_flow_run(client, flow_run, None)


async def _report_unbegun(store: Store, client: PrefectClient, flow_run: FlowRun) -> None:
    """Report a flow run whose process ended before it could note in the store which run it executes."""
    if flow_run.state is None or flow_run.state.timestamp + UNCLAIMED > utc_now():
        return
    if flow_run.deployment_id is not None:
        if await worker_is_gone(client, flow_run):
            message = not_evaluated("the worker that had taken it is gone")
            await _set_state(client, flow_run.id, Crashed(message=message))
        return
    run_id = str(flow_run.parameters.get("run_id"))
    try:
        run, attended = await asyncio.to_thread(lambda: (store.runs.get(run_id), store.leases.is_attended(run_id)))
    except NotFoundError:  # another store has it
        return
    if attended:
        return
    if run.status == "cancelled" or flow_run.state.is_cancelling():
        await _set_state(client, flow_run.id, Cancelled(message=run.error))
    else:
        message = not_evaluated("its executor ended before it began")
        await _set_state(client, flow_run.id, Crashed(message=message))


async def _set_state(client: PrefectClient, flow_run_id: UUID, state: State[Any]) -> None:
    await client.set_flow_run_state(flow_run_id, state)


async def _report_shards(store: Store, client: PrefectClient) -> None:
    """End shards whose executor is gone. A run that is under way looks after its own; this is for one that is over."""
    under_way = FlowRunFilter(state=_in(StateType.RUNNING, StateType.CANCELLING))
    for flow_run in await _flow_runs(client, under_way, [SHARD_FLOW]):
        run_id, shard = flow_run.parameters["run_id"], flow_run.parameters["shard"]
        holder = await asyncio.to_thread(store.leases.shard_holder, run_id, shard)
        if holder is not None and not holder.alive:
            await _set_state(client, flow_run.id, Crashed(message="Its executor is gone."))
        # Prefect cancels the children of what was cancelled, also one that has ended, which then never ends again.
        elif holder is None and flow_run.state is not None and flow_run.state.is_cancelling():
            await _set_state(client, flow_run.id, Cancelled(message="What was stored is kept."))


async def _end_task_runs(client: PrefectClient) -> None:
    """End the task runs of flow runs that are over: Prefect leaves those of a killed process as they were."""
    now = utc_now()
    for state, events_time in ((_in(StateType.CRASHED), OWN_TIME), (_in(*TERMINAL_STATES), EVENTS_TIME)):
        ended = FlowRunFilterEndTime(after_=now - LOOKS_BACK, before_=now - events_time)
        while True:
            task_runs = await client.read_task_runs(
                flow_filter=FlowFilter(name=FlowFilterName(any_=[*FLOWS, SHARD_FLOW])),
                flow_run_filter=FlowRunFilter(state=state, end_time=ended),
                task_run_filter=TaskRunFilter(state=UNENDED_TASK_RUN),
                limit=PAGE,
            )
            for task_run in task_runs:
                gone: State[None] = Crashed(message="Its flow run is over, and its process gone.")
                await client.set_task_run_state(task_run.id, gone, force=True)
            if len(task_runs) < PAGE:  # those of the next page are first now
                break


async def _flow_runs(client: PrefectClient, wanted: FlowRunFilter, flows: Sequence[str]) -> list[FlowRun]:
    """Return all wanted flow runs of these flows, the oldest first."""
    flow_runs: list[FlowRun] = []
    while page := await client.read_flow_runs(
        flow_filter=FlowFilter(name=FlowFilterName(any_=list(flows))),
        flow_run_filter=wanted,
        sort=FlowRunSort.START_TIME_ASC,  # the oldest are the ones without an executor
        limit=PAGE,
        offset=len(flow_runs),
    ):
        flow_runs += page
        if len(page) < PAGE:
            break
    return flow_runs


async def _by_id(
    client: PrefectClient, ids: Iterable[UUID], state: FlowRunFilterState | None = None
) -> dict[UUID, FlowRun]:
    """Return the existing flow runs with these ids, by id; with `state`, only those in it."""
    flow_runs: dict[UUID, FlowRun] = {}
    for page in chunks(list(ids), PAGE):
        wanted = FlowRunFilter(id=FlowRunFilterId(any_=list(page)), state=state)
        for flow_run in await client.read_flow_runs(flow_run_filter=wanted, limit=PAGE):
            flow_runs[flow_run.id] = flow_run
    return flow_runs


def _in(*types: StateType) -> FlowRunFilterState:
    return FlowRunFilterState(type=FlowRunFilterStateType(any_=list(types)))


def _is_overdue(run: RunRecord, now: datetime) -> bool:
    return run.completed_at is not None and run.completed_at + OWN_TIME < now


def _ended_since(run: RunRecord, flow_run: FlowRun) -> bool:
    """Return whether the run ended since the flow run began: one that has begun anew may not have got to its run."""
    began = flow_run.start_time if flow_run.state is None else flow_run.state.timestamp
    cancelling = flow_run.state is not None and flow_run.state.is_cancelling()
    return run.completed_at is not None and (cancelling or began is None or began < run.completed_at)


def _state(run: RunRecord) -> State[Any]:
    match run.status:
        case "completed":
            return stored_state(run)
        case "cancelled":
            return Cancelled(message=run.error)
        case "failed":
            return Failed(message=not_evaluated(run.error or "it failed"))
        case _:
            return Crashed(message=not_evaluated(run.error or "its executor is gone"))


STARTING = timedelta(minutes=10)
"""Time for a process to take its run's lease, from the moment that Prefect has started it.

Prefect itself reports a process that ended before, and `worker_is_gone` notices a worker that ended: this is for a
worker that still lives and has lost the process. On a machine with ten times too much to do, a process needed three
minutes.
"""
HEARTBEAT = timedelta(seconds=35)
"""A living worker sends a heartbeat every 30 s."""
LONGEST_PAUSE = 60.0
MOST_DISPATCHES = 30
"""Dispatches of one takeover, within half an hour, after which a run is given up if its flow run never reached it.

A run that a caller over the network waits for is never given up.
"""
MAX_CAUSE = 300

_STARTED = (StateType.PENDING, StateType.RUNNING, StateType.CANCELLING)


async def dispatch_unbegun_runs_again(store: Store, client: PrefectClient, marked: Collection[str] = ()) -> None:
    """Have Prefect execute the runs whose flow run is over, or gone, without having begun, or ended, its run.

    The executors of the `marked` runs are known to be gone. A run that was cancelled in Prefect is cancelled.
    """
    unbegun = await asyncio.to_thread(store.requests.unbegun)
    by_flow_run = {UUID(executing): run for run in unbegun if (executing := run.variants_id or run.flow_run_id)}
    flow_runs = await _by_id(client, by_flow_run)
    now = await asyncio.to_thread(store.now)
    for flow_run_id, run in by_flow_run.items():
        flow_run = flow_runs.get(flow_run_id)
        if flow_run is None:
            await _replace_deleted(store, run, flow_run_id, now)
        elif not run.takeovers:
            await _dispatch_again(store, client, run, flow_run)
        elif run.id in marked or _is_overdue(run, now):
            await _have_taken_over(store, client, run, flow_run)


async def _replace_deleted(store: Store, run: RunRecord, flow_run_id: UUID, now: datetime) -> None:
    """Have a requested run get another flow run; one of another deployment has nobody that waits for it.

    The flow run may be in another Prefect: runners of CI with a server of their own share the store. There a worker
    takes the run over meanwhile.
    """
    if run.is_requested:
        logger.warning("run %s: its flow run was deleted in Prefect before it began; it gets another one", run.id)
        await asyncio.to_thread(store.requests.withdraw_dispatch, run.id, str(flow_run_id))
    elif _is_overdue(run, now - STARTING):
        error = f"Its flow run was deleted in Prefect: `fepflow run --resume {run.id}` goes on."
        await asyncio.to_thread(store.requests.end_unbegun, run.id, "interrupted", error)


async def _have_taken_over(store: Store, client: PrefectClient, run: RunRecord, flow_run: FlowRun) -> None:
    """Schedule the flow run again whose executor is gone; one that waits, or has begun since, is left alone."""
    if flow_run.state is not None and flow_run.state.type in _STARTED and _ended_since(run, flow_run):
        if flow_run.state.is_cancelling():
            await _set_state(client, flow_run.id, Cancelled(message="cancelled while it was running"))
        else:
            await _set_state(client, flow_run.id, handed_over_state(run.error or "its executor is gone"))
        flow_run = await client.read_flow_run(flow_run.id)
    await _dispatch_again(store, client, run, flow_run)


async def _dispatch_again(store: Store, client: PrefectClient, run: RunRecord, flow_run: FlowRun) -> None:
    state = flow_run.state
    if state is None:
        return
    gone = state.type in _STARTED and (state.timestamp + STARTING < utc_now() or await worker_is_gone(client, flow_run))
    if state.is_cancelled() or (gone and state.is_cancelling()):
        await asyncio.to_thread(store.requests.end_unbegun, run.id, "cancelled", "cancelled before it began")
    if gone:  # scheduled again at the next look, if it has not begun until then
        message = "The process that was to execute it is gone; it had not begun."
        await _set_state(client, flow_run.id, Crashed(message=message))
    elif state.is_final() and not state.is_cancelled():
        states = await client.read_flow_run_states(flow_run.id)
        times = sum(former.is_scheduled() for former in states)
        cause = one_line(f"{state.name}: {state.message or 'Prefect says no more'}", MAX_CAUSE)
        taken_over = f"Taken over (time {run.takeovers} of {run.takeovers + run.takeovers_left})."
        message = taken_over if run.takeovers else f"Dispatched again (number {times + 1}), as it had not begun."
        dispatches = sum((former.message or "").startswith(taken_over) for former in states)
        if not run.is_requested and dispatches >= MOST_DISPATCHES:
            error = (
                f"It was to be taken over, and its flow run came to nothing {plural(dispatches, 'time')}: "
                f"`fepflow run --resume {run.id}` goes on. The last time: {cause}"
            )
            await asyncio.to_thread(store.requests.end_unbegun, run.id, "interrupted", error)
            return
        message = f"{message} Before: {cause}"
        logger.warning("run %s: %s", run.id, message)
        due = utc_now() + pause(times)
        await _set_state(client, flow_run.id, AwaitingRetry(message=message, scheduled_time=due))


def pause(times: int) -> timedelta:
    """Return the time that a run waits after so many dispatches: twice as long each time, up to a minute."""
    return timedelta(seconds=min(2.0 ** min(times, 10), LONGEST_PAUSE))


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
