"""Run the checks of a batch that ask a model: a judge, or an embedding model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from checks.core.compiled import CompiledCheck
from checks.engine import failure_of
from fepflow.errors import InfrastructureError, RunLimitExceededError
from fepflow.llm.model_requests import ModelRequests
from fepflow.llm.request_context import RequestContext
from fepflow.protocol.context import Context, evaluation_context
from fepflow.protocol.results import CheckResult
from fepflow.security.redaction import words_of
from tasks.analysis.check_usage import BILL
from tasks.run.asyncio_helpers import gather_or_raise
from tasks.run.batches import Batch
from tasks.run.context import MAX_LABEL, RunContext
from tasks.run.failure_messages import failed_checks_message, listed_cases
from tasks.run.log import one_line, run_log
from tasks.run_checks import PendingChecks, pending_checks, store_results

DOWN = "circuit_open"


@dataclass(slots=True, eq=False)
class ModelCheckCall:
    """A check that asks a model, what that has cost so far, and the result, if there is one."""

    check: CompiledCheck
    request_context: RequestContext
    result: CheckResult | None = None

    @property
    def kind(self) -> str | None:
        """What the model has done wrong, see ModelError; None if it has not."""
        return ((self.result and self.result.metadata) or {}).get("model_error")

    @property
    def may_recover(self) -> bool:
        """Whether there is no answer, for a reason that another try may mend."""
        error = self.result.error if self.result else None
        return error is not None and error.recoverable and self.kind not in (None, DOWN)


@dataclass(frozen=True, slots=True)
class PendingRetry:
    """An output with checks whose model has had its attempts without an answer, and may answer another time."""

    output: PendingChecks
    asking: list[ModelCheckCall]


@dataclass(slots=True)
class ModelCheckResult:
    """What came of a batch: results, requests made for them, outputs to be tried again, and what was left out."""

    results: int = 0
    completed: int = 0
    requests: int = 0
    left_out: int = 0
    down: list[CheckResult] = field(default_factory=list, repr=False)
    troubled: list[PendingRetry] = field(default_factory=list)

    @property
    def from_cache(self) -> bool:
        """Whether all answers were there before."""
        return self.requests == 0 and self.completed == self.results > 0


async def ask_models(runtime: RunContext, batch: Batch) -> ModelCheckResult:
    """Ask the store which answers are there, ask the models for the others, store a case's answers whole.

    A check that may succeed later is not stored, but given back as trouble, while there are not too many. What the
    run's deadline or budget leaves out stays out.
    """
    asked = ModelCheckResult()
    missing = await pending_checks(runtime, batch, asking=True)
    await gather_or_raise(_ask_for(runtime, asked, output) for output in missing)
    runtime.left_out[batch] = asked.left_out
    await runtime.writer.committed()
    runtime.forget(batch)
    return asked


async def _ask_for(runtime: RunContext, asked: ModelCheckResult, output: PendingChecks) -> None:
    failure = failure_of(output.stored.output)
    if failure is not None:
        store_results(runtime, output, output.checks, [check.failed(failure) for check in output.checks])
        return
    asking = [ModelCheckCall(check, _request_context(runtime, check, output.repeat)) for check in output.checks]
    await ask(runtime, output, asking)
    asked.requests += sum(one.request_context.requests for one in asking)
    asked.left_out += sum(one.result is None for one in asking)
    troubled = [one for one in asking if one.may_recover]
    if troubled and runtime.may_escalate():
        runtime.escalations += 1
        asked.troubled.append(PendingRetry(output, troubled))
        asking = [one for one in asking if one not in troubled]
    asked.results += store_asked(runtime, output, asking)
    asked.completed += sum(one.result is not None and one.result.error is None for one in asking)
    asked.down += [one.result for one in asking if one.result is not None and one.kind == DOWN]


def _request_context(runtime: RunContext, check: CompiledCheck, repeat: int) -> RequestContext:
    assert check.asks is not None
    concurrency = max(1, runtime.defaults.places(check.asks) // runtime.share.shards)
    return RequestContext(runtime.caller.allowance, concurrency, repeat)


async def ask(runtime: RunContext, output: PendingChecks, asking: Sequence[ModelCheckCall]) -> None:
    """Run checks that ask models; what came of each is in its `result`, which stays as it is if none was asked."""
    context = evaluation_context(output.case, output.stored.output)
    await gather_or_raise(_answer(runtime, one, context) for one in asking)


async def _answer(runtime: RunContext, one: ModelCheckCall, context: Context) -> None:
    try:
        result = one.check.run(context, ModelRequests(runtime.models, one.request_context))
        one.result = result if isinstance(result, CheckResult) else await result
    except RunLimitExceededError:
        pass
    except InfrastructureError:
        raise
    except Exception as error:  # a fault of ours ends with its check, and the run goes on
        run_log().error("%s: %s", one.check.check_id, words_of(error))
        one.result = one.check.failed(error)


def store_asked(runtime: RunContext, output: PendingChecks, asking: Sequence[ModelCheckCall]) -> int:
    """Write down the results that there are, each with its bill; their number."""
    done = [(one, one.result) for one in asking if one.result is not None]
    for one, result in done:
        assert result.metadata is not None  # every result of ours has some
        result.metadata[BILL] = one.request_context.usage()
        if result.error is not None and one.kind not in (None, DOWN):
            name = one_line(output.case.id, MAX_LABEL)
            run_log().error("%s: %s gave no result: %s", name, one.check.check_id, result.error.message)
    if done:
        store_results(runtime, output, [one.check for one, _ in done], [result for _, result in done])
    return len(done)


@task(name="judge", task_run_name="judge {label}", retries=0, cache_policy=NO_CACHE, persist_result=False)
async def ask_models_task(runtime: RunContext, batch: Batch, label: str) -> ModelCheckResult | State[ModelCheckResult]:
    """`ask_models` as a Prefect task run, named after its cases, and Failed if some of them did."""
    asked = await ask_models(runtime, batch)
    told = []
    if asked.down:
        cause = asked.down[-1].error
        told.append(f"{len(asked.down)} checks are given up: {cause.message if cause else ''}.")
        told.append(f"`fepflow run --resume {runtime.run.id[:8]}` asks for them.")
    if failures := await failed_checks_message(runtime, batch, asking=True):
        told.append(failures)
    failed = bool(told)
    if asked.troubled:
        outputs = [trouble.output for trouble in asked.troubled]
        names = listed_cases([runtime.name_of(output.case, output.repeat) for output in outputs])
        told.append(f"Not judged yet, each gets a task run of its own: {names}.")
    if told:
        return (Failed if failed else Completed)(message=" ".join(told), data=asked)
    if asked.from_cache:
        return Completed(name="Cached", message="All answers were there from before.", data=asked)
    return asked
