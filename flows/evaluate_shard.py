"""The flow `evaluate-shard`: a part of a run, executed by a worker on any machine. The parent gives the verdict."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated, Any

from prefect import flow
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed
from pydantic import Field

from fepflow.asyncio_helpers import uncancel
from fepflow.flows.batches import run_batches
from fepflow.tasks.batches import ShardSpec
from fepflow.tasks.flow_state import failed_state
from fepflow.tasks.open_run import open_shard


@flow(name="evaluate-shard", persist_result=False)
async def evaluate_shard(
    run_id: str,
    shard: Annotated[int, Field(ge=0)],
    shards: Annotated[int, Field(ge=1)],
    ends_at: datetime | None = None,
) -> Any:
    """Call and check the cases of one shard of a run. Started by `evaluate`.

    Args:
        run_id: Id of the run in the shared store.
        shard: Number of the shard, from 0.
        shards: Number of shards of the run.
        ends_at: The run's deadline, by the store's clock.
    """
    try:
        async with open_shard(run_id, ShardSpec(shard, shards, ends_at), flow_run.id) as context:
            await run_batches(context)
    except asyncio.CancelledError:
        uncancel()
        return Cancelled(message="What was stored is kept.")
    except Exception as error:
        return failed_state(error)
    return Completed(message=f"{context.counts['calls']} calls, {context.counts['checks']} checks.")
