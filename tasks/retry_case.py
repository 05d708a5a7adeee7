"""Give a case that still fails a task run of its own, which Prefect retries with growing pauses."""

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
from tasks.call_target import CallOutcome, places_for, store_output
from tasks.run.asyncio_helpers import task_result
from tasks.run.batches import Batch
from tasks.run.context import RunContext

FIRST_PAUSE = 2
"""Seconds before Prefect's first retry; each further pause is twice as long."""

JITTER = 0.5
"""A pause is up to so much longer or shorter, so that troubled cases do not come back all at once."""

WORTH_ANOTHER_TRY = "another try may mend it"


async def try_again(runtime: RunContext, trouble: CallOutcome) -> bool:
    """One call more for a case; what came of it is in `trouble.asked`. False, without a call, if the target is down."""
    with suppress(RunLimitExceededError):  # then the error of the last attempt stands
        async with places_for(runtime, 1) as place, place():
            return await runtime.caller.ask_once_more(trouble.case, trouble.asked)
    return True


async def escalate(runtime: RunContext, trouble: CallOutcome) -> None:
    """Try the case in its own task run until it has an answer or no retry is left; either way, store the outcome."""
    index = trouble.case_index * runtime.run.repeats + trouble.repeat
    label = runtime.label_of(trouble.case, Batch(index, index + 1))
    retries = runtime.suite.target.retries
    patient = call_case_task.with_options(retries=retries, retry_delay_seconds=exponential_backoff(FIRST_PAUSE))
    await task_result(patient(runtime, trouble, label, return_state=True))
    store_output(runtime, trouble)
    await runtime.writer.committed()


def may_retry(_: Task[..., Any], __: TaskRun, state: State[Any]) -> bool:
    """Not after a fault of ours, whose state holds an exception."""
    return state.data is WORTH_ANOTHER_TRY


@task(
    name="call-case",
    task_run_name="case {label}",
    retry_jitter_factor=JITTER,
    retry_condition_fn=may_retry,
    cache_policy=NO_CACHE,
    persist_result=False,
)
async def call_case_task(runtime: RunContext, trouble: CallOutcome, label: str) -> State[Any]:
    """`try_again` as a Prefect task run, named after its case. Each try makes one call."""
    called = await try_again(runtime, trouble)
    asked = trouble.asked
    if asked.answer is not None:
        return Completed(message=f"{label}: answered at attempt {len(asked.attempts)}.")
    left = min(runtime.caller.allowance.left(), asked.time_left())
    another = asked.may_recover and left > longest_pause()
    down = "" if called else "no call was made, as the target is down; "
    return Failed(
        message=f"{label}: {down}attempt {len(asked.attempts)}: {asked.error}",
        data=WORTH_ANOTHER_TRY if another else None,
    )


def longest_pause() -> float:
    """Seconds until the next try of this task run, if there is one."""
    return float(FIRST_PAUSE * 2 ** (task_run.run_count - 1) * (1 + JITTER))
