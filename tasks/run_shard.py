"""Have a shard of a run executed by a worker, and monitor it: a lost shard is executed again.

The parent counts what all shards have stored, and stops them if it is stopped itself.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from time import monotonic
from typing import Any

import httpx
from prefect import Task, get_client, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import FlowRun, State, StateType, TaskRun
from prefect.deployments import arun_deployment
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Crashed

from fepflow.errors import FepflowError, InfrastructureError, UserError
from fepflow.security.redaction import words_of
from fepflow.store.records import LeaseHolder
from fepflow.tasks.batches import ShardSpec
from fepflow.tasks.context import REST_OF_COUNTING, RunContext
from fepflow.tasks.flow_state import run_log

DEPLOYMENT = "evaluate-shard/evaluate-shard"
LOOK_SECONDS = 1.0
"""Pause between two looks at a shard's flow run."""
BEGIN_SECONDS = {StateType.PENDING: 120.0, StateType.RUNNING: 60.0}
"""Longest time from accepting a shard until the worker's process runs, and from then until it holds the lease, or says
that it is done; after that its machine is taken to be gone. One that was only slow still does its shard."""
UNASKED_SECONDS = 60.0
"""Time without a worker after which a warning is logged."""
RERUN_SECONDS = [2.0, 10.0, 30.0]
"""Pause before each new execution of a lost shard: enough to survive a restart of the store or of Prefect."""
RERUNS = len(RERUN_SECONDS)


async def run_shard(context: RunContext, spec: ShardSpec) -> None:
    """Start a flow run for the shard and wait for its end.

    Raises InfrastructureError if it did not complete or could not be started, UserError if Prefect has no such
    deployment.
    """
    parameters = {"run_id": context.run.id, **asdict(spec)}
    name = f"{context.run.name} {label(spec)}"
    before = await _holder(context, spec)
    try:
        ordered: Any = await arun_deployment(
            DEPLOYMENT, parameters=parameters, flow_run_name=name, tags=context.run.tags, timeout=0
        )
    except ObjectNotFound:
        advice = "`prefect deploy --all` makes it, and so does `fepflow serve`; or leave `shards` out of the suite"
        raise UserError(f"Prefect has no deployment {DEPLOYMENT}, which shards need: {advice}.") from None
    except httpx.HTTPError as error:
        raise InfrastructureError(
            f"{name} could not be ordered from Prefect: {type(error).__name__}: {words_of(error)}"
        ) from error
    async with get_client() as client:
        state = await _end(client, context, spec, ordered, before.owner if before else None)
    if state is not None and not state.is_completed():
        raise InfrastructureError(f"{name}: {state.name}: {state.message or 'no reason was given'}")


async def _holder(context: RunContext, spec: ShardSpec) -> LeaseHolder | None:
    return await asyncio.to_thread(context.store.leases.shard_holder, context.run.id, spec.shard)


async def _end(
    client: PrefectClient, context: RunContext, spec: ShardSpec, ordered: FlowRun, before: str | None
) -> State[Any] | None:
    """Wait for the final state of a shard's flow run, and end it if its executor is gone.

    `before` is the shard's last executor, which may have left its lease. Returns None if the run's deadline was over
    before a worker had begun: the verdict says what is missing. While Prefect or the store is away, the wait goes on.
    """
    stage, since, warned = None, monotonic(), False
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            state = (await client.read_flow_run(ordered.id)).state or ordered.state
            assert state is not None  # it was ordered with one
            if state.is_final():
                return state
            holder = await _holder(context, spec)
            alive = holder is not None and holder.alive
            if stage != (state.type, alive):
                stage, since = (state.type, alive), monotonic()
            if alive:
                continue
            waited = monotonic() - since
            if spec.ends_at is not None and await asyncio.to_thread(context.store.now) > spec.ends_at:
                late: State[Any] = Cancelled(message="The run's deadline was over before a worker had begun.")
                await client.set_flow_run_state(ordered.id, late, force=True)
                return None
            if (holder and holder.owner != before) or waited > BEGIN_SECONDS.get(state.type, math.inf):
                more = f"The run has a shard executed {RERUNS} times more at most."
                gone: State[Any] = Crashed(message=f"Its executor is gone. {more}")
                await client.set_flow_run_state(ordered.id, gone, force=True)
                return gone
            if state.is_scheduled() and waited > UNASKED_SECONDS and not warned:
                warned = True
                unasked = "%s: no worker has taken it yet (`prefect worker start --pool fepflow`)"
                run_log().warning(unasked, label(spec))
        except (httpx.HTTPError, FepflowError) as error:
            run_log().debug("%s: %s", label(spec), error)


def label(spec: ShardSpec) -> str:
    """Return the name of a shard, counting from 1."""
    return f"shard {spec.shard + 1} of {spec.shards}"


def _may_retry(_: Task[..., Any], __: TaskRun, state: State[Any]) -> bool:
    return isinstance(state.data, InfrastructureError)


@task(
    name="run-shard",
    task_run_name="{name}",
    retries=RERUNS,
    retry_delay_seconds=RERUN_SECONDS,
    retry_condition_fn=_may_retry,
    cache_policy=NO_CACHE,
    persist_result=False,
)
async def run_shard_task(context: RunContext, spec: ShardSpec, name: str) -> None:
    """`run_shard` as a Prefect task run, which Prefect retries when the shard is lost."""
    await run_shard(context, spec)


COUNT_SECONDS = 1.0
"""Shortest pause between two counts of the results; counting a large run takes longer, and is done more seldom."""


@asynccontextmanager
async def progress_watched(context: RunContext) -> AsyncIterator[None]:
    """Count the results stored by all shards, for the progress of the run."""
    looking = asyncio.create_task(_look_repeatedly(context), name="fepflow-shards")
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.wait({looking})
    await _look(context)
    if context.target_client.budget.counts:
        await asyncio.to_thread(context.count_spending)


async def _look_repeatedly(context: RunContext) -> None:
    while True:
        began = monotonic()
        with suppress(FepflowError):  # the next time will do
            await _look(context)
        await asyncio.sleep(max(COUNT_SECONDS, REST_OF_COUNTING * (monotonic() - began)))


async def _look(context: RunContext) -> None:
    seen = await asyncio.to_thread(context.store.results.progress, context.run.id)
    context.counts.clear()
    context.count(
        calls=seen.outputs,
        failed_calls=seen.failed_outputs,
        checks=seen.checks,
        passed=seen.passed,
        failed=seen.failed,
        errors=seen.error,
    )


async def stop_shards(context: RunContext) -> None:
    """Raise the flag that stops every executor of the run, unless another executor has resumed the run."""
    context.stopping_shards = True
    try:
        holder = (await asyncio.to_thread(context.store.runs.get, context.run.id)).lease_owner
        if holder == context.owner:
            await asyncio.to_thread(context.store.runs.request_cancel, context.run.id)
    except FepflowError as error:
        run_log().warning("the shards could not be stopped: %s", error)
