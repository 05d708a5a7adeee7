"""Retry a case that still fails in a task run of its own, which Prefect retries with growing pauses."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.runtime import task_run
from prefect.states import Completed, Failed
from prefect.tasks import exponential_backoff

from fepflow.errors import RunLimitExceededError
from fepflow.tasks.call_target import CallOutcome, store_output
from fepflow.tasks.run.asyncio_helpers import task_result
from fepflow.tasks.run.batches import Batch
from fepflow.tasks.run.context import RunContext

FIRST_PAUSE = 2
"""Seconds before Prefect's first retry; each further pause is twice as long."""

JITTER = 0.5
"""A pause is up to so much longer or shorter, so that retried cases do not come back all at once."""

RETRYABLE = "another try may mend it"


async def retry_call(context: RunContext, outcome: CallOutcome) -> bool:
    """One more call for a case, recorded in `outcome.record`. False, without a call, if the circuit is open."""
    with suppress(RunLimitExceededError):  # then the error of the last attempt stands
        async with context.shared_limits.slots(1) as slot, slot():
            return await context.target_client.call_once_more(outcome.case, outcome.record)
    return True


async def retry_case(context: RunContext, outcome: CallOutcome) -> None:
    """Retry the case in its own task run until it has a response or no retry is left; either way, store the outcome."""
    index = outcome.case_index * context.run.repeats + outcome.repeat
    label = context.label_of(outcome.case, Batch(index, index + 1))
    retries = context.suite.target.retries
    retrying = call_case_task.with_options(retries=retries, retry_delay_seconds=exponential_backoff(FIRST_PAUSE))
    await task_result(retrying(context, outcome, label, return_state=True))
    store_output(context, outcome)
    await context.writer.committed()


def may_retry(_: Task[..., Any], __: TaskRun, state: State[Any]) -> bool:
    """Not after a fault of ours, whose state holds an exception."""
    return state.data is RETRYABLE


@task(
    name="call-case",
    task_run_name="case {label}",
    retry_jitter_factor=JITTER,
    retry_condition_fn=may_retry,
    cache_policy=NO_CACHE,
    persist_result=False,
)
async def call_case_task(context: RunContext, outcome: CallOutcome, label: str) -> State[Any]:
    """`retry_call` as a Prefect task run, named after its case. Each attempt makes one call."""
    called = await retry_call(context, outcome)
    record = outcome.record
    if record.response is not None:
        return Completed(message=f"{label}: answered at attempt {len(record.attempts)}.")
    left = min(context.target_client.budget.left(), record.time_left())
    another = record.may_recover and left > longest_pause()
    down = "" if called else "no call was made, as the target is down; "
    return Failed(
        message=f"{label}: {down}attempt {len(record.attempts)}: {record.error}",
        data=RETRYABLE if another else None,
    )


def longest_pause() -> float:
    """Seconds until the next try of this task run, if there is one."""
    return float(FIRST_PAUSE * 2 ** (task_run.run_count - 1) * (1 + JITTER))
