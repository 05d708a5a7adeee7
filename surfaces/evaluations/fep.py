"""Evaluations of outputs that exist, as other programs ask for them (FEP 5): carried out here, stored, and found."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Self
from uuid import UUID, uuid4

from checks.core.compiled import CompiledCheck
from checks.core.data_checks import REQUEST, CaseChecks
from checks.engine import case_result, case_results, run_result
from checks.models.defaults import CheckDefaults
from fepflow.errors import NotFoundError, TooLargeError
from fepflow.llm.client import ModelClient
from fepflow.llm.model_requests import ModelRequests
from fepflow.llm.request_context import RequestContext
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import EvaluationRunResult, ExperimentMetadata, TestCaseResult
from fepflow.protocol.test_case import TestCase
from fepflow.settings import settings
from fepflow.store.operations import OPERATION
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.verdict.pass_rule import SampleResult, judge_samples, outcome_of
from fepflow.verdict.verdict import Verdict
from surfaces.access.caller import Caller
from surfaces.evaluations.requests import EvaluationRequest
from surfaces.reports.fep import run_parts
from tasks.run.response_cache import StoredResponseCache
from tasks.store_results import new_run, record_run

CAUSE: Literal["evaluate"] = "evaluate"
NAME = "evaluate"
"""Of an evaluation whose request names no experiment."""
AT_ONCE = 16
"""Evaluations that are carried out at once; others wait."""
MAX_SECONDS = 300
"""That one may take."""

ProgressStatus = Literal["running", "completed", "failed"]


@dataclass(frozen=True, slots=True)
class EvaluationProgress:
    """How far an evaluation is: `result` is that of the test case just done, `final_result` is there at the end."""

    evaluation_id: str
    status: ProgressStatus
    completed_test_cases: int
    total_test_cases: int
    result: TestCaseResult | None = None
    final_result: EvaluationRunResult | None = None


@dataclass(frozen=True, slots=True)
class Pending:
    """An evaluation that is not over, and how much of it is there."""

    evaluation_id: str
    status: Literal["pending", "running"]
    completed_test_cases: int
    total_test_cases: int


class FepService:
    """What the REST and gRPC interfaces of FEP have in common. Open it in the event loop that it is used in."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._models = ModelClient(StoredResponseCache(store))
        self._slots = asyncio.Semaphore(AT_ONCE)

    @classmethod
    @asynccontextmanager
    async def open(cls, store: Store) -> AsyncIterator[Self]:
        """The service, over a store that stays open."""
        service = cls(store)
        async with service._models:
            yield service

    async def evaluate(self, request: EvaluationRequest, caller: Caller) -> EvaluationRunResult:
        """Check the outputs and store the results. Raises InfrastructureError when they cannot be stored."""
        return await self._evaluate(uuid4().hex, request, caller, None)

    async def stream(self, request: EvaluationRequest, caller: Caller) -> AsyncIterator[EvaluationProgress]:
        """As `evaluate`, telling of each test case as it is done. Raises as it does, after what was told."""
        evaluation_id, total = uuid4().hex, len(request.test_cases)
        told: asyncio.Queue[TestCaseResult | None] = asyncio.Queue()
        yield EvaluationProgress(evaluation_id, "running", 0, total)
        evaluation = asyncio.create_task(self._evaluate(evaluation_id, request, caller, told.put_nowait))
        evaluation.add_done_callback(lambda _: told.put_nowait(None))
        try:
            done = 0
            while (result := await told.get()) is not None:
                done += 1
                yield EvaluationProgress(evaluation_id, "running", done, total, result)
            yield EvaluationProgress(evaluation_id, "completed", total, total, final_result=await evaluation)
        finally:
            evaluation.cancel()

    async def ping(self) -> None:
        """Raises InfrastructureError if the store is unavailable."""
        await asyncio.to_thread(self._store.now)

    async def find(self, evaluation_id: str) -> EvaluationRunResult | Pending:
        """An evaluation by its id: its result, or how far it is. Raises NotFoundError."""
        run = await asyncio.to_thread(self.run, evaluation_id)
        if run.status in ("pending", "running"):
            return await asyncio.to_thread(self._pending, run)
        return await asyncio.to_thread(self._stored, run)

    def run(self, evaluation_id: str) -> RunRecord:
        """The run that an evaluation is: its whole id, with or without hyphens. Blocks. Raises NotFoundError."""
        run_id = canonical(evaluation_id)
        run = self._store.run(run_id)
        if run.id != run_id:
            raise NotFoundError(f"There is no evaluation {evaluation_id[:100]!r}.")
        return run

    async def _evaluate(
        self,
        evaluation_id: str,
        request: EvaluationRequest,
        caller: Caller,
        tell: Callable[[TestCaseResult], None] | None,
    ) -> EvaluationRunResult:
        async with self._slots:
            started_at = utc_now()
            requests = ModelRequests(self._models, RequestContext())
            try:
                async with asyncio.timeout(MAX_SECONDS):
                    results = await case_results(_with_checks(request), requests, tell)
            except TimeoutError:
                advice = "send fewer test cases at a time, or run a suite"
                raise TooLargeError(f"The evaluation takes longer than {MAX_SECONDS} s: {advice}.") from None
            verdict = judge_samples([_sample(*item) for item in enumerate(results)], 1, "case", 1.0)
            run = await asyncio.to_thread(self._record, evaluation_id, request, caller, results, verdict, started_at)
        metadata = _metadata(run, request.unknown)
        return run_result(run.id, results, run.started_at or started_at, request.experiment, run.completed_at, metadata)

    def _record(
        self,
        evaluation_id: str,
        request: EvaluationRequest,
        caller: Caller,
        results: Sequence[TestCaseResult],
        verdict: Verdict,
        started_at: datetime,
    ) -> RunRecord:
        run = new_run(CAUSE, name_of(request), request.checks, started_at, run_id=evaluation_id)
        run.suite["evaluate"] = asked(request, caller)
        samples = [_sample(*item) for item in enumerate(results)]
        record_run(self._store, run, request.cases_with_checks(), samples, verdict)
        return self._store.run(run.id)

    def _pending(self, run: RunRecord) -> Pending:
        done = self._store.progress(run.id).outputs
        return Pending(run.id, "pending" if run.status == "pending" else "running", done, run.calls)

    def _stored(self, run: RunRecord) -> EvaluationRunResult:
        given = self._asked(run)
        if given is None:
            return EvaluationRunResult.model_validate_json("".join(run_parts(self._store, run)))
        results = [
            case_result(_bare(result.case), result.output, result.checks)
            for result in self._store.results(run.id)
            if result.output is not None
        ]
        experiment = None if given["experiment"] is None else ExperimentMetadata.model_validate(given["experiment"])
        metadata = _metadata(run, given["unknown"])
        return run_result(run.id, results, run.started_at or run.created_at, experiment, run.completed_at, metadata)

    def _asked(self, run: RunRecord) -> dict[str, Any] | None:
        """What `asked` said of an evaluation that is whole: of one carried out here, or as an operation."""
        found: dict[str, Any] | None = None
        if run.cause == CAUSE:
            found = run.suite["evaluate"]
        elif run.is_requested and run.status == "completed":
            with suppress(NotFoundError):  # another interface may have requested it
                found = self._store.requested_run(OPERATION, run.id)[1].request
        return found


def name_of(request: EvaluationRequest) -> str:
    """What an evaluation's run is called: as its experiment."""
    return (request.experiment and request.experiment.name) or NAME


def asked(request: EvaluationRequest, caller: Caller) -> dict[str, Any]:
    """What is kept of a request beside its test cases, outputs and checks."""
    experiment = request.experiment
    return {
        "experiment": None if experiment is None else experiment.model_dump(),
        "unknown": request.unknown,
        "caller": caller.name,
    }


def canonical(evaluation_id: str) -> str:
    """The id as the store has it. Raises NotFoundError for what no evaluation can have."""
    try:
        return UUID(evaluation_id).hex
    except ValueError:
        raise NotFoundError(f"There is no evaluation {evaluation_id[:100]!r}.") from None


def _with_checks(request: EvaluationRequest) -> list[tuple[TestCase, Any, list[CompiledCheck]]]:
    """Each test case with its output and checks. One that may not ask its model is an error, as is an unknown one."""
    case_checks = CaseChecks(CheckDefaults(), (), settings().allowed_models, from_data=True, source=REQUEST)
    shared = case_checks.compiled(request.checks)
    taken = [check.check_id for check in shared]
    found = []
    for index, (case, output) in enumerate(zip(request.test_cases, request.outputs, strict=True)):
        own = request.own_checks(index)
        found.append((_bare(case), output, [*(case_checks.compiled(own, taken) if own else ()), *shared]))
    return found


def _bare(case: TestCase) -> TestCase:
    """A test case as FEP 4.1 has it in results, without checks."""
    if case.checks is None:
        return case
    return TestCase.model_validate({name: getattr(case, name) for name in case.model_fields_set - {"checks"}})


def _sample(index: int, result: TestCaseResult) -> SampleResult:
    checks = result.check_results
    return SampleResult(index, 0, result.execution_context.output, checks, outcome_of(checks))


def _metadata(run: RunRecord, unknown: Sequence[str]) -> dict[str, Any]:
    """What fepflow adds to a result: the verdict, that all checks pass, and members that were not known."""
    warnings = {"warnings": [f"{name} is not known and was left out" for name in unknown]} if unknown else {}
    return {"outcome": run.outcome, "verdict": run.verdict, "metrics": run.metrics, **warnings}
