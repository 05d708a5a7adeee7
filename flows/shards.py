"""A run that is split over many machines: each shard is a flow run of its own, all write to one store.

shard 1: evaluate-shard on some worker ─┐
shard 2: evaluate-shard on some worker ─┼─► decide
shard n: …                              ┘
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from fepflow.asyncio_helpers import gather_or_raise
from fepflow.tasks.batches import ShardSpec
from fepflow.tasks.context import RunContext
from fepflow.tasks.flow_state import run_log
from fepflow.tasks.run_shard import label, progress_watched, run_shard_task, stop_shards


async def run_shards(context: RunContext) -> None:
    """Have all shards executed. What stops this stops them too, within a second."""
    # Each shard has a part of the places for calls, one at least.
    shards = min(context.suite.shards, context.run.n_cases, context.suite.target.calls_at_once)
    deadline, ends_at = context.suite.deadline, context.shard_spec.ends_at
    if ends_at is None and deadline is not None:
        ends_at = await asyncio.to_thread(context.store.now) + timedelta(seconds=deadline)
    run_log().info("run %s: %d calls in %d shards", context.run.id, context.run.calls, shards)
    parts = [ShardSpec(number, shards, ends_at) for number in range(shards)]
    try:
        async with progress_watched(context):
            await gather_or_raise(run_shard_task(context, part, label(part)) for part in parts)
    except BaseException:
        await asyncio.shield(stop_shards(context))
        raise
