"""Run the missing checks of a batch's outputs: those that call no model, then those that call one, such as a judge."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed
from prefect.tasks import exponential_backoff

from fepflow.asyncio_helpers import gather_or_raise, task_result
from fepflow.calls.models.client import ModelRequests
from fepflow.calls.models.model import RequestContext
from fepflow.calls.thread_pool import LOOKUPS
from fepflow.checks.core.checked_output import YIELD_INTERVAL, failure_of, reads_only_completed_steps, run_checks
from fepflow.checks.core.compiled import CompiledCheck
from fepflow.errors import InfrastructureError, RunLimitExceededError
from fepflow.json.values import is_large
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.results import USAGE, CheckResult
from fepflow.protocol.test_case import Context, evaluation_context
from fepflow.security.redaction import words_of
from fepflow.store.large_arguments import HASH, leave_out_large
from fepflow.store.records import NewCheckResult
from fepflow.tasks.batches import MAX_LABEL, BatchWork, CaseOutput, PendingChecks, listed_cases
from fepflow.tasks.call_target import FIRST_PAUSE, JITTER, RETRYABLE, longest_pause, may_retry
from fepflow.tasks.context import RunContext
from fepflow.tasks.flow_state import run_log
from fepflow.text import one_line


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


DOWN = "circuit_open"

RETRIES = 2
"""Prefect's, after the first try of the task run."""


@dataclass(slots=True, eq=False)
class ModelCheckCall:
    """A check that calls a model, its usage so far, and the result, if there is one."""

    check: CompiledCheck
    request_context: RequestContext
    result: CheckResult | None = None

    @property
    def kind(self) -> str | None:
        """The kind of the model's error, see ModelError, or None."""
        return ((self.result and self.result.metadata) or {}).get("model_error")

    @property
    def may_recover(self) -> bool:
        """True if there is no response, for a reason that a retry may fix."""
        error = self.result.error if self.result else None
        return error is not None and error.recoverable and self.kind not in (None, DOWN)


@dataclass(frozen=True, slots=True)
class PendingRetry:
    """An output with checks whose model did not respond, but may respond to a retry."""

    output: CaseOutput
    calls: list[ModelCheckCall]


@dataclass(slots=True)
class ModelCheckResult:
    """The result of a batch: results, their requests, outputs to retry, and checks that were not run."""

    results: int = 0
    completed: int = 0
    requests: int = 0
    left_out: int = 0
    down: list[CheckResult] = field(default_factory=list, repr=False)
    to_retry: list[PendingRetry] = field(default_factory=list)

    @property
    def from_cache(self) -> bool:
        """True if all responses came from the cache."""
        return self.requests == 0 and self.completed == self.results > 0


async def run_model_checks(context: RunContext, work: BatchWork) -> ModelCheckResult:
    """Call the models for the missing checks of a batch's outputs, and store a case's results together.

    A check that may succeed later is not stored, but returned in `to_retry`, if there are not too many. Checks that the
    run's deadline or budget excludes are not run.
    """
    result = ModelCheckResult()
    await gather_or_raise(_run_output_checks(context, work, result, pending) for pending in work.pending(by_model=True))
    context.left_out[work.batch] = result.left_out
    await context.writer.committed()
    return result


async def _run_output_checks(
    context: RunContext, work: BatchWork, result: ModelCheckResult, pending: PendingChecks
) -> None:
    output, ready = pending
    failure = failure_of(output.output)
    if failure is not None:
        ready = [check for check in pending.checks if reads_only_completed_steps(check.check, output.output)]
        others = [check for check in pending.checks if check not in ready]
        store_results(context, work, output, others, [check.failed(failure) for check in others])
    calls = [ModelCheckCall(check, _request_context(context, check, output.unit[1])) for check in ready]
    await run_calls(context, output, calls)
    result.requests += sum(call.request_context.requests for call in calls)
    result.left_out += sum(call.result is None for call in calls)
    to_retry = [call for call in calls if call.may_recover]
    if to_retry and context.may_escalate():
        context.escalations += 1
        result.to_retry.append(PendingRetry(output, to_retry))
        calls = [call for call in calls if call not in to_retry]
    result.results += store_model_results(context, work, output, calls)
    result.completed += sum(call.result is not None and call.result.error is None for call in calls)
    result.down += [call.result for call in calls if call.result is not None and call.kind == DOWN]


def _request_context(context: RunContext, check: CompiledCheck, repeat: int) -> RequestContext:
    assert check.model_kind is not None
    concurrency = max(1, context.defaults.concurrency(check.model_kind) // context.shard_spec.shards)
    return RequestContext(context.target_client.budget, concurrency, repeat)


async def run_calls(context: RunContext, output: CaseOutput, calls: Sequence[ModelCheckCall]) -> None:
    """Run model checks, and set the `result` of each, unless no model was called."""
    check_context = evaluation_context(output.case, output.output)
    await gather_or_raise(_run_check(context, call, check_context) for call in calls)


async def _run_check(context: RunContext, call: ModelCheckCall, check_context: Context) -> None:
    try:
        result = call.check.run(check_context, ModelRequests(context.models, call.request_context))
        call.result = result if isinstance(result, CheckResult) else await result
    except RunLimitExceededError:
        pass
    except InfrastructureError:
        raise
    except Exception as error:  # a fault of ours ends with its check, and the run goes on
        run_log().error("%s: %s", call.check.check_id, words_of(error))
        call.result = call.check.failed(error)


def store_model_results(
    context: RunContext, work: BatchWork, output: CaseOutput, calls: Sequence[ModelCheckCall]
) -> int:
    """Store the results so far, each with its usage; return their number."""
    done = [(call, call.result) for call in calls if call.result is not None]
    for call, result in done:
        assert result.metadata is not None  # every result of ours has some
        result.metadata[USAGE] = call.request_context.usage()
        if result.error is not None and call.kind not in (None, DOWN):
            name = one_line(output.case.id, MAX_LABEL)
            run_log().error("%s: %s gave no result: %s", name, call.check.check_id, result.error.message)
    if done:
        store_results(context, work, output, [call.check for call, _ in done], [result for _, result in done])
    return len(done)


@task(name="judge", task_run_name="judge {label}", retries=0, cache_policy=NO_CACHE, persist_result=False)
async def run_model_checks_task(
    context: RunContext, work: BatchWork, label: str
) -> ModelCheckResult | State[ModelCheckResult]:
    """`run_model_checks` as a Prefect task run, named after its cases; Failed if a judged check failed."""
    result = await run_model_checks(context, work)
    sentences = []
    if result.down:
        cause = result.down[-1].error
        sentences.append(f"{len(result.down)} checks are given up: {cause.message if cause else ''}.")
        sentences.append(f"`fepflow run --resume {context.run.id[:8]}` asks for them.")
    failed = bool(sentences)
    if failures := work.failures(context.judged_checks, by_model=True):
        sentences.append(failures.message)
        failed = failed or failures.judged
    if result.to_retry:
        outputs = [pending.output for pending in result.to_retry]
        names = listed_cases([work.name_of(output.case, output.unit[1]) for output in outputs])
        sentences.append(f"Not judged yet, each gets a task run of its own: {names}.")
    if sentences:
        return (Failed if failed else Completed)(message=" ".join(sentences), data=result)
    if result.from_cache:
        return Completed(name="Cached", message="All answers were there from before.", data=result)
    return result


async def retry_model_checks(context: RunContext, work: BatchWork, pending: PendingRetry) -> None:
    """Retry in a separate task run until there is a response or no retry is left; then store the outcome."""
    output = pending.output
    label = work.name_of(output.case, output.unit[1])
    await task_result(judge_case_task(context, pending, label, return_state=True))
    store_model_results(context, work, output, pending.calls)
    await context.writer.committed()


async def retry_calls(context: RunContext, pending: PendingRetry) -> None:
    """Run the checks that have no response yet; each model call makes one request."""
    waiting = [call for call in pending.calls if call.may_recover]
    for call in waiting:
        call.request_context.retry = False
    await run_calls(context, pending.output, waiting)


@task(
    name="judge-case",
    task_run_name="judge case {label}",
    retries=RETRIES,
    retry_delay_seconds=exponential_backoff(FIRST_PAUSE),
    retry_jitter_factor=JITTER,
    retry_condition_fn=may_retry,
    cache_policy=NO_CACHE,
    persist_result=False,
)
async def judge_case_task(context: RunContext, pending: PendingRetry, label: str) -> State[Any]:
    """`retry_calls` as a Prefect task run, named after its case."""
    await retry_calls(context, pending)
    failed = [call for call in pending.calls if call.result is not None and call.result.error is not None]
    requests = sum(call.request_context.requests for call in pending.calls)
    if not failed:
        return Completed(message=f"{label}: answered, after {requests} requests.")
    budget = context.target_client.budget
    in_time = budget.left() > longest_pause() and not budget.ended
    another = in_time and any(call.may_recover for call in failed)
    error = failed[0].result.error if failed[0].result else None
    return Failed(
        message=f"{label}: {failed[0].check.check_id}, after {requests} requests: {error.message if error else ''}",
        data=RETRYABLE if another else None,
    )
