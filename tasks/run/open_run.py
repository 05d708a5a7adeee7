"""Opening a run, or a shard of it: the lease is taken and held, and on leaving the run has a truthful status."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path

from fepflow.calls.agent_addresses import AgentAddresses
from fepflow.calls.factory import open_target
from fepflow.diagnose.suite_validation import load_plugins, read_cases
from fepflow.documents.loader import Document
from fepflow.env_file import SUITE_VARIABLES
from fepflow.errors import FepflowError, InputError, RunInterruptedError
from fepflow.security.redaction import words_of
from fepflow.settings import settings
from fepflow.store.leases import new_owner
from fepflow.store.records import RunRecord, RunStatus
from fepflow.store.response_cache import delete_expired_responses
from fepflow.store.store import Store
from fepflow.suite.reader import read_suite
from fepflow.tasks.run.cancellation import stopped_on_request
from fepflow.tasks.run.context import RunContext
from fepflow.tasks.run.handover import run_store
from fepflow.tasks.run.lease import LEASE_SECONDS, hold_lease
from fepflow.tasks.run.log import run_log
from fepflow.tasks.run.shard_spec import FULL_RUN, ShardSpec
from fepflow.tasks.run.zombie_runs import report_replaced_executor

WAIT_SECONDS = 2.0
"""Between two tries to take the lease of a shard."""

logger = logging.getLogger("fepflow.run")


@asynccontextmanager
async def open_run(
    run_id: str, flow_run_id: str | None = None, store: Store | None = None
) -> AsyncIterator[RunContext]:
    """Take the run's lease and hold it; on leaving, the run has a truthful status whatever happened.

    `store` is the one that the run is in, if it is open already.

    Raises RunBusyError while another executor holds the lease, or as soon as this one has lost it.
    """
    async with run_store() if store is None else nullcontext(store) as store:
        owner = new_owner()
        record = await asyncio.to_thread(store.leases.acquire, run_id, owner, LEASE_SECONDS)
        if flow_run_id is not None:
            await asyncio.to_thread(store.runs.set_flow_run, record.id, flow_run_id)
            if record.flow_run_id not in (None, flow_run_id):
                await report_replaced_executor(str(record.flow_run_id))
        try:
            context = await _prepare(store, record, owner, FULL_RUN)
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
            await _end(context, "interrupted", str(error))
            raise
        except Exception as error:
            message = str(error) if isinstance(error, FepflowError) else f"{type(error).__name__}: {words_of(error)}"
            await _end(context, "failed", message)
            raise


@asynccontextmanager
async def open_shard(run_id: str, spec: ShardSpec, flow_run_id: str | None = None) -> AsyncIterator[RunContext]:
    """Take the lease of a part of a run and hold it. The run's outcome is stored by the holder of the run's lease.

    Waits while another executor, which may have been given up too early, holds the lease.
    """
    async with run_store() as store:
        owner, what = new_owner(), f"shard {spec.shard + 1} of run {run_id}"
        while not await asyncio.to_thread(store.leases.acquire_shard, run_id, spec.shard, owner, LEASE_SECONDS):
            run_log().warning("%s has another executor: waiting for its lease to end", what)
            await asyncio.sleep(WAIT_SECONDS)
        try:
            record = await asyncio.to_thread(store.runs.get, run_id)
            context = await _prepare(store, record, owner, spec)
            renew = partial(store.leases.renew_shard, run_id, spec.shard, owner, LEASE_SECONDS)
            async with _working(context, renew, what, flow_run_id):
                yield context
        finally:
            await asyncio.to_thread(store.leases.release_shard, run_id, spec.shard, owner)


@asynccontextmanager
async def _working(
    context: RunContext, renew: Callable[[], bool], what: str, flow_run_id: str | None
) -> AsyncIterator[None]:
    """While a run, or a part of it, is worked on: its rows are written, its lease is kept, and it can be stopped."""
    try:
        await asyncio.to_thread(delete_expired_responses, context.store)
        async with (
            context.writer,
            context.models,
            context.shared_limits,
            hold_lease(renew, what),
            stopped_on_request(context.store, context.run.id, flow_run_id, lambda: context.stopping_shards),
        ):
            yield
    finally:
        await context.target.aclose()


async def _prepare(store: Store, record: RunRecord, owner: str, spec: ShardSpec) -> RunContext:
    folder = Path(record.suite_path).parent if record.suite_path else Path.cwd()
    document = Document(record.suite, record.suite_path or record.name, "")
    # Nothing that a caller of the network has said is filled in from our environment.
    loaded = read_suite(document, folder, {} if record.is_requested else SUITE_VARIABLES)
    problems = [problem for problem in loaded.problems if problem.severity == "error"]
    problems += load_plugins(loaded)
    if problems or loaded.suite is None:
        raise InputError(problems)
    target = await asyncio.to_thread(
        open_target,
        loaded.suite.target,
        folder=folder,
        case_ids=lambda: [case.id for case in read_cases(loaded)],
        roots=settings().allowed_roots,
        secrets=loaded.secrets,
        addresses=AgentAddresses.configured() if record.is_requested else None,
    )
    seen = await asyncio.to_thread(store.results.progress, record.id)
    is_resumed = bool(seen.outputs or seen.checks)
    context = RunContext(store, record, owner, loaded, loaded.suite, target, spec, is_resumed=is_resumed)
    if context.target_client.budget.counts:
        await asyncio.to_thread(context.count_spending)
    return context


async def _end(context: RunContext, status: RunStatus, error: str) -> None:
    if not context.finished:
        try:
            await context.finish(status, error=error)
        except FepflowError as second:
            # The reaper will say `interrupted` once the lease has ended.
            logger.warning("the end of run %s could not be recorded: %s", context.run.id, second)
