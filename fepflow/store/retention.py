"""Retention: the runs that are old enough to be deleted, their deletion, and the erasure of a test case's content."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, Text, delete, func, select, type_coerce, update

from fepflow.errors import NotFoundError, UserError
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import USAGE
from fepflow.protocol.test_case import ERASED, TestCase
from fepflow.store.blobs import LargeOutputs
from fepflow.store.database import Database, Repository, indexable
from fepflow.store.records import (
    BASELINE,
    CASE,
    CHECK_RESULT,
    LABEL,
    OUTPUT,
    REPORT,
    RUN,
    TEST_CASE,
    UNDER_WAY,
    Baseline,
    RunRecord,
)
from fepflow.store.runs import SUMMARY, find_run

CASES_AT_ONCE = 500
"""Cases whose rows one transaction deletes: on SQLite nobody else can write meanwhile."""

PAGES_AT_ONCE = 2_000
"""Pages of a SQLite file that one transaction gives back."""

_KEPT_METADATA = ("check_id", "check_version", USAGE)


class Retention(Repository):
    """Deletion of runs in transactions that are short enough for others to write in between."""

    def __init__(self, database: Database, large_outputs: LargeOutputs) -> None:
        super().__init__(database)
        self._large_outputs = large_outputs

    def expired(
        self, before: datetime | None, keep_last: int, suite: str | None = None, *, labelled: bool = False
    ) -> list[RunRecord]:
        """Return the runs that may be deleted, oldest first: created `before` (None: whenever), and not among the
        newest `keep_last` of their suite.

        Runs that are under way or (part of) a baseline stay, and so do those with labels unless `labelled`.
        """
        place = func.row_number().over(partition_by=RUN.c.name, order_by=(RUN.c.created_at.desc(), RUN.c.id.desc()))
        ranked = select(RUN.c.id, place.label("place")).subquery()
        old = (
            select(RunRecord)
            .options(*SUMMARY)
            .join(ranked, ranked.c.id == RUN.c.id)
            .where(ranked.c.place > keep_last, RUN.c.status.not_in(UNDER_WAY))
            .order_by(RUN.c.created_at, RUN.c.id)
        )
        if before is not None:
            old = old.where(RUN.c.created_at < before)
        if suite is not None:
            old = old.where(RUN.c.name == suite)
        if not labelled:
            old = old.where(RUN.c.id.not_in(select(LABEL.c.run_id)))
        of_baselines = self._of_baselines()
        return [run for run in self._records(old) if run.id not in of_baselines]

    def require_deletable(self, run: RunRecord, *, labelled: bool) -> None:
        """Raise UserError for a run that is under way, a baseline, or has labels, unless those may go, too."""
        short = run.id[:8]
        if run.is_under_way:
            raise UserError(f"Run {short} is under way: cancel it first (fepflow cancel {short}).")
        if (baseline := self._of_baselines().get(run.id)) is not None:
            raise UserError(
                f"Run {short} is the baseline {baseline.name} of {baseline.suite}: remove that first (fepflow baseline "
                "remove)."
            )
        labels = self._scalar(select(func.count()).where(LABEL.c.run_id == run.id)) or 0
        if labels and not labelled:
            raise UserError(f"Run {short} has {labels:,} labels that people gave: --labels deletes them, too.")

    def _of_baselines(self) -> dict[str, Baseline]:
        return {
            run_id: baseline
            for baseline in self._records(select(Baseline))
            for run_id in (baseline.run_id, *baseline.others)
        }

    def delete_run(self, run_id: str) -> None:
        """Delete a finished run with all its rows. If that is interrupted, the run says so, and the next call
        continues.

        Raises NotFoundError, UserError if somebody executes the run or made it a baseline meanwhile.
        """

        def begin(connection: Connection) -> int:
            run = find_run(connection, run_id)
            if run.is_under_way or connection.scalar(select(BASELINE.c.name).where(BASELINE.c.run_id == run_id)):
                raise UserError(f"Run {run_id[:8]} is in use by now, and was not deleted.")
            # Who reads it from here on must not take its verdict for that of the rows that are left.
            gone = {"status": "cancelled", "outcome": None, "metrics": None, "verdict": None, "options": None}
            note = "its deletion was begun and is not complete: delete it again"
            connection.execute(update(RUN).where(RUN.c.id == run_id).values(**gone, error=note))
            return (connection.scalar(select(func.max(CASE.c.case_index)).where(CASE.c.run_id == run_id)) or 0) + 1

        for stop in range(self._database.write(begin), 0, -CASES_AT_ONCE):
            self._database.write(partial(_delete_cases, run_id=run_id, stop=stop))

        def end(connection: Connection) -> None:
            connection.execute(delete(LABEL).where(LABEL.c.run_id == run_id))
            connection.execute(delete(REPORT).where(REPORT.c.id == run_id))
            connection.execute(delete(RUN).where(RUN.c.id == run_id))

        self._database.write(end)

    def runs_with_case(self, case_id: str) -> list[RunRecord]:
        """Return the runs that have a test case with this id, the oldest first."""
        having = select(RunRecord).join(CASE, CASE.c.run_id == RUN.c.id).where(CASE.c.case_id == indexable(case_id))
        return self._records(having.order_by(RUN.c.created_at, RUN.c.id))

    def erase_case(self, case_id: str) -> int:
        """Erase what all runs hold of a test case: its input, expected value and metadata, outputs, the content of
        check results, labels and notes; and the stored test case of this id. Returns the number of runs.

        Whether its checks passed stays, so that verdicts and metrics remain those of their rows. Raises NotFoundError
        for an id that nothing has, UserError if a run with the case is under way.
        """
        runs = self.runs_with_case(case_id)
        if busy := next((run for run in runs if run.is_under_way), None):
            raise UserError(f"Run {busy.id[:8]} has the case and is under way: cancel it, or wait for its end.")

        def erase(connection: Connection) -> int:
            stored = connection.execute(delete(TEST_CASE).where(TEST_CASE.c.id == case_id)).rowcount
            erased = TestCase(id=case_id, input=None, metadata={ERASED: utc_now().isoformat()})
            rows = select(CASE.c.run_id, CASE.c.case_index).where(CASE.c.case_id == indexable(case_id))
            for run_id, case_index in connection.execute(rows).all():
                _erase(connection, run_id, case_index, erased)
            if not stored and not runs:
                raise NotFoundError(f"No run and no stored test case has the id {case_id!r}.")
            return len(runs)

        count = self._database.write(erase)
        self.delete_unused_blobs()
        self.give_back_space()  # the log of SQLite has the old rows until it is begun anew
        return count

    def erased_case(self, run_id: str) -> str | None:
        """Return the id of a test case of the run that was erased; None if none was."""
        text = type_coerce(CASE.c.data, Text)
        rows = select(CASE.c.case_id, CASE.c.data).where(CASE.c.run_id == run_id, text.contains(f'"{ERASED}"'))
        return next((row.case_id for row in self._rows(rows) if ERASED in (row.data.get("metadata") or {})), None)

    def delete_unused_blobs(self) -> int:
        """Delete the blobs of large outputs that no run uses any more, and return their number."""
        return self._large_outputs.delete_unused()

    def give_back_space(self) -> int:
        """Shorten a SQLite file by its free pages, and return by how many bytes. PostgreSQL's autovacuum does that."""
        if self._database.file is None:
            return 0
        before = self._database.file.stat().st_size
        with self._database.outside_transactions() as connection:
            free = 0
            while (left := connection.exec_driver_sql("PRAGMA freelist_count").scalar_one()) not in (0, free):
                free = left
                cursor = connection.connection.cursor()
                cursor.execute(f"PRAGMA incremental_vacuum({PAGES_AT_ONCE})")
                cursor.fetchall()  # each step gives back a page
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").all()
        return max(0, before - self._database.file.stat().st_size)


def _delete_cases(connection: Connection, run_id: str, stop: int) -> None:
    """Delete the cases before `stop` that one transaction takes; their outputs and results go with them."""
    these = CASE.c.run_id == run_id, CASE.c.case_index >= stop - CASES_AT_ONCE, CASE.c.case_index < stop
    connection.execute(delete(CASE).where(*these))
    left = select(func.count()).where(CASE.c.run_id == run_id).scalar_subquery()
    connection.execute(update(RUN).where(RUN.c.id == run_id).values(n_cases=left))


def _erase(connection: Connection, run_id: str, case_index: int, erased: TestCase) -> None:
    def at(table: Any) -> list[ColumnElement[bool]]:
        return [table.c.run_id == run_id, table.c.case_index == case_index]

    connection.execute(update(CASE).where(*at(CASE)).values(data=erased.model_dump()))
    # A hash of its own: nothing is to be found by what the output was.
    values = {"value": None, "output_id": None, "metadata": erased.metadata, "content_hash": uuid4().hex, "blob": None}
    connection.execute(update(OUTPUT).where(*at(OUTPUT)).values(**values))
    for row in connection.execute(select(CHECK_RESULT).where(*at(CHECK_RESULT))).mappings().all():
        key = [CHECK_RESULT.c[column.name] == row[column.name] for column in CHECK_RESULT.primary_key]
        bare = _bare(row["result"])
        connection.execute(update(CHECK_RESULT).where(*key).values(result=bare, content_hash=uuid4().hex))
    connection.execute(update(LABEL).where(*at(LABEL)).values(note=""))


def _bare(result: dict[str, Any]) -> dict[str, Any]:
    """Return a check's result with only its kind, its status and its figures."""
    kept = {name: result[name] for name in ("check_type", "status", "evaluated_at")}
    metadata = {name: value for name, value in (result.get("metadata") or {}).items() if name in _KEPT_METADATA}
    error = {**result["error"], "message": "erased"} if result.get("error") else None
    return {**kept, "results": _figures(result["results"]), "metadata": metadata, "error": error}


def _figures(results: dict[str, Any]) -> dict[str, Any]:
    inner = {name: _figures(value) if isinstance(value, dict) else value for name, value in results.items()}
    return {name: value for name, value in inner.items() if isinstance(value, bool | int | float | dict)}
