"""Call the target for the cases of a batch that have no output yet.

A case that still fails is called again in its own task run, which Prefect retries with growing pauses.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.runtime import task_run
from prefect.states import Completed, Failed
from prefect.tasks import exponential_backoff

from fepflow.asyncio_helpers import gather_or_raise, task_result
from fepflow.calls.base import output_hash
from fepflow.calls.client import CallRecord
from fepflow.calls.traces import is_traced
from fepflow.errors import CircuitOpenError, RunLimitExceededError
from fepflow.protocol.test_case import REUSED_FROM, TestCase
from fepflow.store.records import NewOutput
from fepflow.tasks.batches import MAX_LABEL, BatchWork, CaseOutput, Unit, count_of_cases, listed_cases
from fepflow.tasks.context import RunContext
from fepflow.tasks.flow_state import run_log
from fepflow.tasks.global_limits import Slot
from fepflow.text import one_line

MAX_CAUSE = 300

FIRST_PAUSE = 2
"""Seconds before Prefect's first retry; each further pause is twice as long."""

JITTER = 0.5
"""A pause is up to so much longer or shorter, so that retried cases do not come back all at once."""

RETRYABLE = "another try may mend it"


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The calls for a case. In `BatchResult.to_retry`, there is no response, for a reason that a retry may fix."""

    case: TestCase
    unit: Unit
    record: CallRecord


@dataclass(slots=True)
class BatchResult:
    """The result of a batch: finished calls, cases to retry, and cases not called because the circuit is open."""

    calls: int = 0
    reused: int = 0
    """Outputs of earlier runs."""
    to_retry: list[CallOutcome] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    """Cases without a response, and why; without those that were not called as the circuit is open."""
    circuit_open: int = 0
    down: CircuitOpenError | None = field(default=None, repr=False)


async def call_target(context: RunContext, work: BatchWork) -> BatchResult:
    """Call the target for the missing outputs of the batch, and store each as it arrives.

    A call that fails for good is stored as an output with its cause. A call that may succeed later is not stored, but
    returned in `to_retry`, if there are not too many. Calls that the run's deadline or budget excludes are not made.
    """
    context.count(calls=len(work.units) - len(work.missing))
    result = BatchResult()
    if context.run.reuses_outputs:
        result.reused = await _reuse_outputs(context, work)
    if work.missing and not context.target_client.budget.ended:
        async with context.shared_limits.slots(len(work.missing)) as slot:
            await gather_or_raise(_call(context, slot, result, work, unit) for unit in work.missing)
    await context.writer.committed()
    return result


async def _reuse_outputs(context: RunContext, work: BatchWork) -> int:
    """Take outputs of earlier runs with the same request, and return their number. They cost nothing."""
    hashes = {unit: output_hash(context.target, work.case(unit), unit[1]) for unit in work.missing}
    known = await asyncio.to_thread(context.store.results.reusable, set(hashes.values()), context.run.id)
    if context.traces is not None:
        known = {hashed: output for hashed, output in known.items() if is_traced(output[1].metadata)}
    reused = {unit: (hashed, *known[hashed]) for unit, hashed in hashes.items() if hashed in known}
    for unit, (hashed, made_by, earlier) in reused.items():
        output = earlier.model_copy(update={"metadata": {**(earlier.metadata or {}), REUSED_FROM: made_by}})
        context.writer.add(outputs=[NewOutput(*unit, hashed, output)])
        work.add_output(CaseOutput(work.case(unit), unit, output, hashed))
    context.count(calls=len(reused))
    return len(reused)


async def _call(context: RunContext, slot: Slot, result: BatchResult, work: BatchWork, unit: Unit) -> None:
    case = work.case(unit)
    try:
        async with slot():
            record = await context.target_client.ask(case, unit[1])
    except RunLimitExceededError:
        return
    result.calls += 1
    outcome = CallOutcome(case, unit, record)
    if record.may_recover and record.time_left() > 0 and _may_escalate(context):
        context.escalations += 1
        result.to_retry.append(outcome)
        return
    if isinstance(record.error, CircuitOpenError):
        result.circuit_open += 1
        result.down = record.error
    elif record.error is not None and record.response is None:
        result.failed.append((work.name_of(case, unit[1]), str(record.error)))
    store_output(context, work, outcome)


def _may_escalate(context: RunContext) -> bool:
    return context.suite.target.retries > 0 and context.may_escalate() and not context.target_client.is_down


def store_output(context: RunContext, work: BatchWork, ended: CallOutcome) -> None:
    """Add the response or error of a case's calls to the batch and the store."""
    output = ended.record.output()
    failed = output.failure is not None
    if failed and not isinstance(ended.record.error, CircuitOpenError):  # its task run says so, once for all cases
        # Prefect makes a logger at every request, so one is requested only for a message.
        run_log().error("%s: no output: %s", one_line(ended.case.id, MAX_LABEL), ended.record.error)
    context.spend(output)
    context.count(calls=1, failed_calls=int(failed))
    case_index, repeat = ended.unit
    hashed = output_hash(context.target, ended.case, repeat, ended.record.request)
    context.writer.add(outputs=[NewOutput(case_index, repeat, hashed, output)])
    work.add_output(CaseOutput(ended.case, ended.unit, output, hashed, ended.record.span))


@task(name="call-target", task_run_name="call {label}", retries=0, cache_policy=NO_CACHE, persist_result=False)
async def call_target_task(context: RunContext, work: BatchWork, label: str) -> State[BatchResult]:
    """`call_target` as a Prefect task run, named after its cases."""
    result = await call_target(context, work)
    of = f"of {count_of_cases(len(work.units), context.run.repeats)}"
    sentences = []
    if result.circuit_open:
        sentences.append(
            f"{result.circuit_open} {of} given up: {one_line(str(result.down), MAX_CAUSE)}. "
            f"`fepflow run --resume {context.run.id[:8]}` asks for them."
        )
    if result.failed:
        names = listed_cases([case for case, _ in result.failed])
        cause = one_line(result.failed[0][1], MAX_CAUSE)
        sentences.append(f"{len(result.failed)} {of} without an answer: {names}: {cause}")
    failed = bool(sentences)
    if result.to_retry:
        names = listed_cases([work.name_of(outcome.case, outcome.unit[1]) for outcome in result.to_retry])
        sentences.append(f"Still without an answer, each gets a task run of its own: {names}.")
    if result.reused:
        sentences.append(f"{result.reused} {of} not called for: the output is of an earlier run.")
    message = " ".join(sentences) or None
    if result.reused == len(work.units):
        return Completed(name="Cached", message=message, data=result)
    return Failed(message=message, data=result) if failed else Completed(message=message, data=result)


async def retry_call(context: RunContext, outcome: CallOutcome) -> bool:
    """Call once more for a case, recorded in `outcome.record`; return False, without a call, if the circuit is open."""
    with suppress(RunLimitExceededError):  # then the error of the last attempt stands
        async with context.shared_limits.slots(1) as slot, slot():
            return await context.target_client.call_once_more(outcome.case, outcome.record)
    return True


async def retry_case(context: RunContext, work: BatchWork, outcome: CallOutcome) -> None:
    """Retry the case in its own task run until it has a response or no retry is left; either way, store the outcome."""
    label = work.name_of(outcome.case, outcome.unit[1])
    retries = context.suite.target.retries
    retrying = call_case_task.with_options(retries=retries, retry_delay_seconds=exponential_backoff(FIRST_PAUSE))
    await task_result(retrying(context, outcome, label, return_state=True))
    store_output(context, work, outcome)
    await context.writer.committed()


def may_retry(_: Task[..., Any], __: TaskRun, state: State[Any]) -> bool:
    """Return whether Prefect may retry: not after a bug in fepflow, when the state holds an exception."""
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
    """Return the seconds until the next try of this task run, if there is one."""
    return float(FIRST_PAUSE * 2 ** (task_run.run_count - 1) * (1 + JITTER))
