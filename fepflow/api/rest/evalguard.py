"""EvalGuard's API (EvalGuard 4.5). Its schema is what the document of ours says of it."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BeforeValidator, Field, ValidationError
from starlette.responses import JSONResponse

from fepflow.api.evalguard import Catalogue, EvalguardApi
from fepflow.api.rest.errors import type_of
from fepflow.api.rest.request import (
    Parameters,
    WholeNumber,
    bounded_body,
    invalid_field,
    media_type,
    require_plain,
    strict_route,
)
from fepflow.documents.loader import read_document
from fepflow.errors import FepflowError, UserError
from fepflow.evalguard.documents import schema_path
from fepflow.json.values import loads
from fepflow.store.store import Store
from fepflow.text import brief, printable

MAX_BODY = 65_536
"""Bytes of a request's body: four filters of 1,000 characters, escaped, are less."""

PATHS = ("/reports", "/thresholds", "/models", "/tasks")
"""Below them, errors are EvalGuard's."""

_CODES = {400: "bad_request", 413: "too_large", 429: "rate_limited", 500: "internal_error", 503: "unavailable"}
_NOT_GIVEN: Any = None


def _json_number(value: Any) -> Any:
    """Return a whole number of JSON: 20.0 counts, and true does not."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if type(value) is int else None


Text = Annotated[str, Field(max_length=1_000, pattern=r"^[^\x00-\x1f\x7f]*$")]
Ids = Annotated[str, Field(max_length=4_000, pattern=r"^[A-Za-z0-9_-]+(,[A-Za-z0-9_-]+)*$")]
JsonNumber = Annotated[int, BeforeValidator(_json_number)]


class Page(Parameters):
    """A part of a list."""

    limit: WholeNumber = Field(20, ge=1, le=100)
    offset: WholeNumber = Field(0, ge=0, le=2**31 - 1)


class _Source(Parameters):
    model_source: Text = _NOT_GIVEN


class ModelsPage(Page, _Source):
    """A part of the models, or of those from one source."""


class _Filters(Parameters):
    model_name: Text = _NOT_GIVEN
    model_source: Text = _NOT_GIVEN
    task_ref: Text = _NOT_GIVEN
    metric: Text = _NOT_GIVEN


class ReportsPage(Page, _Filters):
    """A part of the reports that have all of this."""


class ReportQuery(ReportsPage):
    """The same as a body."""

    limit: JsonNumber = Field(20, ge=1, le=100)
    offset: JsonNumber = Field(0, ge=0, le=2**31 - 1)


class ThresholdsQuery(Parameters):
    """Tasks, and metrics of theirs."""

    tasks: Ids
    metrics: Ids = _NOT_GIVEN


class EvalguardResponse(JSONResponse):
    """JSON in ASCII, so that texts of whatever characters can be sent."""

    def render(self, content: Any) -> bytes:
        """Return the bytes of the body."""
        try:
            return json.dumps(content, allow_nan=False).encode()
        except ValueError:  # metadata of a report may hold what JSON has no word for
            return json.dumps(_finite(content), allow_nan=False).encode()


def evalguard_router(catalogue: Catalogue, store: Store) -> APIRouter:
    """Return the routes; `operations` describes them."""
    api = EvalguardApi(catalogue, store)
    router = APIRouter(
        prefix="/v1",
        route_class=strict_route(_read_query),
        default_response_class=EvalguardResponse,
        include_in_schema=False,
    )

    @router.get("/reports", response_model=None)
    def list_reports(page: Annotated[ReportsPage, Query()]) -> Any:
        return api.reports(**page.model_dump(exclude_none=True))

    @router.post("/reports", response_model=None)
    def query_reports(body: ReportQuery) -> Any:
        return api.reports(**body.model_dump(exclude_none=True))

    @router.get("/reports/{report_id}", response_model=None)
    def get_report(report_id: str) -> Any:
        return api.report(report_id)

    @router.get("/reports/{report_id}/metrics", response_model=None)
    def get_report_metrics(report_id: str) -> Any:
        return api.report_metrics(report_id)

    @router.get("/thresholds", response_model=None)
    def get_thresholds(wanted: Annotated[ThresholdsQuery, Query()]) -> Any:
        return api.thresholds(tasks=wanted.tasks, metrics=wanted.metrics)

    @router.get("/models", response_model=None)
    def list_models(page: Annotated[ModelsPage, Query()]) -> Any:
        return api.models(limit=page.limit, offset=page.offset, model_source=page.model_source)

    @router.get("/tasks", response_model=None)
    def list_tasks(page: Annotated[Page, Query()]) -> Any:
        return api.tasks(limit=page.limit, offset=page.offset)

    return router


def evalguard_error(status: int, error: FepflowError) -> Response:
    """Return an error as EvalGuard's API has it."""
    code = _CODES.get(status) or type_of(status, error)
    return EvalguardResponse({"error": {"code": code, "message": str(error)}}, status)


async def _read_query(request: Request, _: Any) -> ReportQuery:
    """Return the fields of a JSON object. Raises UserError for another value or other fields."""
    if media_type(request) != "application/json":
        raise UserError("The body must be JSON: send the header Content-Type: application/json.")
    require_plain(request)
    body = await bounded_body(request, MAX_BODY, f"The body has more than {MAX_BODY:,} bytes.")
    try:
        fields = loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        reason = "it nests too deep" if isinstance(error, RecursionError) else brief(str(error))
        raise UserError(f"The body is not valid JSON in UTF-8: {printable(reason)}.") from None
    if not isinstance(fields, dict):
        raise UserError("The body must be a JSON object.")
    try:
        return ReportQuery.model_validate(fields)
    except ValidationError as error:
        raise UserError(invalid_field("field", error.errors(), list(ReportQuery.model_fields))) from None


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def operations() -> dict[str, Any]:
    """Return the paths of the schema with their operations, everything that they refer to in its place."""
    paths = _document("api.schema.yaml")["paths"]
    return {f"/v1{path}": _inlined(operations, "api.schema.yaml") for path, operations in paths.items()}


@cache
def _document(name: str) -> Any:
    return read_document(schema_path(name.removesuffix(".schema.yaml")), name).data


def _inlined(node: Any, file: str) -> Any:
    """Return a part of a file without references, and without what names a schema as a document of its own."""
    if isinstance(node, list):
        return [_inlined(item, file) for item in node]
    if not isinstance(node, dict):
        return node
    if isinstance(ref := node.get("$ref"), str):
        name, _, pointer = ref.partition("#")
        target = _document(name or file)
        for step in pointer.split("/")[1:]:
            target = target[step]
        return _inlined(target, name or file)
    return {key: _inlined(value, file) for key, value in node.items() if key not in ("$schema", "$id", "$defs")}
