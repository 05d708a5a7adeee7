"""Evaluations that were requested and go on by themselves: FEP's operations, read from their runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import and_, func, or_, select

from fepflow.errors import NotFoundError
from fepflow.store.database import Repository
from fepflow.store.network_tables import RUN_REQUEST
from fepflow.store.records import RunStatus
from fepflow.store.tables import CHECK_RESULT, RUN

OPERATION = "operation"
"""The kind of their requests."""


@dataclass(frozen=True, slots=True)
class OperationRecord:
    """What is known of an operation without its results. Times are aware, in UTC."""

    id: str
    status: RunStatus
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    n_cases: int
    flow_run_id: str | None
    error: str | None


_COLUMNS = [RUN.c[name] for name in OperationRecord.__dataclass_fields__]
_OPERATIONS = (
    select(*_COLUMNS).join(RUN_REQUEST, RUN_REQUEST.c.run_id == RUN.c.id).where(RUN_REQUEST.c.kind == OPERATION)
)


class OperationRecords(Repository):
    """Finding operations."""

    def operation(self, run_id: str) -> OperationRecord:
        """The operation with this id. Raises NotFoundError."""
        with self._database.reading() as connection:
            row = connection.execute(_OPERATIONS.where(RUN.c.id == run_id)).one_or_none()
        if row is None:
            raise NotFoundError(f"There is no operation {run_id}.")
        return OperationRecord(*row)

    def operations(
        self, limit: int, statuses: Sequence[RunStatus] = (), after: tuple[datetime, str] | None = None
    ) -> list[OperationRecord]:
        """The newest operations first; those that come `after` the one with this time of creation and id.

        What is created between two calls moves none of them.
        """
        run_id = self._database.by_code_points(RUN.c.id)
        page = _OPERATIONS.order_by(RUN.c.created_at.desc(), run_id.desc()).limit(limit)
        if statuses:
            page = page.where(RUN.c.status.in_(statuses))
        if after is not None:
            created_at, last = after
            page = page.where(or_(RUN.c.created_at < created_at, and_(RUN.c.created_at == created_at, run_id < last)))
        with self._database.reading() as connection:
            return [OperationRecord(*row) for row in connection.execute(page)]

    def cases_with_results(self, run_id: str) -> int:
        """How many test cases of a run have results of checks."""
        cases = select(func.count(CHECK_RESULT.c.case_index.distinct())).where(CHECK_RESULT.c.run_id == run_id)
        with self._database.reading() as connection:
            return connection.scalar(cases) or 0
