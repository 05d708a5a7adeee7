"""Have a shard of a run executed by a worker, and watch over it: a shard that is lost is executed again."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from time import monotonic
from typing import Any

from prefect import Task, get_client, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import FlowRun, State, TaskRun
from prefect.deployments import arun_deployment
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelled, Crashed

from fepflow.errors import InfrastructureError, UserError
from fepflow.protocol.model import utc_now
from fepflow.store.shards import Holder
from tasks.log import run_log
from tasks.runtime import Runtime
from tasks.share import Share

DEPLOYMENT = "evaluate-shard/evaluate-shard"
LOOK_SECONDS = 1.0
"""Between two looks at a shard's flow run."""
STARTED_SECONDS = 120.0
"""How long a worker may take from accepting a shard until it holds the lease, or until it says that it is done; after
that its machine is taken to be gone."""
UNASKED_SECONDS = 60.0
"""After so long without a worker, the log says so."""
RERUNS = 3
LATE = "TooLate"
"""The state of a shard that no worker has begun when the run's deadline is over. The verdict tells what is missing."""


class ShardLostError(InfrastructureError):
    """A shard's executor is gone, or has failed; another one may succeed."""


async def run_shard(runtime: Runtime, share: Share) -> None:
    """Order the shard's execution and wait for its end.

    Raises ShardLostError when it did not complete, UserError when Prefect has no deployment to execute shards.
    """
    parameters = {"run_id": runtime.run.id, **asdict(share)}
    name = f"{runtime.run.name} {label(share)}"
    before = await _holder(runtime, share)
    try:
        ordered: Any = await arun_deployment(
            DEPLOYMENT, parameters=parameters, flow_run_name=name, tags=runtime.run.tags, timeout=0
        )
    except ObjectNotFound:
        advice = "`prefect deploy --all` makes it, and so does `fepflow serve`; or leave `shards` out of the suite"
        raise UserError(f"Prefect has no deployment {DEPLOYMENT}, which shards need: {advice}.") from None
    async with get_client() as client:
        state = await _end_of(client, runtime, share, ordered, before.owner if before else None)
    if not state.is_completed() and state.name != LATE:
        raise ShardLostError(f"{name}: {state.name}: {state.message or 'no reason was given'}")


async def _holder(runtime: Runtime, share: Share) -> Holder | None:
    return await asyncio.to_thread(runtime.store.shard_holder, runtime.run.id, share.shard)


async def _end_of(
    client: PrefectClient, runtime: Runtime, share: Share, ordered: FlowRun, before: str | None
) -> State[Any]:
    """The final state of the shard's flow run; `before` is who had the shard last, and may have left its lease."""
    unheld_since = monotonic()
    told = False
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            state = (await client.read_flow_run(ordered.id)).state or ordered.state
        except Exception as error:  # a server that is away is asked again; the shard itself goes on
            run_log().debug("%s: %s", label(share), error)
            continue
        assert state is not None  # it was ordered with one
        if state.is_final():
            return state
        holder = await _holder(runtime, share)
        waited = monotonic() - unheld_since
        if holder and holder.alive:
            unheld_since = monotonic()
        elif share.ends_at is not None and utc_now() > share.ends_at:
            late: State[Any] = Cancelled(name=LATE, message="The run's deadline was over before a worker had begun.")
            await client.set_flow_run_state(ordered.id, late, force=True)
            return late
        elif (holder and holder.owner != before) or (not state.is_scheduled() and waited > STARTED_SECONDS):
            lost: State[Any] = Crashed(
                message=f"Its executor is gone. The run has a shard executed {RERUNS} times more at most."
            )
            await client.set_flow_run_state(ordered.id, lost, force=True)
            return lost
        elif state.is_scheduled() and waited > UNASKED_SECONDS and not told:
            told = True
            run_log().warning("%s: no worker has taken it yet (`prefect worker start --pool fepflow`)", label(share))


def label(share: Share) -> str:
    """What a shard is called, counting from 1."""
    return f"shard {share.shard + 1} of {share.shards}"


def _may_retry(_: Task[..., Any], __: TaskRun, state: State[Any]) -> bool:
    return isinstance(state.data, ShardLostError)


@task(
    name="run-shard",
    task_run_name="{name}",
    retries=RERUNS,
    retry_delay_seconds=2,
    retry_condition_fn=_may_retry,
    cache_policy=NO_CACHE,
    persist_result=False,
)
async def run_shard_task(runtime: Runtime, share: Share, name: str) -> None:
    """`run_shard` as a Prefect task run, which Prefect retries when the shard is lost."""
    await run_shard(runtime, share)
