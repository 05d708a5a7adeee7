"""Lookup of a run's cases, and of their checks, by id and by outcome; none of their data is read."""

from __future__ import annotations

from typing import Any, Literal

from sqlalchemy import Integer, case, func, or_, select, true

from fepflow.store.column_types import SHORTEST_CUT, indexable
from fepflow.store.database import Repository
from fepflow.store.records import FailedCheck
from fepflow.store.runs import taken_in
from fepflow.store.tables import CASE, CHECK_RESULT, OUTPUT

FailureKind = Literal["failed", "error"]

CUT_CASE = case((func.length(CASE.c.case_id, type_=Integer) >= SHORTEST_CUT, CASE.c.data)).label("cut_case")
"""Beside the column of ids: the case as JSON, where its id may have been cut; else None."""


class CaseLookup(Repository):
    """Indices of cases in runs, counted from 0."""

    def failed_case_indices(
        self, run_id: str, check_id: str | None = None, kind: FailureKind | None = None
    ) -> list[int]:
        """The indices of cases with a result that did not pass, in order; of one check, of one kind, or all.

        An error is a call without an answer, too, unless one check is asked for.
        """
        of_kind = {"failed": CHECK_RESULT.c.passed.is_(False), "error": CHECK_RESULT.c.status == "error"}
        checks = select(CHECK_RESULT.c.case_index).where(
            CHECK_RESULT.c.run_id == run_id,
            of_kind[kind] if kind else or_(*of_kind.values()),
            true() if check_id is None else CHECK_RESULT.c.check_id == check_id,
        )
        outputs = select(OUTPUT.c.case_index).where(OUTPUT.c.run_id == run_id, OUTPUT.c.failed.is_(True))
        statements = [checks, outputs] if check_id is None and kind != "failed" else [checks]
        with self._database.reading() as connection:
            return sorted({case_index for statement in statements for case_index in connection.scalars(statement)})

    def failed_checks(self, run_id: str, start: int, stop: int) -> list[FailedCheck]:
        """The checks of the cases from `start` up to, without, `stop` that failed or ended in error, by case index and
        repeat."""
        checks = CHECK_RESULT.c
        in_error = checks.status == "error"
        failed = (
            select(checks.case_index, checks.repeat, checks.check_id, in_error)
            .where(checks.run_id == run_id, checks.case_index >= start, checks.case_index < stop)
            .where(or_(in_error, checks.passed.is_(False)))
        )
        with self._database.reading() as connection:
            return sorted(FailedCheck(*row) for row in connection.execute(failed))

    def index_of_case(self, run_id: str, case_id: str) -> int | None:
        """The index of a case in a run; None if the run has no such case."""
        with self._database.reading() as connection:
            found = select(CASE.c.case_index).where(
                CASE.c.run_id == run_id, CASE.c.case_id == indexable(case_id), taken_in(run_id)
            )
            return connection.scalar(found)

    def case_ids(self, run_id: str, limit: int) -> list[str]:
        """The ids of the first cases of a run."""
        rows = select(CASE.c.case_id, CUT_CASE).where(CASE.c.run_id == run_id).order_by(CASE.c.case_index)
        with self._database.reading() as connection:
            return [whole_id(*row) for row in connection.execute(rows.limit(limit))]


def whole_id(case_id: str, cut_case: dict[str, Any] | None) -> str:
    """A case's id as it was given, from the column of ids and `CUT_CASE`."""
    return case_id if cut_case is None else str(cut_case["id"])
