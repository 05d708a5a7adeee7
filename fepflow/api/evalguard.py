"""EvalGuard's API (EvalGuard 4.5): stored reports, and the present definitions in a folder."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fepflow.errors import InfrastructureError, InputError, Problem
from fepflow.evalguard.documents import FOLDERS, SUFFIXES, load_all_thresholds, load_tasks, validated
from fepflow.evalguard.models import Definition, Task, Thresholds
from fepflow.evalguard.report import Report, metrics_of
from fepflow.evalguard.validation import validate_catalogue
from fepflow.reports.evalguard import report_of_run
from fepflow.services.evalguard_reports import stored_report
from fepflow.store.records import ReportFilter, RunRecord, StoredReport
from fepflow.store.store import Store
from fepflow.tasks.local_run import STORE_WAIT

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
