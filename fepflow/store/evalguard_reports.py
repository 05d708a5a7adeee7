"""EvalGuard reports that were imported; the SHA-256 of its file is the id of each, so that none is there twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, func, or_, select

from fepflow.errors import NotFoundError
from fepflow.protocol.model import utc_now
from fepflow.store.database import Repository, upserting
from fepflow.store.tables import EVALGUARD_REPORT

MIN_PREFIX = 4
_ROWS_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class ImportedReport:
    """A report, as a document of EvalGuard 4.4, and the file that it came from.

    `report_id` is the id that it has itself, `evaluated_at` its date; `warnings` say what could not be taken as it was.
    """

    id: str
    source: str
    report_id: str | None
    model_name: str | None
    model_source: str | None
    evaluated_at: datetime | None
    tasks: list[str]
    report: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    imported_at: datetime = field(default_factory=utc_now)


class EvalguardReports(Repository):
    """Storing and finding imported reports."""

    def add_evalguard_reports(self, reports: Sequence[ImportedReport]) -> int:
        """Store those that are not there yet, in one transaction; how many those were."""
        rows = [asdict(report) for report in sorted(reports, key=lambda report: report.id)]

        def insert(connection: Connection) -> int:
            added = 0
            for start in range(0, len(rows), _ROWS_AT_ONCE):
                new = upserting(connection, EVALGUARD_REPORT).values(rows[start : start + _ROWS_AT_ONCE])
                added += len(connection.execute(new.on_conflict_do_nothing().returning(EVALGUARD_REPORT.c.id)).all())
            return added

        return self._database.write(insert) if rows else 0

    def evalguard_report(self, name: str) -> ImportedReport:
        """The report with this id, its beginning (4 characters or more), or the id that the report itself has.

        Raises NotFoundError if there is none, or if it could be several.
        """
        table = EVALGUARD_REPORT.c
        begins_so = func.substr(table.id, 1, len(name)) == name
        is_it = or_(table.report_id == name, begins_so) if len(name) >= MIN_PREFIX else table.report_id == name
        found = self._reports(select(EVALGUARD_REPORT).where(is_it).order_by(table.id).limit(5))
        exact = [report for report in found if report.id == name]
        if len(exact or found) == 1:
            return (exact or found)[0]
        if found:
            ids = ", ".join(report.id[:16] for report in found)
            raise NotFoundError(f"{name!r} could be any of the reports {ids}: write more characters of the id.")
        raise NotFoundError(f"There is no imported report {name!r}: `fepflow evalguard list` shows those there are.")

    def evalguard_reports(self, limit: int = 20, model_name: str | None = None) -> list[ImportedReport]:
        """The reports that were imported last first, of one model where it is named."""
        table = EVALGUARD_REPORT.c
        newest = select(EVALGUARD_REPORT).order_by(table.imported_at.desc(), table.id).limit(limit)
        return self._reports(newest if model_name is None else newest.where(table.model_name == model_name))

    def _reports(self, statement: Select[Any]) -> list[ImportedReport]:
        with self._database.reading() as connection:
            return [ImportedReport(**row) for row in connection.execute(statement).mappings()]
