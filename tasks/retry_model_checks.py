"""Retry model checks without a response in a task run of their own, which Prefect retries with growing pauses."""

from __future__ import annotations

from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed
from prefect.tasks import exponential_backoff

from fepflow.tasks.retry_case import FIRST_PAUSE, JITTER, RETRYABLE, longest_pause, may_retry
from fepflow.tasks.run.asyncio_helpers import task_result
from fepflow.tasks.run.batches import Batch
from fepflow.tasks.run.context import RunContext
from fepflow.tasks.run_model_checks import PendingRetry, run_calls, store_model_results

RETRIES = 2
"""Prefect's, after the first try of the task run."""


async def retry_model_checks(context: RunContext, pending: PendingRetry) -> None:
    """Retry in a task run of its own until there is a response or no retry is left; either way, store the outcome."""
    output = pending.output
    index = output.case_index * context.run.repeats + output.repeat
    label = context.label_of(output.case, Batch(index, index + 1))
    await task_result(judge_case_task(context, pending, label, return_state=True))
    store_model_results(context, output, pending.calls)
    await context.writer.committed()


async def retry_calls(context: RunContext, pending: PendingRetry) -> None:
    """Run the checks that have no response yet; each call of a model makes one request."""
    waiting = [call for call in pending.calls if call.may_recover]
    for call in waiting:
        call.request_context.retry = False
    await run_calls(context, pending.output, waiting)


@task(
    name="judge-case",
    task_run_name="judge case {label}",
    retries=RETRIES,
    retry_delay_seconds=exponential_backoff(FIRST_PAUSE),
    retry_jitter_factor=JITTER,
    retry_condition_fn=may_retry,
    cache_policy=NO_CACHE,
    persist_result=False,
)
async def judge_case_task(context: RunContext, pending: PendingRetry, label: str) -> State[Any]:
    """`retry_calls` as a Prefect task run, named after its case."""
    await retry_calls(context, pending)
    failed = [call for call in pending.calls if call.result is not None and call.result.error is not None]
    requests = sum(call.request_context.requests for call in pending.calls)
    if not failed:
        return Completed(message=f"{label}: answered, after {requests} requests.")
    budget = context.target_client.budget
    in_time = budget.left() > longest_pause() and not budget.ended
    another = in_time and any(call.may_recover for call in failed)
    error = failed[0].result.error if failed[0].result else None
    return Failed(
        message=f"{label}: {failed[0].check.check_id}, after {requests} requests: {error.message if error else ''}",
        data=RETRYABLE if another else None,
    )
