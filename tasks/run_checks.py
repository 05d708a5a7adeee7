"""Run the checks that a batch's outputs still lack."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from prefect import task
from prefect.cache_policies import NO_CACHE

from checks.compiled import CompiledCheck
from checks.engine import run_checks
from fepflow.evalguard.pass_rule import passed_of
from fepflow.protocol.address import address_of
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import TestCase
from fepflow.store.records import NewCheck, StoredOutput
from tasks.batches import Batch
from tasks.runtime import Runtime


async def run_checks_of_batch(runtime: Runtime, batch: Batch) -> int:
    """Ask the store which answers are there, run the other checks, store a case's answers whole; their number."""
    store, run = runtime.store, runtime.run
    first, last = batch.positions(run.repeats)
    cases, present = await asyncio.gather(
        asyncio.to_thread(store.cases, run.id, first, last),
        asyncio.to_thread(store.present_checks, run.id, first, last),
    )
    missing: dict[tuple[int, int], list[CompiledCheck]] = {}
    for position, repeat in batch.units(run.repeats):
        checks = runtime.checks_for(cases[position - first])
        if ready := [check for check in checks if (position, repeat, check.check_id) not in present]:
            missing[position, repeat] = ready
    outputs = await asyncio.to_thread(store.outputs, run.id, first, last) if missing else {}
    writes = [
        asyncio.create_task(_check(runtime, cases[unit[0] - first], outputs[unit], ready, unit))
        for unit, ready in missing.items()
    ]
    return sum(await asyncio.gather(*writes))


async def _check(
    runtime: Runtime, case: TestCase, stored: StoredOutput, checks: Sequence[CompiledCheck], unit: tuple[int, int]
) -> int:
    results = run_checks(case, stored.output, checks)
    if not isinstance(results, list):
        results = await results
    rows = [_row(stored, unit, check, result) for check, result in zip(checks, results, strict=True)]
    await runtime.writer.write([], rows)
    runtime.count(
        checks=len(rows),
        passed=sum(row.passed is True for row in rows),
        failed=sum(row.passed is False for row in rows),
        errors=sum(row.result.status == "error" for row in rows),
    )
    return len(rows)


def _row(stored: StoredOutput, unit: tuple[int, int], check: CompiledCheck, result: CheckResult) -> NewCheck:
    position, repeat = unit
    address = check_address(stored.address, repeat, check, result)
    return NewCheck(position, repeat, check.check_id, address, result, passed_of(result))


def check_address(output_address: str, repeat: int, check: CompiledCheck, result: CheckResult) -> str:
    """The content address of an answer: what was checked, by which check, with which arguments."""
    arguments = {name: shown["value"] for name, shown in (result.resolved_arguments or {}).items()}
    source = None if check.error else check.source
    version = (result.metadata or {}).get("check_version")
    return address_of(output_address, repeat, check.check_type, version, arguments, source)


@task(name="run-checks", task_run_name="check {label}", cache_policy=NO_CACHE, persist_result=False)
async def run_checks_task(runtime: Runtime, batch: Batch, label: str) -> int:
    """`run_checks_of_batch` as a Prefect task run, named after the cases that it carries."""
    return await run_checks_of_batch(runtime, batch)
