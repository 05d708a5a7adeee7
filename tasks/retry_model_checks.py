"""Give an output whose judge did not answer a task run of its own, which Prefect retries with growing pauses."""

from __future__ import annotations

from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed
from prefect.tasks import exponential_backoff

from tasks.retry_case import FIRST_PAUSE, JITTER, WORTH_ANOTHER_TRY, longest_pause, may_retry
from tasks.run.asyncio_helpers import task_result
from tasks.run.batches import Batch
from tasks.run.context import RunContext
from tasks.run_model_checks import PendingRetry, ask, store_asked

RETRIES = 2
"""Prefect's, after the first try of the task run."""


async def judge_again(runtime: RunContext, trouble: PendingRetry) -> None:
    """Ask in a task run of its own until there is an answer or no retry is left; either way, store the outcome."""
    output = trouble.output
    index = output.case_index * runtime.run.repeats + output.repeat
    label = runtime.label_of(output.case, Batch(index, index + 1))
    await task_result(judge_case_task(runtime, trouble, label, return_state=True))
    store_asked(runtime, output, trouble.asking)
    await runtime.writer.committed()


async def try_once_more(runtime: RunContext, trouble: PendingRetry) -> None:
    """Ask for what has no answer yet; each question to a model makes one request."""
    waiting = [one for one in trouble.asking if one.may_recover]
    for one in waiting:
        one.request_context.retry = False
    await ask(runtime, trouble.output, waiting)


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
async def judge_case_task(runtime: RunContext, trouble: PendingRetry, label: str) -> State[Any]:
    """`try_once_more` as a Prefect task run, named after its case."""
    await try_once_more(runtime, trouble)
    failed = [one for one in trouble.asking if one.result is not None and one.result.error is not None]
    requests = sum(one.request_context.requests for one in trouble.asking)
    if not failed:
        return Completed(message=f"{label}: answered, after {requests} requests.")
    allowance = runtime.caller.allowance
    in_time = allowance.left() > longest_pause() and not allowance.ended
    another = in_time and any(one.may_recover for one in failed)
    error = failed[0].result.error if failed[0].result else None
    return Failed(
        message=f"{label}: {failed[0].check.check_id}, after {requests} requests: {error.message if error else ''}",
        data=WORTH_ANOTHER_TRY if another else None,
    )
