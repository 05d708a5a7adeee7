"""Call the system under test for the cases of a batch that have no output yet."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from fepflow.errors import CircuitOpenError, JSONPathError, LimitReachedError
from fepflow.protocol.address import address_of
from fepflow.protocol.test_case import TestCase
from fepflow.store.records import NewOutput
from fepflow.targets.attempts import Asked, is_failed
from fepflow.targets.base import output_address
from tasks.batches import Batch
from tasks.log import one_line, run_log
from tasks.runtime import MAX_LABEL, Runtime
from tasks.shared_limits import Place, shared_places
from tasks.together import all_of

MAX_NAMES = 5
"""Troubled cases that the state of their batch names."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A case that has had its attempts without an answer, for a reason that another try may mend."""

    case: TestCase
    position: int
    repeat: int
    asked: Asked


@dataclass(slots=True)
class Called:
    """What came of a batch: calls that ended, cases to be tried again, cases given up as the target is down."""

    calls: int = 0
    troubled: list[Trouble] = field(default_factory=list)
    circuit_open: int = 0
    down: CircuitOpenError | None = field(default=None, repr=False)


async def call_target(runtime: Runtime, batch: Batch) -> Called:
    """Ask the store which outputs are there, call for the others, store each as it arrives.

    A call that fails for good is stored too, as an output with its cause. A call that may succeed later is not stored,
    but given back as trouble, while there are not too many. What the run's deadline or budget leaves out stays out.
    """
    store, run = runtime.store, runtime.run
    first, last = batch.positions(run.repeats)
    present = await asyncio.to_thread(store.present_outputs, run.id, first, last)
    missing = [unit for unit in batch.units(run.repeats) if unit not in present]
    runtime.count(calls=len(batch.units(run.repeats)) - len(missing))
    called = Called()
    if missing and not runtime.caller.allowance.ended:
        cases = await runtime.cases(batch)
        with suppress(LimitReachedError):
            async with places_for(runtime, len(missing)) as place:
                await all_of(_call(runtime, place, called, cases[unit[0] - first], unit) for unit in missing)
    await runtime.writer.committed()
    return called


def places_for(runtime: Runtime, calls: int) -> AbstractAsyncContextManager[Place]:
    """Places for so many calls, under the limits that the run shares with others."""
    target = runtime.suite.target
    return shared_places(target.limits, calls, target.concurrency, runtime.caller.allowance.left())


async def _call(runtime: Runtime, place: Place, called: Called, case: TestCase, unit: tuple[int, int]) -> None:
    try:
        async with place():
            asked = await runtime.caller.ask(case)
    except LimitReachedError:
        return
    called.calls += 1
    trouble = Trouble(case, *unit, asked)
    if asked.may_recover and asked.time_left() > 0 and _may_escalate(runtime):
        runtime.escalations += 1
        called.troubled.append(trouble)
        return
    if isinstance(asked.error, CircuitOpenError):
        called.circuit_open += 1
        called.down = asked.error
    store_output(runtime, trouble)


def _may_escalate(runtime: Runtime) -> bool:
    return runtime.suite.target.retries > 0 and runtime.may_escalate() and not runtime.caller.is_down


def store_output(runtime: Runtime, ended: Trouble) -> None:
    """Write down what came of a case, be it an answer or an error."""
    output = ended.asked.output()
    failed = is_failed(output)
    if failed and not isinstance(ended.asked.error, CircuitOpenError):  # its task run says so, once for all cases
        # Prefect makes a logger at every asking: only what has something to say asks for one.
        run_log().error("%s: no output: %s", one_line(ended.case.id, MAX_LABEL), ended.asked.error)
    elif not failed:
        runtime.caller.allowance.spend(output.metadata)
    runtime.count(calls=1, failed_calls=int(failed))
    address = _address(runtime, ended.case, ended.repeat)
    runtime.writer.add(outputs=[NewOutput(ended.position, ended.repeat, address, output, failed)])


def _address(runtime: Runtime, case: TestCase, repeat: int) -> str:
    try:
        return output_address(runtime.target, case, repeat)
    except JSONPathError as error:  # no request can be made of this case; its output says so
        return address_of(runtime.target.fingerprint, case.id, str(error), repeat)


@task(name="call-target", task_run_name="call {label}", cache_policy=NO_CACHE, persist_result=False)
async def call_target_task(runtime: Runtime, batch: Batch, label: str) -> Called | State[Called]:
    """`call_target` as a Prefect task run, named after the cases that it carries."""
    called = await call_target(runtime, batch)
    if called.circuit_open:
        cases = f"{called.circuit_open} of {len(batch.units(runtime.run.repeats))} calls are given up"
        message = f"{cases}: {called.down}. `fepflow run --resume {runtime.run.id[:8]}` asks for them."
        return Failed(name="CircuitOpen", message=message, data=called)
    if called.troubled:
        names = ", ".join(one_line(trouble.case.id, MAX_LABEL) for trouble in called.troubled[:MAX_NAMES])
        more = f" and {len(called.troubled) - MAX_NAMES} more" if len(called.troubled) > MAX_NAMES else ""
        message = f"Still without an answer, each gets a task run of its own: {names}{more}."
        return Completed(message=message, data=called)
    return called
