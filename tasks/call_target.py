"""Call the system under test for the cases of a batch that have no output yet."""

from __future__ import annotations

import asyncio

from prefect import task
from prefect.cache_policies import NO_CACHE

from fepflow.errors import JSONPathError, TargetError
from fepflow.protocol.address import address_of
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.records import NewOutput
from fepflow.targets.base import output_address
from fepflow.targets.calling import Patience, ask, is_failed
from tasks.batches import Batch
from tasks.log import one_line, run_log
from tasks.runtime import MAX_LABEL, Runtime
from tasks.together import all_of


async def call_target(runtime: Runtime, batch: Batch) -> int:
    """Ask the store which outputs are there, call for the others, store each as it arrives; the number of calls.

    A call that fails for good is stored too, as an output with its cause.
    """
    store, run = runtime.store, runtime.run
    first, last = batch.positions(run.repeats)
    present = await asyncio.to_thread(store.present_outputs, run.id, first, last)
    missing = [unit for unit in batch.units(run.repeats) if unit not in present]
    runtime.count(calls=len(batch.units(run.repeats)) - len(missing))
    cases = await runtime.cases(batch) if missing else []
    await all_of(_call(runtime, cases[position - first], position, repeat) for position, repeat in missing)
    await runtime.writer.committed()
    return len(missing)


async def _call(runtime: Runtime, case: TestCase, position: int, repeat: int) -> None:
    async with runtime.slots:
        output, address = await _output_of(runtime, case, repeat)
    failed = is_failed(output)
    runtime.count(calls=1, failed_calls=int(failed))
    runtime.writer.add(outputs=[NewOutput(position, repeat, address, output, failed)])


async def _output_of(runtime: Runtime, case: TestCase, repeat: int) -> tuple[Output, str]:
    # Prefect makes a logger at every asking: only what has something to say asks for one.
    def on_retry(case_id: str, attempt: int, cause: TargetError, wait: float) -> None:
        name = one_line(case_id, MAX_LABEL)
        run_log().warning("%s: attempt %d failed, again in %.1f s: %s", name, attempt, wait, cause)

    output = await ask(runtime.target, case, Patience.of(runtime.suite.target), on_retry)
    if is_failed(output):
        message = (output.metadata or {})["error"]["message"]
        run_log().error("%s: no output: %s", one_line(case.id, MAX_LABEL), message)
    return output, _address(runtime, case, repeat)


def _address(runtime: Runtime, case: TestCase, repeat: int) -> str:
    try:
        return output_address(runtime.target, case, repeat)
    except JSONPathError as error:  # no request can be made of this case; its output says so
        return address_of(runtime.target.fingerprint, case.id, str(error), repeat)


@task(name="call-target", task_run_name="call {label}", cache_policy=NO_CACHE, persist_result=False)
async def call_target_task(runtime: Runtime, batch: Batch, label: str) -> int:
    """`call_target` as a Prefect task run, named after the cases that it carries."""
    return await call_target(runtime, batch)
