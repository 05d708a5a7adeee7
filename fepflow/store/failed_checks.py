"""Failed checks of a run, without their results."""

from __future__ import annotations

from sqlalchemy import or_, select

from fepflow.store.database import Repository
from fepflow.store.records import FailedCheck
from fepflow.store.tables import CHECK_RESULT


class FailedChecks(Repository):
    """Failed checks by case index; case indices and repeats count from 0, ranges exclude their `stop`."""

    def failed_checks(self, run_id: str, start: int, stop: int) -> list[FailedCheck]:
        """The checks of the cases from `start` to `stop` that failed or ended in error, by case index and repeat."""
        checks = CHECK_RESULT.c
        in_error = checks.status == "error"
        failed = (
            select(checks.case_index, checks.repeat, checks.check_id, in_error)
            .where(checks.run_id == run_id, checks.case_index >= start, checks.case_index < stop)
            .where(or_(in_error, checks.passed.is_(False)))
        )
        with self._database.reading() as connection:
            return sorted(FailedCheck(*row) for row in connection.execute(failed))
