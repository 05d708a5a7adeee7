"""Run the missing checks of a batch's outputs that call no model; `run_model_checks` runs the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from fepflow.asyncio_helpers import gather_or_raise
from fepflow.calls.models.client import ModelRequests
from fepflow.calls.models.model import RequestContext
from fepflow.calls.thread_pool import LOOKUPS
from fepflow.checks.core.compiled import CompiledCheck
from fepflow.checks.engine import YIELD_INTERVAL, run_checks
from fepflow.json.values import is_large
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import evaluation_context
from fepflow.store.records import NewCheckResult
from fepflow.store.result_rows import HASH, leave_out_large
from fepflow.tasks.batch_work import BatchWork, CaseOutput, PendingChecks
from fepflow.tasks.context import RunContext


async def run_checks_of_batch(context: RunContext, work: BatchWork) -> int:
    """Run the missing checks of a batch's outputs, and store a case's results together. Returns their number."""
    pending = work.pending(by_model=False)
    waiting = []
    last_yield = perf_counter()
    for output, checks in pending:
        # Users' checks may call ours that call models.
        requests = ModelRequests(context.models, RequestContext(repeat=output.unit[1]))
        results = run_checks(output.case, output.output, checks, requests)
        if isinstance(results, list):  # what is large is not looked at at once
            store_results(context, work, output, checks, results)
        else:
            waiting.append(_store_later(context, work, PendingChecks(output, checks), results))
        if perf_counter() - last_yield > YIELD_INTERVAL:
            await asyncio.sleep(0)
            last_yield = perf_counter()
    await gather_or_raise(waiting)
    await context.writer.committed()
    return sum(len(checks) for _, checks in pending)


async def _store_later(
    context: RunContext, work: BatchWork, pending: PendingChecks, running: Awaitable[list[CheckResult]]
) -> None:
    output, checks = pending
    results = await running
    if is_large(evaluation_context(output.case, output.output)):
        # A result's content hash is made of all that was checked.
        rows = await LOOKUPS.run(partial(_rows, output, checks, results))
        _store_rows(context, work, output, rows)
    else:
        store_results(context, work, output, checks, results)


def store_results(
    context: RunContext,
    work: BatchWork,
    output: CaseOutput,
    checks: Sequence[CompiledCheck],
    results: Sequence[CheckResult],
) -> None:
    """Store the results of checks of an output, in one transaction."""
    _store_rows(context, work, output, _rows(output, checks, results))


def _store_rows(context: RunContext, work: BatchWork, output: CaseOutput, rows: Sequence[NewCheckResult]) -> None:
    context.writer.add(checks=rows)
    if context.spans is not None:
        context.spans.add_results(output, [row.result for row in rows])
    passed = failed = errors = 0
    for row in rows:
        in_error = row.result.status == "error"
        work.add_result(output.case, output.unit, row.check_id, row.passed, in_error=in_error)
        passed += row.passed is True
        failed += row.passed is False
        errors += in_error
    context.count(checks=len(rows), passed=passed, failed=failed, errors=errors)


def _rows(output: CaseOutput, checks: Sequence[CompiledCheck], results: Sequence[CheckResult]) -> list[NewCheckResult]:
    small = leave_out_large(results, [check.check for check in checks])
    return [_row(output, check, result) for check, result in zip(checks, small, strict=True)]


def _row(output: CaseOutput, check: CompiledCheck, result: CheckResult) -> NewCheckResult:
    case_index, repeat = output.unit
    version = (result.metadata or {}).get("check_version", "")
    hashed = check_hash(output.content_hash, repeat, check, result.resolved_arguments, version)
    return NewCheckResult(case_index, repeat, check.check_id, hashed, result, result.passed)


def check_hash(
    output_hash: str, repeat: int, check: CompiledCheck, resolved: Mapping[str, Any] | None, version: str
) -> str:
    """Return the content hash of a check result: the checked content, the check, and its arguments."""
    shown = (resolved or {}).items()
    values = {name: argument.get("value", argument.get(HASH)) for name, argument in shown}
    arguments = {name: value for name, value in values.items() if value is not None}
    source = "" if check.error else check.source or ""
    return content_hash(output_hash, repeat, check.check_type, version, arguments, source)


@task(name="run-checks", task_run_name="check {label}", retries=0, cache_policy=NO_CACHE, persist_result=False)
async def run_checks_task(context: RunContext, work: BatchWork, label: str) -> int | State[int]:
    """`run_checks_of_batch` as a Prefect task run, named after its cases; Failed if a judged check failed."""
    results = await run_checks_of_batch(context, work)
    failed = work.failures(context.judged_checks, by_model=False)
    if failed is None:
        return results
    return (Failed if failed.judged else Completed)(message=failed.message, data=results)
