"""Run the checks that a batch's outputs still lack, those that call no model; `run_model_checks` runs the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial
from time import perf_counter
from typing import NamedTuple

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from fepflow.calls.thread_pool import LOOKUPS
from fepflow.checks.core.compiled import CompiledCheck
from fepflow.checks.engine import YIELD_INTERVAL, run_checks
from fepflow.json.limits import is_large
from fepflow.models.model_requests import ModelRequests
from fepflow.models.request_context import RequestContext
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.context import evaluation_context
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import TestCase
from fepflow.store.large_arguments import HASH, leave_out_large
from fepflow.store.records import NewCheckResult, StoredOutput
from fepflow.tasks.run.asyncio_helpers import gather_or_raise
from fepflow.tasks.run.batches import Batch
from fepflow.tasks.run.context import RunContext
from fepflow.tasks.run.failure_messages import failed_checks


class PendingChecks(NamedTuple):
    """An output, and checks whose results are not there."""

    case: TestCase
    case_index: int
    repeat: int
    stored: StoredOutput
    checks: Sequence[CompiledCheck]


async def pending_checks(context: RunContext, batch: Batch, *, by_model: bool) -> list[PendingChecks]:
    """Which checks the outputs of a batch lack, of those that call a model, or of the others."""
    store, run = context.store, context.run
    first, last = batch.case_range(run.repeats)
    cases, present = await asyncio.gather(
        context.cases(batch),
        asyncio.to_thread(store.results.present_checks, run.id, first, last),
    )
    missing: dict[tuple[int, int], list[CompiledCheck]] = {}
    for case_index, repeat in batch.units(run.repeats):
        checks = context.checks_for(cases[case_index - first], by_model=by_model)
        if ready := [check for check in checks if (case_index, repeat, check.check_id) not in present]:
            missing[case_index, repeat] = ready
    outputs = await asyncio.to_thread(store.results.outputs, run.id, first, last) if missing else {}
    return [
        PendingChecks(cases[unit[0] - first], *unit, outputs[unit], checks)
        for unit, checks in missing.items()
        if unit in outputs  # else it is tried again, or was left out
    ]


async def run_checks_of_batch(context: RunContext, batch: Batch) -> int:
    """Read from the store which results are there, run the other checks, store a case's results whole; their number."""
    missing = await pending_checks(context, batch, by_model=False)
    waiting = []
    last_yield = perf_counter()
    for output in missing:
        context.at_work = output.case.id
        # Users' checks may call ours that call models.
        requests = ModelRequests(context.models, RequestContext(repeat=output.repeat))
        results = run_checks(output.case, output.stored.output, output.checks, requests)
        if isinstance(results, list):  # what is large is not looked at at once
            _store_rows(context, _rows(output, output.checks, results))
        else:
            waiting.append(_store_later(context, output, results))
        if perf_counter() - last_yield > YIELD_INTERVAL:
            await asyncio.sleep(0)
            last_yield = perf_counter()
    await gather_or_raise(waiting)
    await context.writer.committed()
    context.forget(batch)
    return sum(len(output.checks) for output in missing)


async def _store_later(context: RunContext, output: PendingChecks, results: Awaitable[list[CheckResult]]) -> None:
    found = await results
    if is_large(evaluation_context(output.case, output.stored.output)):
        # A result's content hash is made of all that was checked.
        rows = await LOOKUPS.run(partial(_rows, output, output.checks, found))
        _store_rows(context, rows)
    else:
        store_results(context, output, output.checks, found)


def store_results(
    context: RunContext, output: PendingChecks, checks: Sequence[CompiledCheck], results: Sequence[CheckResult]
) -> None:
    """Store the results of checks of an output, in one transaction."""
    _store_rows(context, _rows(output, checks, results))


def _store_rows(context: RunContext, rows: Sequence[NewCheckResult]) -> None:
    context.writer.add(checks=rows)
    context.count(
        checks=len(rows),
        passed=sum(row.passed is True for row in rows),
        failed=sum(row.passed is False for row in rows),
        errors=sum(row.result.status == "error" for row in rows),
    )


def _rows(
    output: PendingChecks, checks: Sequence[CompiledCheck], results: Sequence[CheckResult]
) -> list[NewCheckResult]:
    small = leave_out_large(results, [check.check for check in checks])
    return [_row(output, check, result) for check, result in zip(checks, small, strict=True)]


def _row(output: PendingChecks, check: CompiledCheck, result: CheckResult) -> NewCheckResult:
    hashed = check_hash(output.stored.content_hash, output.repeat, check, result)
    return NewCheckResult(output.case_index, output.repeat, check.check_id, hashed, result, result.passed)


def check_hash(output_hash: str, repeat: int, check: CompiledCheck, result: CheckResult) -> str:
    """The content hash of a check result: what was checked, by which check, with which arguments."""
    shown = (result.resolved_arguments or {}).items()
    values = {name: argument.get("value", argument.get(HASH)) for name, argument in shown}
    arguments = {name: value for name, value in values.items() if value is not None}
    source = "" if check.error else check.source or ""
    version = (result.metadata or {}).get("check_version", "")
    return content_hash(output_hash, repeat, check.check_type, version, arguments, source)


@task(name="run-checks", task_run_name="check {label}", retries=0, cache_policy=NO_CACHE, persist_result=False)
async def run_checks_task(context: RunContext, batch: Batch, label: str) -> int | State[int]:
    """`run_checks_of_batch` as a Prefect task run, named after its cases: Failed if a check is that the gate judges."""
    results = await run_checks_of_batch(context, batch)
    failed = await failed_checks(context, batch, by_model=False)
    if failed is None:
        return results
    return (Failed if failed.judged else Completed)(message=failed.message, data=results)
