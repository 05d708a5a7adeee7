"""Opening a run, or a shard of it: the lease is taken and held, and at the end the run has a truthful status.

Meanwhile it can be cancelled by `fepflow cancel`, Cancel in Prefect's UI, or SIGTERM from a worker. Prefect does not
kill a flow run that a process executes by itself, and a worker kills its processes without telling our store. So each
executor polls for itself. Whoever requests it, the run is stopped once, from inside, and says so.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from functools import partial
from typing import Any
from uuid import UUID

from prefect import get_client

from fepflow.asyncio_helpers import in_background
from fepflow.calls.agent_addresses import AgentAddresses
from fepflow.calls.conversations import SimulatedUsers
from fepflow.calls.factory import open_target, target_hash
from fepflow.calls.models.client import ModelClient
from fepflow.calls.traces import Traces
from fepflow.checks.core.declarations import UserModels
from fepflow.diagnose.suite_validation import load_plugins, read_cases
from fepflow.errors import (
    FepflowError,
    InfrastructureError,
    InputError,
    RunBusyError,
    RunHandedOverError,
    RunInterruptedError,
)
from fepflow.observability.logs import fields_of_run
from fepflow.security.redaction import words_of
from fepflow.settings import SUITE_VARIABLES, settings
from fepflow.store.leases import new_owner
from fepflow.store.records import RunRecord, RunStatus
from fepflow.store.store import Store
from fepflow.store.writer import StoredResponseCache, delete_expired_responses
from fepflow.suite.env_vars import CANNOT_LOOK_UP, UncalledTarget
from fepflow.suite.models import Suite
from fepflow.suite.reader import LoadedSuite, read_snapshot
from fepflow.suite.target import GivenOutputs, Target
from fepflow.tasks.batches import FULL_RUN, ShardSpec
from fepflow.tasks.context import RunContext
from fepflow.tasks.flow_state import run_log
from fepflow.tasks.local_run import LEASE_SECONDS, RENEW_SECONDS, Interruption, local_run, run_store
from fepflow.tasks.prefect_blocks import read_block
from fepflow.tasks.reaping import report_replaced_executor
from fepflow.tasks.rescore import Rescoring
from fepflow.tasks.spans import open_spans

_TAKEN_OVER = "The process was told to end (SIGTERM): a worker takes the run over."

WAIT_SECONDS = 2.0
"""Pause between two tries to take the lease of a shard."""

logger = logging.getLogger("fepflow.run")


@asynccontextmanager
async def open_run(
    run_id: str,
    flow_run_id: str | None = None,
    store: Store | None = None,
    loaded: LoadedSuite | None = None,
) -> AsyncIterator[RunContext]:
    """Take the run's lease and hold it; at the end, the run has a truthful status whatever happened.

    `store` is the run's store, if it is open already, `loaded` its suite, if it was read already. Raises RunBusyError
    while another executor holds the lease, or as soon as this one has lost it.
    """
    async with run_store() if store is None else nullcontext(store) as store:
        owner = new_owner()
        record = await asyncio.to_thread(store.leases.acquire, run_id, owner, LEASE_SECONDS)
        fields_of_run.set({"run_id": record.id, "suite": record.name})
        if flow_run_id is not None:
            await asyncio.to_thread(store.runs.set_flow_run, record.id, flow_run_id)
            if record.flow_run_id not in (None, flow_run_id):
                await report_replaced_executor(str(record.flow_run_id))
        try:
            begun = local_run.get()
            spec = FULL_RUN if begun is None else ShardSpec(ends_at=begun.ends_at)
            context = await _prepare(store, record, owner, spec, loaded)
        except FepflowError as error:
            await asyncio.to_thread(store.leases.finish, record.id, owner, "failed", error=str(error))
            raise

        def renew() -> bool:
            return store.leases.renew(record.id, owner, LEASE_SECONDS) or context.finished

        try:
            async with _working(context, renew, f"run {record.id}", flow_run_id):
                yield context
        except asyncio.CancelledError:
            await asyncio.shield(_end(context, "cancelled", "cancelled while it was running"))
            raise
        except RunInterruptedError as error:
            if await _handed_over(context):
                raise RunHandedOverError(_TAKEN_OVER) from None
            await _end(context, "interrupted", str(error))
            raise
        except Exception as error:
            message = str(error) if isinstance(error, FepflowError) else f"{type(error).__name__}: {words_of(error)}"
            await _end(context, "failed", message)
            raise
        finally:
            await _close_spans(context)


@asynccontextmanager
async def open_shard(run_id: str, spec: ShardSpec, flow_run_id: str | None = None) -> AsyncIterator[RunContext]:
    """Take the lease of a part of a run and hold it. The holder of the run's lease stores the run's outcome.

    Waits while another executor, which may have been given up too early, holds the lease.
    """
    async with run_store() as store:
        owner, what = new_owner(), f"shard {spec.shard + 1} of run {run_id}"
        while not await asyncio.to_thread(store.leases.acquire_shard, run_id, spec.shard, owner, LEASE_SECONDS):
            run_log().warning("%s has another executor: waiting for its lease to end", what)
            await asyncio.sleep(WAIT_SECONDS)
        try:
            record = await asyncio.to_thread(store.runs.get, run_id)
            fields_of_run.set({"run_id": record.id, "suite": record.name, "shard": spec.shard})
            context = await _prepare(store, record, owner, spec)
            renew = partial(store.leases.renew_shard, run_id, spec.shard, owner, LEASE_SECONDS)
            try:
                async with _working(context, renew, what, flow_run_id):
                    yield context
            finally:
                await _close_spans(context)
        finally:
            await asyncio.to_thread(store.leases.release_shard, run_id, spec.shard, owner)


@asynccontextmanager
async def hold_lease(renew: Callable[[], bool], what: str) -> AsyncIterator[None]:
    """Renew the lease of `what` while the body runs; `renew` blocks, and returns False if the lease is lost.

    Then the body is stopped, and RunBusyError is raised, because another executor has the lease.
    """
    body = asyncio.current_task()
    lost = False

    async def renew_repeatedly() -> None:
        nonlocal lost
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                renewed = await asyncio.to_thread(renew)
            except FepflowError as error:
                logger.warning("the lease of %s could not be renewed: %s", what, error)
                continue
            if not renewed and body is not None:
                lost = True
                body.cancel()
                return

    async with in_background(renew_repeatedly(), "fepflow-lease"):
        try:
            yield
        except asyncio.CancelledError:
            if lost:
                raise RunBusyError(f"Another executor has taken over {what}; this one has stopped.") from None
            raise


@asynccontextmanager
async def _working(
    context: RunContext, renew: Callable[[], bool], what: str, flow_run_id: str | None
) -> AsyncIterator[None]:
    """Write a run's rows, keep its lease and watch for a stop while the run, or a part of it, is worked on."""
    try:
        await asyncio.to_thread(delete_expired_responses, context.store)
        async with (
            context.writer,
            context.models,
            context.shared_limits,
            hold_lease(renew, what),
            nullcontext() if context.traces is None else context.traces.listening(),
            stopped_on_request(context.store, context.run.id, flow_run_id, lambda: context.stopping_shards),
        ):
            yield
    finally:
        await context.target.aclose()


def _stored_suite(record: RunRecord) -> LoadedSuite:
    # References in what a caller over the network has sent are not expanded from our environment.
    env: Mapping[str, str] = {} if record.is_requested else SUITE_VARIABLES
    if record.rescored_from is not None:
        env = UncalledTarget(record.suite, env)
    loaded = read_snapshot(record.suite, record.suite_path, record.name, env)
    if unknown := [problem for problem in loaded.problems if CANNOT_LOOK_UP in problem.message]:
        raise InfrastructureError("\n".join(map(str, unknown)))
    problems = [problem for problem in loaded.problems if problem.severity == "error"]
    if record.rescored_from is not None:  # e.g. the target of an imported run is not one that a suite may have
        problems = [problem for problem in problems if (problem.path or "").partition(".")[0] != "target"]
    if not record.rescoring.get("gate_only"):
        problems += load_plugins(loaded)
    if problems:
        raise InputError(problems)
    return loaded


def _suite_of(record: RunRecord, loaded: LoadedSuite) -> Suite:
    """Return the suite to execute: that of a rescored run has outputs in place of a target."""
    if record.rescored_from is not None:
        return Suite.model_construct(**{**loaded.sections, "target": Target(given=GivenOutputs())})
    if loaded.suite is None:
        raise InputError(loaded.problems)
    return loaded.suite


async def _prepare(
    store: Store, record: RunRecord, owner: str, spec: ShardSpec, loaded: LoadedSuite | None = None
) -> RunContext:
    SUITE_VARIABLES.read_blocks_with(read_block)
    loaded = loaded or _stored_suite(record)
    suite = _suite_of(record, loaded)
    models = ModelClient(StoredResponseCache(store), refresh=not suite.cache)
    from_data = record.is_requested or not isinstance(record.suite.get("test_cases"), list)
    played = UserModels(suite.user, settings().allowed_models, from_data=from_data)
    target = await asyncio.to_thread(
        open_target,
        suite.target,
        folder=loaded.folder,
        case_ids=lambda: [case.id for case in read_cases(loaded)],
        roots=settings().allowed_roots,
        secrets=loaded.secrets,
        addresses=AgentAddresses.configured() if record.is_requested else None,
        models=models,
        users=SimulatedUsers(models, played.model_of, played.concurrency),
    )
    rescoring = None
    if record.rescored_from is not None:
        source = await asyncio.to_thread(store.runs.get, record.rescored_from)
        rescoring = await asyncio.to_thread(Rescoring, source, record)
    elif spec.shards == 1:
        asked = await asyncio.to_thread(target_hash, target, suite.target, loaded.folder)
        await asyncio.to_thread(store.runs.note_target, record.id, asked)
        record = record.replaced(target_hash=asked)
    seen = await asyncio.to_thread(store.results.progress, record.id)
    is_resumed = bool(seen.outputs or seen.checks)
    trace = suite.target.trace
    spans = await asyncio.to_thread(open_spans, record, spec, trace)
    traces = None if trace is None else Traces(trace)
    context = RunContext(
        store,
        record,
        owner,
        loaded,
        suite,
        target,
        models,
        spec,
        traces,
        is_resumed=is_resumed,
        spans=spans,
        rescoring=rescoring,
    )
    if context.target_client.budget.counts:
        await asyncio.to_thread(context.count_spending)
    return context


async def _close_spans(context: RunContext) -> None:
    if context.spans is not None:
        await asyncio.shield(context.spans.aclose())


async def _handed_over(context: RunContext) -> bool:
    """Have a worker take the run over if that is allowed; return False if its end is to be recorded."""
    try:
        handed_over: bool = await asyncio.to_thread(
            context.store.leases.hand_over, context.run.id, context.owner, _TAKEN_OVER
        )
    except FepflowError as error:
        logger.warning("run %s could not be handed over: %s", context.run.id, error)
        return False
    context.finished = context.finished or handed_over
    return handed_over


async def _end(context: RunContext, status: RunStatus, error: str) -> None:
    if not context.finished:
        try:
            await context.finish(status, error=error)
        except FepflowError as second:
            # The reaper will say `interrupted` once the lease has ended.
            logger.warning("the end of run %s could not be recorded: %s", context.run.id, second)


STORE_SECONDS = 1.0
"""Interval of polling our own flag, in seconds."""
PREFECT_SECONDS = 1.5
"""Interval of polling the flow run's state."""
PREFECT_TIMEOUT = 4.0
"""Seconds that one such poll may take."""

StopRequest = Callable[[], Awaitable[bool]]


class _Stop:
    """Cancels a task once, whatever the number of requests: a second cancellation would interrupt its cleanup."""

    def __init__(self) -> None:
        self._body = asyncio.current_task()
        self.begun = False
        self.interrupted = False
        self.too_late = False

    def __call__(self, *, interrupted: bool = False) -> None:
        if not self.begun and not self.too_late and self._body is not None:
            self.begun = True
            self.interrupted = interrupted
            self._body.cancel()


@asynccontextmanager
async def stopped_on_request(
    store: Store, run_id: str, flow_run_id: str | None, own_flag: Callable[[], bool] = bool
) -> AsyncIterator[None]:
    """Cancel the body, as asyncio does, soon after a request to cancel the run.

    The flag in the store does not count while `own_flag` says that the body has set it itself, for its shards. Polling
    goes on while the store or Prefect's API is unavailable. Raises RunInterruptedError if the process got a SIGTERM
    that was not a cancellation.
    """
    stop = _Stop()

    async def flagged() -> bool:
        return await asyncio.to_thread(store.runs.cancel_requested, run_id) and not own_flag()

    async def cancelling() -> bool:
        return flow_run_id is not None and await is_cancelled(UUID(flow_run_id))

    async def on_sigterm() -> None:
        stop(interrupted=not (await _answer(flagged) or await _answer(cancelling)))

    async with AsyncExitStack() as watching:
        watching.enter_context(_sigterm(on_sigterm, stop))
        if await _answer(flagged):
            stop()
        await watching.enter_async_context(in_background(_watch(flagged, STORE_SECONDS, stop), "fepflow-cancelling"))
        if flow_run_id is not None:
            await watching.enter_async_context(
                in_background(_watch(cancelling, PREFECT_SECONDS, stop), "fepflow-cancelling")
            )
        try:
            yield
        except asyncio.CancelledError:
            if not stop.interrupted:
                raise
            message = f"The process was told to end (SIGTERM): `fepflow run --resume {run_id}` goes on."
            raise RunInterruptedError(message) from None
        finally:
            stop.too_late = True


async def is_cancelled(flow_run_id: UUID) -> bool:
    """Return whether a flow run was cancelled in Prefect, or is being so."""
    async with asyncio.timeout(PREFECT_TIMEOUT), get_client() as client:
        state = (await client.read_flow_run(flow_run_id)).state
        return state is not None and (state.is_cancelling() or state.is_cancelled())


async def _answer(is_requested: StopRequest) -> bool:
    try:
        return await is_requested()
    except Exception as error:
        logger.debug("it is not known whether the run is to stop: %s", error)
        return False


async def _watch(is_requested: StopRequest, pause: float, stop: Callable[[], None]) -> None:
    await asyncio.sleep(pause)  # the flag was read before, and Prefect begins no run that is cancelling
    while not await _answer(is_requested):  # noqa: ASYNC110  # what is waited for is elsewhere
        await asyncio.sleep(pause)
    stop()


@asynccontextmanager
async def interrupted_with(flow_run_id: str, interruption: Interruption) -> AsyncIterator[None]:
    """Request the interruption soon after a flow run was cancelled in Prefect. Its subflows do not see that."""
    watch = _watch(partial(is_cancelled, UUID(flow_run_id)), PREFECT_SECONDS, interruption.request)
    async with in_background(watch, "fepflow-cancelling"):
        yield


@asynccontextmanager
async def claims_kept(store: Store, runs: Sequence[RunRecord]) -> AsyncIterator[None]:
    """Renew the claims of runs that wait for their turn, so that nobody takes them for runs of a dead process."""
    claimed = {run.id: run.lease_owner for run in runs if run.status == "pending" and run.lease_owner is not None}

    async def renew_repeatedly() -> None:
        while claimed:
            for run_id, owner in list(claimed.items()):
                try:
                    if not await asyncio.to_thread(store.leases.renew, run_id, owner, LEASE_SECONDS):
                        del claimed[run_id]  # it has begun, or another process has taken it
                except FepflowError as error:
                    logger.warning("the claim of run %s could not be renewed: %s", run_id, error)
            await asyncio.sleep(RENEW_SECONDS)

    async with in_background(renew_repeatedly(), "fepflow-claims"):
        yield


@contextmanager
def _sigterm(handler: Callable[[], Coroutine[Any, Any, None]], stop: _Stop) -> Iterator[None]:
    """Call the handler after SIGTERM, between two steps of the loop.

    Prefect's own handler raises in the middle of other work, for example while results are written. Once the run is
    stopping, ours stays: a worker's SIGTERM must not break off how the run ends.
    """
    if threading.current_thread() is not threading.main_thread():  # only it gets signals
        yield
        return
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGTERM)
    handling: set[asyncio.Task[None]] = set()
    loop.add_signal_handler(signal.SIGTERM, lambda: handling.add(loop.create_task(handler())))
    try:
        yield
    finally:
        if not stop.begun:
            loop.remove_signal_handler(signal.SIGTERM)
            signal.signal(signal.SIGTERM, before)
