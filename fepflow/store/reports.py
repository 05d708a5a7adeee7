"""EvalGuard reports: imported ones, whose id is the SHA-256 of their file, and those of runs, by their run's id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, delete, func, insert, nulls_first, or_, select

from fepflow.errors import NotFoundError
from fepflow.store.database import Repository, indexable, records, upserting
from fepflow.store.records import (
    REPORT,
    REPORT_METRIC,
    REPORTED_RUN,
    RUN,
    ReportFilter,
    RunRecord,
    StoredReport,
)

MIN_PREFIX = 4
MAX_NAME = 1_200
"""Letters of a task or a metric in the index by which its report is found, see `indexable`."""

_IS_IMPORTED = REPORT.c.id.not_in(select(REPORTED_RUN.c.run_id))


class Reports(Repository):
    """A repository of reports."""

    def add(self, reports: Sequence[StoredReport]) -> int:
        """Store new reports in one transaction; return their number."""
        ordered = sorted(reports, key=lambda report: report.id)
        return self._database.write(lambda connection: _insert(connection, ordered))

    def imported(self, name: str) -> StoredReport:
        """Return the imported report with this id, its beginning (4 characters or more), or the report's own id.

        Raises NotFoundError if there is none, or if it could be several.
        """
        table = REPORT.c
        begins_so = func.substr(table.id, 1, len(name)) == name
        matches_name = or_(table.report_id == name, begins_so) if len(name) >= MIN_PREFIX else table.report_id == name
        matches = self._records(select(StoredReport).where(matches_name, _IS_IMPORTED).order_by(table.id).limit(5))
        exact = [report for report in matches if report.id == name]
        if len(exact or matches) == 1:
            return (exact or matches)[0]
        if matches:
            ids = ", ".join(report.id[:16] for report in matches)
            raise NotFoundError(f"{name!r} could be any of the reports {ids}: write more characters of the id.")
        raise NotFoundError(f"There is no imported report {name!r}: `fepflow evalguard list` shows all reports.")

    def newest_imported(self, limit: int = 20, model_name: str | None = None) -> list[StoredReport]:
        """Return imported reports, newest imports first, of one model or all."""
        newest = _newest(ReportFilter(model_name=model_name)).where(_IS_IMPORTED)
        return self._records(newest.limit(limit))

    def get(self, name: str) -> StoredReport:
        """Return the report with this id, or the only one with this own id. Raises NotFoundError."""
        may_be_id = name.isascii() and name.isprintable()
        matches = self._records(select(StoredReport).where(REPORT.c.id == name)) if may_be_id else []
        matches = matches or self._records(select(StoredReport).where(REPORT.c.report_id == name).limit(2))
        if not matches:
            raise NotFoundError(f"There is no report {name!r}.")
        if len(matches) > 1:
            raise NotFoundError(f"Several reports call themselves {name!r}: name the one by its id in the list.")
        return matches[0]

    def find(self, wanted: ReportFilter, limit: int, offset: int) -> tuple[list[StoredReport], int]:
        """Return a page of the imported reports and those of runs, the newest first, and the number of all."""
        count = select(func.count()).select_from(REPORT).where(*_conditions(wanted))
        with self._database.reading() as connection:
            page = records(connection, _newest(wanted).limit(limit).offset(offset))
            return page, connection.scalar(count) or 0

    def models(self, model_source: str | None, limit: int, offset: int) -> tuple[list[tuple[str, str | None]], int]:
        """Return a page of the (name, source) of all models with reports, by name, and the number of all.

        Names are ordered by code points, on both databases.
        """
        name, source = REPORT.c.model_name, REPORT.c.model_source
        models = select(name, source).where(name.is_not(None)).group_by(name, source)
        if model_source is not None:
            models = models.where(source == model_source)
        in_order = [self._database.by_code_points(name), nulls_first(self._database.by_code_points(source))]
        page = models.order_by(*in_order)
        with self._database.reading() as connection:
            rows = connection.execute(page.limit(limit).offset(offset)).all()
            total = connection.scalar(select(func.count()).select_from(models.subquery()))
            return [(row[0], row[1]) for row in rows], total or 0

    def runs_to_report(self, limit: int) -> list[RunRecord]:
        """Return runs whose report is missing or outdated: they have a new verdict, or theirs no longer holds."""
        run, reported = RUN.c, REPORTED_RUN.c
        is_new = and_(reported.run_id.is_(None), run.outcome.is_not(None), run.completed_at.is_not(None))
        has_changed = and_(reported.run_id.is_not(None), reported.completed_at.is_distinct_from(run.completed_at))
        runs = select(RunRecord).outerjoin(REPORTED_RUN, run.id == reported.run_id).where(or_(is_new, has_changed))
        return self._records(runs.order_by(run.id).limit(limit))

    def set_run_reports(self, runs: Sequence[tuple[RunRecord, StoredReport | None]]) -> None:
        """Store the reports of runs, as they were read, in place of former ones; None for a run that has none."""
        ids = [run.id for run, _ in runs]
        reports = [report for _, report in runs if report is not None]
        reported = [{"run_id": run.id, "completed_at": run.completed_at} for run, _ in runs if run.outcome is not None]

        def replace(connection: Connection) -> None:
            connection.execute(delete(REPORT).where(REPORT.c.id.in_(ids)))
            connection.execute(delete(REPORTED_RUN).where(REPORTED_RUN.c.run_id.in_(ids)))
            _insert(connection, reports)
            if reported:
                connection.execute(upserting(connection, REPORTED_RUN).values(reported).on_conflict_do_nothing())

        self._database.write(replace)


def _conditions(wanted: ReportFilter) -> list[ColumnElement[bool]]:
    report, row = REPORT.c, REPORT_METRIC.c
    equal = {report.model_name: wanted.model_name, report.model_source: wanted.model_source}
    in_metrics = {row.task_ref: indexable(wanted.task_ref, MAX_NAME), row.metric: indexable(wanted.metric, MAX_NAME)}
    conditions = [column == text for column, text in equal.items() if text is not None]
    if rows := [column == text for column, text in in_metrics.items() if text is not None]:
        conditions.append(report.id.in_(select(row.report_id).where(*rows)))
    return conditions


def _newest(wanted: ReportFilter) -> Select[tuple[StoredReport]]:
    return select(StoredReport).where(*_conditions(wanted)).order_by(REPORT.c.imported_at.desc(), REPORT.c.id)


def _insert(connection: Connection, reports: Sequence[StoredReport]) -> int:
    """Store new reports, with the metrics by which they are found; return their number."""
    if not reports:
        return 0
    new = upserting(connection, REPORT).on_conflict_do_nothing().returning(REPORT.c.id)
    ids = set(connection.scalars(new, [report.values() for report in reports]))
    inserted = {report.id: report for report in reports if report.id in ids}  # the same one may be there twice
    if metrics := [row for report in inserted.values() for row in _metric_rows(report)]:
        connection.execute(insert(REPORT_METRIC), metrics)
    return len(ids)


def _metric_rows(report: StoredReport) -> list[dict[str, Any]]:
    from fepflow.evalguard.models import metrics_of  # only what writes a report needs its model

    return [
        {
            "report_id": report.id,
            "metric_index": index,
            "task_ref": indexable(task, MAX_NAME),
            "metric": indexable(metric, MAX_NAME),
        }
        for index, (task, metric, _) in enumerate(metrics_of(report.report))
    ]
