"""EvalGuard reports in the store: import and look-up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fepflow.errors import InputError, NotFoundError, Problem
from fepflow.evalguard.documents import find_documents
from fepflow.evalguard.models import Report
from fepflow.evalguard.report_reader import read_report, report_document
from fepflow.services.run_service import open_store
from fepflow.store.records import StoredReport
from fepflow.store.store import Store

_FILES_AT_ONCE = 100

OnFile = Callable[[Path, Sequence[str]], None]


@dataclass
class ImportSummary:
    """Counts of new, existing and bad reports; `skipped` files are not reports."""

    added: int = 0
    known: int = 0
    skipped: int = 0
    bad: list[Problem] = field(default_factory=list)


def import_reports(store: Store, paths: Sequence[Path], on_warnings: OnFile) -> ImportSummary:
    """Store the reports of files and folders, a hundred in a transaction. Existing reports do not change.

    A bad file is noted, and the others are imported. `on_warnings` is called with the warnings of a report. Raises
    InputError, before anything is stored, for a path that does not exist.
    """
    summary = ImportSummary()
    files = list(_files(paths, summary))
    for start in range(0, len(files), _FILES_AT_ONCE):
        read = []
        for path, is_named in files[start : start + _FILES_AT_ONCE]:
            try:
                document = report_document(path)
                if document is None and not is_named:
                    summary.skipped += 1
                    continue
                read_one = read_report(path, document)
            except InputError as error:
                summary.bad += error.problems
                continue
            if read_one.warnings:
                on_warnings(path, read_one.warnings)
            read.append(stored_report(read_one.content_hash, str(path), read_one.report, warnings=read_one.warnings))
        added = store.reports.add(read)
        summary.added += added
        summary.known += len(read) - added
    return summary


def _files(paths: Sequence[Path], summary: ImportSummary) -> Iterator[tuple[Path, bool]]:
    """Yield each file, and whether it was named or found in a folder."""
    missing = [path for path in paths if not path.exists()]
    if missing:
        raise InputError([Problem("there is no such file or folder", str(path)) for path in missing])
    for path in paths:
        if not path.is_dir():
            yield path, True
            continue
        documents = find_documents(path)
        summary.bad += documents.problems
        yield from ((file, False) for file in sorted([*documents.files, *documents.ignored]))


def stored_report(report_id: str, source: str, report: Report, **fields: Any) -> StoredReport:
    """Return a report in its stored form, under a unique id; `fields` are further columns of the store."""
    context = report.context
    return StoredReport(
        id=report_id,
        source=source,
        report_id=report.id,
        model_name=context.model_name if context else None,
        model_source=context.model_source if context else None,
        evaluated_at=_time(context.date) if context and context.date is not None else None,
        tasks=list(dict.fromkeys(task.task_ref for task in report.tasks or () if task.task_ref is not None)),
        report=report.to_json(),
        **fields,
    )


def _time(seconds: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def find_report(name: Path) -> tuple[Report, list[str]]:
    """Return the report in a file, or the imported one with this id, with the warnings of reading it."""
    if name.exists():
        read = read_report(name)
        return read.report, read.warnings
    with open_store() as store:
        try:
            stored = store.reports.imported(str(name))
        except NotFoundError as error:
            raise NotFoundError(f"There is no file {name}. {error}") from None
    return Report.model_validate(stored.report), stored.warnings
