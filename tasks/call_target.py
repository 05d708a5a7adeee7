"""Call the system under test for the cases of a batch that have no output yet."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from fepflow.errors import CircuitOpenError, JSONPathError, RunLimitExceededError
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.test_case import TestCase
from fepflow.store.records import NewOutput
from fepflow.targets.base import output_hash
from fepflow.targets.call_record import CallRecord, is_failed
from tasks.run.asyncio_helpers import gather_or_raise
from tasks.run.batches import Batch
from tasks.run.context import MAX_LABEL, RunContext
from tasks.run.failure_messages import count_of_cases, listed_cases
from tasks.run.global_limits import Slot, shared_places
from tasks.run.log import one_line, run_log

MAX_CAUSE = 300


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """A case that has had its attempts without an answer, for a reason that another try may mend."""

    case: TestCase
    case_index: int
    repeat: int
    asked: CallRecord


@dataclass(slots=True)
class BatchResult:
    """What came of a batch: calls that ended, cases to be tried again, cases given up as the target is down."""

    calls: int = 0
    troubled: list[CallOutcome] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    """Cases without an answer, and why, without those that were given up as the target is down."""
    circuit_open: int = 0
    down: CircuitOpenError | None = field(default=None, repr=False)


async def call_target(runtime: RunContext, batch: Batch) -> BatchResult:
    """Ask the store which outputs are there, call for the others, store each as it arrives.

    A call that fails for good is stored too, as an output with its cause. A call that may succeed later is not stored,
    but given back as trouble, while there are not too many. What the run's deadline or budget leaves out stays out.
    """
    store, run = runtime.store, runtime.run
    first, last = batch.case_range(run.repeats)
    present = await asyncio.to_thread(store.present_outputs, run.id, first, last)
    missing = [unit for unit in batch.units(run.repeats) if unit not in present]
    runtime.count(calls=len(batch.units(run.repeats)) - len(missing))
    called = BatchResult()
    if missing and not runtime.caller.allowance.ended:
        cases = await runtime.cases(batch)
        with suppress(RunLimitExceededError):
            async with places_for(runtime, len(missing)) as place:
                await gather_or_raise(_call(runtime, place, called, cases[unit[0] - first], unit) for unit in missing)
    await runtime.writer.committed()
    return called


def places_for(runtime: RunContext, calls: int) -> AbstractAsyncContextManager[Slot]:
    """Places for so many calls, under the limits that the run shares with others."""
    target = runtime.suite.target
    return shared_places(target.limits, calls, target.concurrency, runtime.caller.allowance.left())


async def _call(runtime: RunContext, place: Slot, called: BatchResult, case: TestCase, unit: tuple[int, int]) -> None:
    try:
        async with place():
            asked = await runtime.caller.ask(case)
    except RunLimitExceededError:
        return
    runtime.at_work = case.id
    called.calls += 1
    trouble = CallOutcome(case, *unit, asked)
    if asked.may_recover and asked.time_left() > 0 and _may_escalate(runtime):
        runtime.escalations += 1
        called.troubled.append(trouble)
        return
    if isinstance(asked.error, CircuitOpenError):
        called.circuit_open += 1
        called.down = asked.error
    elif asked.error is not None and asked.answer is None:
        called.failed.append((runtime.name_of(case, unit[1]), str(asked.error)))
    store_output(runtime, trouble)


def _may_escalate(runtime: RunContext) -> bool:
    return runtime.suite.target.retries > 0 and runtime.may_escalate() and not runtime.caller.is_down


def store_output(runtime: RunContext, ended: CallOutcome) -> None:
    """Write down what came of a case, be it an answer or an error."""
    output = ended.asked.output()
    failed = is_failed(output)
    if failed and not isinstance(ended.asked.error, CircuitOpenError):  # its task run says so, once for all cases
        # Prefect makes a logger at every asking: only what has something to say asks for one.
        run_log().error("%s: no output: %s", one_line(ended.case.id, MAX_LABEL), ended.asked.error)
    elif not failed:
        runtime.caller.allowance.spend(output.metadata)
    runtime.count(calls=1, failed_calls=int(failed))
    hashed = _content_hash(runtime, ended.case, ended.repeat)
    runtime.writer.add(outputs=[NewOutput(ended.case_index, ended.repeat, hashed, output, failed)])


def _content_hash(runtime: RunContext, case: TestCase, repeat: int) -> str:
    try:
        return output_hash(runtime.target, case, repeat)
    except JSONPathError as error:  # no request can be made of this case; its output says so
        return content_hash(runtime.target.fingerprint, case.id, str(error), repeat)


@task(name="call-target", task_run_name="call {label}", retries=0, cache_policy=NO_CACHE, persist_result=False)
async def call_target_task(runtime: RunContext, batch: Batch, label: str) -> State[BatchResult]:
    """`call_target` as a Prefect task run, named after the cases that it carries."""
    called = await call_target(runtime, batch)
    of = f"of {count_of_cases(len(batch.units(runtime.run.repeats)), runtime.run.repeats)}"
    told = []
    if called.circuit_open:
        told.append(
            f"{called.circuit_open} {of} given up: {one_line(str(called.down), MAX_CAUSE)}. "
            f"`fepflow run --resume {runtime.run.id[:8]}` asks for them."
        )
    if called.failed:
        names = listed_cases([case for case, _ in called.failed])
        cause = one_line(called.failed[0][1], MAX_CAUSE)
        told.append(f"{len(called.failed)} {of} without an answer: {names}: {cause}")
    failed = bool(told)
    if called.troubled:
        names = listed_cases([runtime.name_of(trouble.case, trouble.repeat) for trouble in called.troubled])
        told.append(f"Still without an answer, each gets a task run of its own: {names}.")
    message = " ".join(told) or None
    return Failed(message=message, data=called) if failed else Completed(message=message, data=called)
