"""The evaluations contract as routes under `/api`: the envelope, its codes and its pagination."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request
from pydantic import Field
from starlette.responses import JSONResponse, Response

from fepflow.api.evaluations.bodies import (
    LINES,
    MAX_KEY,
    AddedTestCases,
    Code,
    Deleted,
    Envelope,
    ErrorEnvelope,
    Evaluation,
    Evaluations,
    Graders,
    NewEvaluation,
    NewGrader,
    NewTestCase,
    NewTestCases,
    Results,
    Status,
    StoredGrader,
    StoredTestCase,
    TestCases,
    read_cases,
    read_evaluation,
    read_grader,
    read_lines,
)
from fepflow.api.evaluations.check_pool import CheckPool
from fepflow.api.evaluations.check_process import Source
from fepflow.api.evaluations.service import EvaluationService
from fepflow.api.rest.http import (
    Admitted,
    Parameters,
    WholeNumber,
    documented,
    json_bytes,
    media_type,
    read_body,
    require_plain,
    strict_route,
)
from fepflow.errors import FepflowError, InvalidRequestError

_CODES: dict[int, Code] = {
    401: "UNAUTHENTICATED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    409: "CONFLICT",
    413: "TOO_LARGE",
    429: "RATE_LIMITED",
    503: "UNAVAILABLE",
}
_NOT_GIVEN: Any = None


class Page(Parameters):
    """A part of a list. A limit above the maximum counts as the maximum."""

    limit: WholeNumber = Field(50, ge=1, description="How many are wanted; at most 500 come.")
    skip: WholeNumber = Field(0, ge=0, description="After how many.")


class EvaluationsPage(Page):
    """A part of the evaluations, or of those with a status."""

    status: Status = _NOT_GIVEN


class ResultsPage(Page):
    """A part of the results."""

    limit: WholeNumber = Field(100, ge=1, description="How many are wanted; at most 1000 come.")


Id = Annotated[str, Path(min_length=1)]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="The same request again under the same key gives the evaluation that there is.",
        json_schema_extra={"type": "string", "pattern": f"^[!-~]{{1,{MAX_KEY}}}$"},
    ),
]


class AsciiResponse(JSONResponse):
    """JSON in ASCII, because agents' answers may contain lone surrogates, which no Unicode encoding has."""

    def render(self, content: Any) -> bytes:
        """Return the bytes of the body."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def evaluations_router(service: EvaluationService, pool: CheckPool) -> APIRouter:
    """Return the routes of the contract, of stored test cases and of graders; `pool` reads large bodies."""

    async def read(request: Request, body: Any) -> Any:
        if body is NewEvaluation:
            return await read_body(request, read_evaluation, pool)
        if body is NewGrader:  # its checks are made ready, which may take long
            return await pool.read(Source(read_grader, await json_bytes(request)))
        if media_type(request) in LINES:
            require_plain(request)
            return await pool.read(Source(read_lines, await request.body()))
        return await read_body(request, read_cases, pool)

    router = APIRouter(
        prefix="/api",
        tags=["Evaluations"],
        route_class=strict_route(read),
        responses=documented(ErrorEnvelope),
    )

    @router.post(
        "/evaluations",
        operation_id="createEvaluationRun",
        status_code=201,
        response_model=Envelope[Evaluation],
        responses={**_refused(409), **_links(201, "getEvaluationRun", "getEvaluationResults")},
    )
    def create(caller: Admitted, body: NewEvaluation, key: IdempotencyKey = None) -> Response:
        """Start the evaluation of an agent. The run continues after the answer."""
        return _done(service.create(caller, body, key), 201)

    @router.get("/evaluations", operation_id="listEvaluationRuns", response_model=Envelope[Evaluations])
    def evaluations(page: Annotated[EvaluationsPage, Query()]) -> Response:
        """Return the evaluations, newest first."""
        return _done(service.evaluations(min(page.limit, 500), page.skip, page.status))

    @router.get(
        "/evaluations/{id}",
        operation_id="getEvaluationRun",
        response_model=Envelope[Evaluation],
        responses=_refused(404),
    )
    def evaluation(id: Id) -> Response:
        """Return an evaluation and its progress."""
        return _done(service.get(id))

    @router.get(
        "/evaluations/{id}/results",
        operation_id="getEvaluationResults",
        response_model=Envelope[Results],
        responses=_refused(404),
    )
    def results(id: Id, page: Annotated[ResultsPage, Query()]) -> Response:
        """Return the results of an evaluation so far."""
        return _done(service.results(id, min(page.limit, 1000), page.skip))

    @router.post(
        "/test-cases",
        operation_id="addTestCases",
        status_code=201,
        response_model=Envelope[StoredTestCase | AddedTestCases],
        responses={**_refused(409), **_links(201, "getTestCase", "deleteTestCase")},
        openapi_extra={"requestBody": {"content": {kind: {"schema": {"type": "string"}} for kind in LINES}}},
    )
    def add_cases(body: NewTestCase | list[NewTestCase] | NewTestCases) -> Response:
        """Store one or several test cases: an object, a list, `{test_cases}`, or JSON lines. All are stored or none."""
        if isinstance(body, NewTestCase):
            return _done(service.add_cases([body.test_case()])[0], 201)
        assert isinstance(body, NewTestCases)  # `read_cases` makes one of a list
        added = service.add_cases([case.test_case() for case in body.test_cases])
        return _done({"test_cases": added, "count": len(added)}, 201)

    @router.get("/test-cases", operation_id="listTestCases", response_model=Envelope[TestCases])
    def cases(page: Annotated[Page, Query()]) -> Response:
        """Return the stored test cases, oldest first."""
        return _done(service.cases(min(page.limit, 500), page.skip))

    @router.get(
        "/test-cases/{id}",
        operation_id="getTestCase",
        response_model=Envelope[StoredTestCase],
        responses=_refused(404),
    )
    def case(id: Id) -> Response:
        """Return a stored test case."""
        return _done(service.case(id))

    @router.delete(
        "/test-cases/{id}",
        operation_id="deleteTestCase",
        response_model=Envelope[Deleted],
        responses=_refused(404),
    )
    def delete_case(id: Id) -> Response:
        """Delete a test case; evaluations keep their copies."""
        return _done(service.delete_case(id))

    @router.post(
        "/graders",
        operation_id="addGrader",
        status_code=201,
        response_model=Envelope[StoredGrader],
        responses={**_refused(409), **_links(201, "getGrader", "deleteGrader")},
    )
    def add_grader(body: NewGrader) -> Response:
        """Store a grader."""
        return _done(service.add_grader(body), 201)

    @router.get("/graders", operation_id="listGraders", response_model=Envelope[Graders])
    def graders(page: Annotated[Page, Query()]) -> Response:
        """Return the graders: the built-in ones, then the stored ones, oldest first."""
        return _done(service.graders(min(page.limit, 500), page.skip))

    @router.get(
        "/graders/{id}",
        operation_id="getGrader",
        response_model=Envelope[StoredGrader],
        responses=_refused(404),
    )
    def grader(id: Id) -> Response:
        """Return a grader, built in or stored."""
        return _done(service.grader(id))

    @router.delete(
        "/graders/{id}",
        operation_id="deleteGrader",
        response_model=Envelope[Deleted],
        responses=_refused(404, 409),
    )
    def delete_grader(id: Id) -> Response:
        """Delete a stored grader; evaluations keep their copies."""
        return _done(service.delete_grader(id))

    return router


def error_envelope(status: int, error: FepflowError) -> JSONResponse:
    """Return an error in the contract's envelope; for a bug in fepflow, it says no more than that."""
    message = str(error)
    if status >= 500:
        message = "The service is not available, try again later" if status == 503 else "Unexpected server error"
    code = _CODES.get(status, "INVALID_REQUEST" if status < 500 else "INTERNAL_ERROR")
    if isinstance(error, InvalidRequestError):
        code = error.code  # type: ignore[assignment]  # one of them
    return AsciiResponse({"success": False, "data": None, "error": {"code": code, "message": message}}, status)


def _done(data: Any, status: int = 200) -> Response:
    """Return the response. It is a model's form already, which FastAPI would refuse for a lone surrogate in a text."""
    return AsciiResponse({"success": True, "data": data, "error": None}, status)


def _refused(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return documented(ErrorEnvelope, *statuses, common=())


def _links(status: int, *operations: str) -> dict[int | str, dict[str, Any]]:
    """Return the follow-up requests for a created object in the document; its id is in the response."""
    links = {name: {"operationId": name, "parameters": {"id": "$response.body#/data/id"}} for name in operations}
    return {status: {"description": "Done.", "links": links}}
