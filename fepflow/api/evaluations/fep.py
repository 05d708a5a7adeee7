"""Evaluations of existing outputs for other programs (FEP 5), carried out here, stored, and found; and runs that they
request, which continue without their caller (operations, FEP 5.2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Self
from uuid import UUID, uuid4

from pydantic import BaseModel, Field

from fepflow.access.caller import Caller
from fepflow.analysis.comparison import suite_hash
from fepflow.analysis.recorded_runs import new_run, record_run
from fepflow.api.evaluations.check_pool import CheckPool, Reading
from fepflow.api.evaluations.check_process import ChecksHere, Place, Source, Tell, bare, places_of, types_here
from fepflow.api.evaluations.requests import EvaluationRequest
from fepflow.calls.models.client import ModelClient, ModelRequests
from fepflow.calls.models.model import RequestContext
from fepflow.checks.core.checked_output import case_result
from fepflow.checks.engine import run_result
from fepflow.documents.loader import Document
from fepflow.errors import InputError, NotFoundError, TooLargeError, UserError
from fepflow.protocol.check import to_check
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import EvaluationRunResult, ExperimentMetadata, TestCaseResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.reports.fep import run_parts
from fepflow.settings import settings
from fepflow.store.records import OPERATION, NewOutput, RunRecord, RunRequest, RunStatus
from fepflow.store.store import Store
from fepflow.store.writer import StoredResponseCache
from fepflow.suite.reader import read_suite
from fepflow.tasks.local_run import STORE_WAIT
from fepflow.text import brief, printable
from fepflow.verdict.pass_rule import SampleResult, judge_samples, outcome_of

CAUSE: Literal["evaluate"] = "evaluate"
NAME = "evaluate"
"""Name of an evaluation whose request names no experiment."""
AT_ONCE = 16
"""Evaluations that ask models, or run checks of others, at once; others wait."""
MAX_SECONDS = 300
"""Longest time that an evaluation may take."""


class Pending(BaseModel):
    """An evaluation under way, which has no result yet."""

    evaluation_id: str
    status: Literal["pending", "running"]
    completed_test_cases: int = Field(ge=0)
    total_test_cases: int = Field(ge=0)


@dataclass(frozen=True, slots=True)
class EvaluationProgress:
    """Progress of an evaluation: the result of the last finished test case, and at the end the whole result."""

    evaluation_id: str
    status: Literal["running", "completed"]
    completed_test_cases: int
    total_test_cases: int
    result: TestCaseResult | None = None
    final_result: EvaluationRunResult | None = None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """An evaluation under way: its request, and the checks that do not run in the pool."""

    id: str
    reading: Reading
    work: asyncio.Task[None]
    places_here: list[Place]
    caller: Caller


class FepService:
    """Service of the REST and gRPC interfaces of FEP. Open it in the event loop in which it is used."""

    def __init__(self, store: Store, pool: CheckPool) -> None:
        self._store = store
        self.pool = pool
        self._models = ModelClient(StoredResponseCache(store))
        self._slots = asyncio.Semaphore(AT_ONCE)

    @classmethod
    @asynccontextmanager
    async def open(cls, store: Store) -> AsyncIterator[Self]:
        """Return the service, over an open store."""
        await asyncio.to_thread(types_here)  # loads the checks, which would hold up the first request
        async with CheckPool.open() as pool:
            service = cls(store, pool)
            async with service._models:
                yield service

    async def begin(self, source: Source[EvaluationRequest], caller: Caller) -> Evaluation:
        """Read a request, and start its checks. Raises InputError with all mistakes, TooLargeError."""
        types = types_here()
        reading, work = await self.pool.begin(source, types)
        here = list(places_of(reading.request, lambda check_type: check_type in types))
        return Evaluation(uuid4().hex, reading, work, here, caller)

    async def evaluate(self, source: Source[EvaluationRequest], caller: Caller) -> EvaluationRunResult:
        """Check the outputs and store the results. Raises InfrastructureError when they cannot be stored."""
        return await self._evaluate(await self.begin(source, caller), None)

    async def stream(self, evaluation: Evaluation) -> AsyncIterator[EvaluationProgress]:
        """Evaluate, and yield each finished test case. Raises as `evaluate` does, after earlier yields."""
        evaluation_id, total = evaluation.id, len(evaluation.reading.request.test_cases)
        told: asyncio.Queue[TestCaseResult | None] = asyncio.Queue()
        yield EvaluationProgress(evaluation_id, "running", 0, total)
        task = asyncio.create_task(self._evaluate(evaluation, told.put_nowait))
        task.add_done_callback(lambda _: told.put_nowait(None))
        try:
            done = 0
            while (result := await told.get()) is not None:
                done += 1
                yield EvaluationProgress(evaluation_id, "running", done, total, result)
            yield EvaluationProgress(evaluation_id, "completed", total, total, final_result=await task)
        finally:
            task.cancel()

    async def ping(self) -> None:
        """Raise InfrastructureError if the store is unavailable."""
        await asyncio.to_thread(self._store.check)

    async def find(self, evaluation_id: str) -> EvaluationRunResult | Pending:
        """Return an evaluation by its id: its result, or its progress. Raises NotFoundError."""
        result = await self.find_json(evaluation_id)
        if isinstance(result, Pending):
            return result
        return await asyncio.to_thread(lambda: EvaluationRunResult.model_validate_json("".join(result)))

    async def find_json(self, evaluation_id: str) -> Iterator[str] | Pending:
        """Find an evaluation. Its result comes as pieces of JSON, which are read from the store one by one."""
        run = await asyncio.to_thread(self.run, evaluation_id)
        if run.is_under_way:
            return await asyncio.to_thread(self._pending, run)
        return self._stored_parts(run)

    def run(self, evaluation_id: str) -> RunRecord:
        """Return the run of an evaluation, by its whole id, with or without hyphens. Blocks. Raises NotFoundError."""
        run_id = canonical(evaluation_id)
        run = self._store.runs.get(run_id)
        if run.id != run_id:
            raise NotFoundError(f"There is no evaluation {evaluation_id[:100]!r}.")
        return run

    async def _evaluate(self, evaluation: Evaluation, tell: Tell | None) -> EvaluationRunResult:
        started_at = utc_now()
        try:
            async with asyncio.timeout(MAX_SECONDS):
                results = await self._results(evaluation, tell)
        except TimeoutError:
            advice = "send fewer test cases at a time, or run a suite"
            raise TooLargeError(f"The evaluation takes longer than {MAX_SECONDS} s: {advice}.") from None
        request = evaluation.reading.request
        run = await asyncio.to_thread(self._record, evaluation, results, started_at)
        metadata = _metadata(run, request.unknown)
        return run_result(run.id, results, run.started_at or started_at, request.experiment, run.completed_at, metadata)

    async def _results(self, evaluation: Evaluation, tell: Tell | None) -> list[TestCaseResult]:
        reading = evaluation.reading
        if tell is not None:
            reading.results.tell(tell)
        try:
            await self._run_here(evaluation)
            await evaluation.work
        finally:
            evaluation.work.cancel()
        return reading.results.all()

    async def _run_here(self, evaluation: Evaluation) -> None:
        if not evaluation.places_here:
            return
        async with self._slots:
            requests = ModelRequests(self._models, RequestContext())
            reading = evaluation.reading
            await ChecksHere(reading.request, requests, reading.results.put).run(evaluation.places_here)

    def _record(self, evaluation: Evaluation, results: Sequence[TestCaseResult], started_at: datetime) -> RunRecord:
        request = evaluation.reading.request
        run = new_run(CAUSE, name_of(request), request.checks, started_at, run_id=evaluation.id)
        run.suite["evaluate"] = asked(request, evaluation.caller)
        samples = [_sample(*item) for item in enumerate(results)]
        verdict = judge_samples(samples, 1, "case", 1.0)
        # A large evaluation holds SQLite for seconds, on a busy machine for more: what was checked must not be lost.
        record_run(self._store.waiting(STORE_WAIT), run, request.cases_with_checks(), samples, verdict)
        return self._store.runs.get(run.id)

    def _pending(self, run: RunRecord) -> Pending:
        done = self._store.results.progress(run.id).outputs
        return Pending(
            evaluation_id=run.id,
            status="pending" if run.status == "pending" else "running",
            completed_test_cases=done,
            total_test_cases=run.calls,
        )

    def _stored_parts(self, run: RunRecord) -> Iterator[str]:
        asked = self._asked(run)
        if asked is None:
            yield from run_parts(self._store, run)
            return
        counted: list[TestCaseResult] = []
        yield '{"results":['
        for stored in self._store.results.by_case(run.id):
            if stored.output is not None:
                result = case_result(bare(stored.case), stored.output, stored.checks)
                yield f"{',' if counted else ''}{result.model_dump_json()}"
                counted.append(result.model_copy(update={"check_results": []}))  # what its summary takes is enough
        experiment = None if asked["experiment"] is None else ExperimentMetadata.model_validate(asked["experiment"])
        started_at, metadata = run.started_at or run.created_at, _metadata(run, asked["unknown"])
        whole = run_result(run.id, counted, started_at, experiment, run.completed_at, metadata)
        yield f"],{whole.model_dump_json(exclude={'results'})[1:]}"

    def _asked(self, run: RunRecord) -> dict[str, Any] | None:
        """Return what `asked` kept of a complete evaluation, carried out here or as an operation."""
        asked: dict[str, Any] | None = None
        if run.cause == CAUSE:
            asked = run.suite["evaluate"]
        elif run.is_requested and run.status == "completed":
            with suppress(NotFoundError):  # another interface may have requested it
                asked = self._store.requests.get(OPERATION, run.id)[1].request
        return asked


def name_of(request: EvaluationRequest) -> str:
    """Return the name of an evaluation's run, which is that of its experiment."""
    return (request.experiment and request.experiment.name) or NAME


def asked(request: EvaluationRequest, caller: Caller) -> dict[str, Any]:
    """Return the parts of a request to keep, besides its test cases, outputs and checks."""
    experiment = request.experiment
    return {
        "experiment": None if experiment is None else experiment.model_dump(),
        "unknown": request.unknown,
        "caller": caller.name,
    }


def canonical(evaluation_id: str) -> str:
    """Return the id in the store's form. Raises NotFoundError for ids that no evaluation can have."""
    try:
        return UUID(evaluation_id).hex
    except ValueError:
        raise NotFoundError(f"There is no evaluation {evaluation_id[:100]!r}.") from None


def _sample(index: int, result: TestCaseResult) -> SampleResult:
    checks = result.check_results
    return SampleResult(index, 0, result.execution_context.output, checks, outcome_of(checks))


def _metadata(run: RunRecord, unknown: Sequence[str]) -> dict[str, Any]:
    """Return fepflow's additions to a result: the verdict, whether all checks passed, and unknown members."""
    warnings = {"warnings": [f"{name} is not known and was left out" for name in unknown]} if unknown else {}
    return {"outcome": run.outcome, "verdict": run.verdict, "metrics": run.metrics, **warnings}


def request_run(
    store: Store,
    document: dict[str, Any],
    cases: Sequence[TestCase],
    *,
    kind: str,
    caller: Caller,
    idempotency_key: str | None,
    request: dict[str, Any],
    details: dict[str, Any] | None = None,
    outputs: Sequence[Output] | None = None,
) -> RunRecord:
    """Create a pending run of test cases with different ids, and return it; all of it is stored, or nothing.

    `document` is a suite without test cases, whose target is an HTTP address, or nothing where there are `outputs`,
    one for each case: these are stored with the run, which only checks them. `request` is what the caller has asked:
    the same again under the same `idempotency_key` gives the run that there is, another is a ConflictError. `details`
    are stored beside it. `kind` is the interface. Raises InputError for an invalid suite.
    """
    document = {**document, "test_cases": []}
    if outputs is not None:
        document["target"] = {"given": {}}
    loaded = read_suite(Document(document, "the request", ""), Path.cwd(), {})
    if errors := [problem for problem in loaded.problems if problem.severity == "error"]:
        raise InputError(errors)
    run = RunRecord(
        id=uuid4().hex,
        name=document["name"],
        suite=document,
        repeats=1,
        tags=list(document.get("tags", [])),
        suite_hash=suite_hash(document, 1, Path()),
        cause="network",
        takeovers_left=settings().takeovers,
    )
    key = None if idempotency_key is None else unique_key(kind, caller, idempotency_key)
    asked = RunRequest(
        run_id=run.id,
        kind=kind,
        caller=caller.name,
        idempotency_key=key,
        request_hash=content_hash(request),
        request={**request, **(details or {})},
        created_at=utc_now(),
    )
    return store.requests.create(run, cases, asked, _rows(cases, outputs or ()))


def unique_key(kind: str, caller: Caller, idempotency_key: str) -> str:
    """Return an idempotency key, which is a caller's own, among those of all callers and interfaces."""
    return content_hash(kind, caller.name, idempotency_key)


def _rows(cases: Sequence[TestCase], outputs: Sequence[Output]) -> list[NewOutput]:
    return [
        NewOutput(index, 0, content_hash("given", case.id, output.model_dump()), output)
        for index, (case, output) in enumerate(zip(cases, outputs, strict=bool(outputs)))
    ]


OperationStatus = Literal["pending", "running", "completed", "failed", "cancelled"]

STATUSES: dict[OperationStatus, Sequence[RunStatus]] = {
    "pending": ("pending",),
    "running": ("running",),
    "completed": ("completed",),
    "failed": ("failed", "interrupted"),
    "cancelled": ("cancelled",),
}
"""Statuses of runs, by that of their operation. An interrupted run has failed to those who wait for its result."""


MAX_NAME = 150
"""Characters of a run's name; an experiment's may be longer."""


def start_operation(store: Store, request: EvaluationRequest, caller: Caller, idempotency_key: str | None) -> RunRecord:
    """Request a run of these outputs, which a flow run executes. The same key returns the earlier request's run.

    Blocks. Raises ConflictError for a key of another request.
    """
    document = {
        # As it is shown in Prefect; a reference to a variable would be one to a suite's reader.
        "name": brief(printable(name_of(request)).replace("${", "$ {"), MAX_NAME),
        "checks": [to_check(check).model_dump() for check in request.checks],
        "tags": [OPERATION],
    }
    run = request_run(
        store,
        document,
        request.cases_with_checks(),
        kind=OPERATION,
        caller=caller,
        idempotency_key=idempotency_key,
        request={"content": content_hash(request.model_dump())},
        details=asked(request, caller),
        outputs=request.outputs,
    )
    return store.requests.operation(run.id)


def find_operation(store: Store, operation_id: str) -> RunRecord:
    """Return an operation. Blocks. Raises NotFoundError."""
    try:
        return store.requests.operation(canonical(operation_id))
    except NotFoundError:
        raise NotFoundError(f"There is no operation {operation_id[:100]!r}.") from None


def cancel_operation(store: Store, operation_id: str) -> bool:
    """Ask an operation to stop, which takes seconds. Returns False if it is over. Blocks. Raises NotFoundError."""
    operation = find_operation(store, operation_id)
    try:
        store.runs.request_cancel(operation.id)
    except NotFoundError:
        raise
    except UserError:  # it is over
        return False
    return True


def status_of(operation: RunRecord) -> OperationStatus:
    """Return FEP's status of an operation's run."""
    return next(status for status, statuses in STATUSES.items() if operation.status in statuses)
