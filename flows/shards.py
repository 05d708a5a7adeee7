"""A run that is split over many machines: each shard is a flow run of its own, all write to one store.

shard 1: evaluate-shard on some worker ─┐
shard 2: evaluate-shard on some worker ─┼─► decide
shard n: …                              ┘
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from tasks.log import run_log
from tasks.run_shard import label, run_shard_task
from tasks.runtime import Runtime
from tasks.share import Share
from tasks.together import all_of
from tasks.watch_shards import progress_watched, stop_shards


async def run_shards(runtime: Runtime) -> None:
    """Have all shards executed. What stops this stops them too, within a second."""
    # Each shard has a part of the places for calls, one at least.
    shards = min(runtime.suite.shards, runtime.run.n_cases, runtime.suite.target.concurrency)
    deadline = runtime.suite.deadline
    ends_at = None if deadline is None else await asyncio.to_thread(runtime.store.now) + timedelta(seconds=deadline)
    run_log().info("run %s: %d calls in %d shards", runtime.run.id, runtime.calls, shards)
    parts = [Share(number, shards, ends_at) for number in range(shards)]
    try:
        async with progress_watched(runtime):
            await all_of(run_shard_task(runtime, part, label(part)) for part in parts)
    except BaseException:
        await asyncio.shield(stop_shards(runtime))
        raise
