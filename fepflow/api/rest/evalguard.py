"""EvalGuard's API (EvalGuard 4.5). Its schema is what the document of ours says of it."""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BeforeValidator, Field, ValidationError
from starlette.responses import JSONResponse

from fepflow.api.rest.http import (
    Parameters,
    WholeNumber,
    bounded_body,
    invalid_field,
    media_type,
    require_plain,
    strict_route,
    type_of,
)
from fepflow.documents.loader import read_document
from fepflow.errors import FepflowError, InfrastructureError, InputError, Problem, UserError
from fepflow.evalguard.documents import FOLDERS, SUFFIXES, load_all_thresholds, load_tasks, schema_path, validated
from fepflow.evalguard.models import Definition, Report, Task, Thresholds, metrics_of
from fepflow.evalguard.validation import validate_catalogue
from fepflow.json.values import loads
from fepflow.reports.evalguard import report_of_run
from fepflow.services.evalguard_reports import stored_report
from fepflow.store.records import ReportFilter, RunRecord, StoredReport
from fepflow.store.store import Store
from fepflow.tasks.local_run import STORE_WAIT
from fepflow.text import brief, printable

logger = logging.getLogger("fepflow.evalguard")
_SHOWN = 20

Fingerprint = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class CatalogueContent:
    """Tasks and thresholds by the task's id, in the order of the ids."""

    tasks: dict[str, Task] = field(default_factory=dict)
    thresholds: dict[str, Thresholds] = field(default_factory=dict)


class Catalogue:
    """The folders `tasks`, `metrics`, `thresholds` and `policies` of a folder; without a folder there are no
    definitions.

    Thread-safe. While a file is invalid, the last valid content is served, and the log has the problem.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._fingerprint: Fingerprint | None = None
        self._content: CatalogueContent | None = CatalogueContent() if folder is None else None

    def current(self) -> CatalogueContent:
        """Return the content of the files. Raises InfrastructureError if they cannot be read, and never could."""
        if self._folder is not None:
            with self._lock:
                self._refresh(self._folder)
        if self._content is None:
            raise InfrastructureError("EvalGuard's definitions cannot be read: the log of the server says why.")
        return self._content

    def _refresh(self, folder: Path) -> None:
        fingerprint = _fingerprint(folder)
        if fingerprint == self._fingerprint:
            return
        self._fingerprint = fingerprint
        try:
            self._content = _load(folder)
        except InputError as error:
            effect = "none are served" if self._content is None else "those read before are served"
            problems = "\n".join(str(problem) for problem in error.problems[:_SHOWN])
            logger.error("EvalGuard's definitions in %s cannot be read, %s:\n%s", folder, effect, problems)


def _fingerprint(folder: Path) -> Fingerprint:
    """Return the documents with the times of their last changes and their sizes."""
    paths = sorted(path for name in FOLDERS for path in (folder / name).rglob("*") if path.name.endswith(SUFFIXES))
    documents = []
    for path in paths:
        with suppress(OSError):  # a link to nothing counts once it leads to a file
            status = path.stat()
            documents.append((str(path), status.st_mtime_ns, status.st_size))
    return tuple(documents)


def _load(folder: Path) -> CatalogueContent:
    present = [folder / name for name in FOLDERS if (folder / name).is_dir()]
    if not present:
        names = ", ".join(FOLDERS)
        raise InputError(Problem(f"has none of the folders {names}", str(folder), advice="FEPFLOW_EVALGUARD_FOLDER"))
    if errors := validate_catalogue(present).errors:
        raise InputError(errors)
    tasks = load_tasks(folder) if folder / "tasks" in present else {}
    has_thresholds = not {folder / "thresholds", folder / "policies"}.isdisjoint(present)
    thresholds = load_all_thresholds(folder) if has_thresholds else {}
    return CatalogueContent(dict(sorted(tasks.items())), dict(sorted(thresholds.items())))


_RUNS_AT_ONCE = 50


class EvalguardApi:
    """Answers in the form of EvalGuard's API schema. Every method blocks while it reads, and raises FepflowError."""

    def __init__(self, catalogue: Catalogue, store: Store) -> None:
        self._catalogue = catalogue
        self._store = store

    def reports(self, *, limit: int, offset: int, **wanted: str) -> dict[str, Any]:
        """Return a page of the reports that match (see ReportFilter), the newest first."""
        update_run_reports(self._store)
        page, total = self._store.reports.find(ReportFilter(**wanted), limit, offset)
        return {"reports": [_served(report) for report in page], **_pagination(limit, offset, total)}

    def report(self, report_id: str) -> dict[str, Any]:
        """Return the report with this id, or the only one with this own id. Raises NotFoundError."""
        return _served(self._report(report_id))

    def report_metrics(self, report_id: str) -> dict[str, Any]:
        """Return the metrics of a report that have a value. Raises NotFoundError."""
        report = self._report(report_id)
        metrics = [
            {**({} if task is None else {"task_ref": task}), "metric": metric, **fields}
            for task, metric, fields in metrics_of(report.report)
            if metric is not None
        ]
        return {"report_id": report.id, "metrics": metrics}

    def thresholds(self, *, tasks: str, metrics: str | None = None) -> dict[str, Any]:
        """Return the thresholds of tasks, all or those of some metrics; ids are separated by commas."""
        known = self._catalogue.current().thresholds
        wanted = [known[task] for task in dict.fromkeys(tasks.split(",")) if task in known]
        documents = _documents(wanted)
        if metrics is not None:
            names = metrics.split(",")
            for document in documents:
                ranges = document["thresholds"]
                document["thresholds"] = {name: ranges[name] for name in ranges if name in names}
        return {"thresholds": [document for document in documents if document["thresholds"]]}

    def models(self, *, limit: int, offset: int, model_source: str | None = None) -> dict[str, Any]:
        """Return a page of the models that have reports, by name."""
        update_run_reports(self._store)
        page, total = self._store.reports.models(model_source, limit, offset)
        models = [{"model_name": name, **({} if source is None else {"model_source": source})} for name, source in page]
        return {"models": models, **_pagination(limit, offset, total)}

    def tasks(self, *, limit: int, offset: int) -> dict[str, Any]:
        """Return a page of the defined tasks, by id."""
        tasks = list(self._catalogue.current().tasks.values())
        return {"tasks": _documents(tasks[offset : offset + limit]), **_pagination(limit, offset, len(tasks))}

    def _report(self, report_id: str) -> StoredReport:
        update_run_reports(self._store)
        return self._store.reports.get(report_id)


def update_run_reports(store: Store) -> None:
    """Give each run of a suite with a task its report once it has a verdict, and a new one after it was resumed.

    A reader waits for a store that another process holds, as runs do.
    """
    store = store.waiting(STORE_WAIT)
    while runs := store.reports.runs_to_report(_RUNS_AT_ONCE):
        store.reports.set_run_reports([(run, _report_of(run)) for run in runs])


def _report_of(run: RunRecord) -> StoredReport | None:
    if run.outcome is None or not run.suite.get("task"):
        return None
    report, errors = validated(Report, report_of_run(run))
    if report is None or errors:
        logger.error("run %s has no report: %s", run.id, "; ".join(error.message for error in errors))
        return None
    return stored_report(run.id, run.suite_path or run.name, report, imported_at=run.completed_at)


def _served(report: StoredReport) -> dict[str, Any]:
    """Return the document under its unique id; its own id, which may not be unique, is kept in the metadata."""
    document = {**report.report, "id": report.id}
    if report.report_id not in (None, report.id):
        document["metadata"] = {"report_id": report.report_id, **(report.report.get("metadata") or {})}
    return document


def _documents(definitions: Sequence[Definition]) -> list[dict[str, Any]]:
    return [definition.model_dump(mode="json", exclude_none=True) for definition in definitions]


def _pagination(limit: int, offset: int, total: int) -> dict[str, Any]:
    return {"pagination": {"total": total, "limit": limit, "offset": offset, "has_more": offset + limit < total}}


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
