"""Call the system under test for the cases of a batch that have no output yet."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from fepflow.calls.base import output_hash
from fepflow.calls.client import CallRecord
from fepflow.errors import CircuitOpenError, RunLimitExceededError
from fepflow.protocol.test_case import TestCase
from fepflow.store.records import NewOutput
from fepflow.tasks.run.asyncio_helpers import gather_or_raise
from fepflow.tasks.run.batches import Batch
from fepflow.tasks.run.context import MAX_LABEL, RunContext
from fepflow.tasks.run.failure_messages import count_of_cases, listed_cases
from fepflow.tasks.run.global_limits import Slot
from fepflow.tasks.run.log import run_log
from fepflow.text import one_line

MAX_CAUSE = 300


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """A case and what its calls came to. In `BatchResult.to_retry`: no response, for a reason that a retry may mend."""

    case: TestCase
    case_index: int
    repeat: int
    record: CallRecord


@dataclass(slots=True)
class BatchResult:
    """The result of a batch: calls that ended, cases to retry, cases not called as the circuit is open."""

    calls: int = 0
    to_retry: list[CallOutcome] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    """Cases without a response, and why; without those that were not called as the circuit is open."""
    circuit_open: int = 0
    down: CircuitOpenError | None = field(default=None, repr=False)


async def call_target(context: RunContext, batch: Batch) -> BatchResult:
    """Read from the store which outputs are there, call the target for the others, store each as it arrives.

    A call that fails for good is stored too, as an output with its cause. A call that may succeed later is not stored,
    but returned in `to_retry`, while there are not too many. What the run's deadline or budget excludes is not called.
    """
    store, run = context.store, context.run
    first, last = batch.case_range(run.repeats)
    present = await asyncio.to_thread(store.results.present_outputs, run.id, first, last)
    missing = [unit for unit in batch.units(run.repeats) if unit not in present]
    context.count(calls=len(batch.units(run.repeats)) - len(missing))
    result = BatchResult()
    if missing and not context.target_client.budget.ended:
        cases = await context.cases(batch)
        async with context.shared_limits.slots(len(missing)) as slot:
            await gather_or_raise(_call(context, slot, result, cases[unit[0] - first], unit) for unit in missing)
    await context.writer.committed()
    return result


async def _call(context: RunContext, slot: Slot, result: BatchResult, case: TestCase, unit: tuple[int, int]) -> None:
    try:
        async with slot():
            record = await context.target_client.ask(case)
    except RunLimitExceededError:
        return
    context.at_work = case.id
    result.calls += 1
    outcome = CallOutcome(case, *unit, record)
    if record.may_recover and record.time_left() > 0 and _may_escalate(context):
        context.escalations += 1
        result.to_retry.append(outcome)
        return
    if isinstance(record.error, CircuitOpenError):
        result.circuit_open += 1
        result.down = record.error
    elif record.error is not None and record.response is None:
        result.failed.append((context.name_of(case, unit[1]), str(record.error)))
    store_output(context, outcome)


def _may_escalate(context: RunContext) -> bool:
    return context.suite.target.retries > 0 and context.may_escalate() and not context.target_client.is_down


def store_output(context: RunContext, ended: CallOutcome) -> None:
    """Store what the calls of a case came to, a response or an error."""
    output = ended.record.output()
    failed = output.failure is not None
    if failed and not isinstance(ended.record.error, CircuitOpenError):  # its task run says so, once for all cases
        # Prefect makes a logger at every request, so one is requested only for a message.
        run_log().error("%s: no output: %s", one_line(ended.case.id, MAX_LABEL), ended.record.error)
    elif not failed:
        context.target_client.budget.spend(output.metadata)
    context.count(calls=1, failed_calls=int(failed))
    hashed = output_hash(context.target, ended.case, ended.repeat, ended.record.request)
    context.writer.add(outputs=[NewOutput(ended.case_index, ended.repeat, hashed, output)])


@task(name="call-target", task_run_name="call {label}", retries=0, cache_policy=NO_CACHE, persist_result=False)
async def call_target_task(context: RunContext, batch: Batch, label: str) -> State[BatchResult]:
    """`call_target` as a Prefect task run, named after the cases that it carries."""
    result = await call_target(context, batch)
    of = f"of {count_of_cases(len(batch.units(context.run.repeats)), context.run.repeats)}"
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
        names = listed_cases([context.name_of(outcome.case, outcome.repeat) for outcome in result.to_retry])
        sentences.append(f"Still without an answer, each gets a task run of its own: {names}.")
    message = " ".join(sentences) or None
    return Failed(message=message, data=result) if failed else Completed(message=message, data=result)
