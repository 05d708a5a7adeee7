"""More results for a verdict that is open: a further round of repeats, or further test cases, up to the gate's limit.

The verdict is looked at whenever such a round or group is complete; its intervals hold however often that is.
"""

from __future__ import annotations

import asyncio

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed

from fepflow.analysis.metrics import compute_verdict
from fepflow.analysis.sampling import Size, may_be_decided, next_size, outcome_of_top_up
from fepflow.tasks.run.batches import Batch, split_into_batches
from fepflow.tasks.run.context import RunContext
from fepflow.tasks.run.log import run_log


async def top_up(context: RunContext) -> tuple[list[Batch], str]:
    """Extend an open run by what comes next. Its batches, none if that is the end, and why, in words."""
    rule = context.suite.top_up
    assert rule is not None  # the flow has looked
    verdict = await asyncio.to_thread(compute_verdict, context.store, context.run, context.suite)
    client, size = context.target_client, next_size(context.run, rule, context.suite.target.calls_at_once)
    if size is None or not may_be_decided(verdict) or client.budget.ended or client.is_down:
        return [], outcome_of_top_up(context.run, rule, verdict).summary
    had = Size(context.run.n_cases, context.run.repeats)
    await context.extend(size.cases, size.repeats)
    more = f"repeat {size.repeats}" if size.cases == had.cases else f"test cases {had.cases + 1} to {size.cases}"
    return _batches(had, size, context.suite.batch_size), f"Open; next: {more}. {verdict.distinct_reasons[0]}"


def _batches(had: Size, size: Size, batch_size: int | None) -> list[Batch]:
    if size.cases == had.cases:
        return split_into_batches(range(size.cases), batch_size, had.repeats)
    return split_into_batches(range(had.calls, size.calls), batch_size)


@task(name="top-up", task_run_name="top up", retries=0, cache_policy=NO_CACHE, persist_result=False)
async def top_up_task(context: RunContext) -> State[list[Batch]]:
    """`top_up` as a Prefect task run, whose state says what the verdict is by now, and what comes next."""
    batches, words = await top_up(context)
    run_log().info("%s", words)
    return Completed(message=words, data=batches)
