"""Requests to cancel a run. Its executor, on any machine, polls the flag and stops."""

from __future__ import annotations

from sqlalchemy import Connection, select, update

from fepflow.errors import UserError
from fepflow.protocol.model import utc_now
from fepflow.store.database import Repository
from fepflow.store.records import RunRecord
from fepflow.store.runs import find_run
from fepflow.store.tables import RUN


class CancelRequests(Repository):
    """Requests to cancel a run."""

    def request_cancel(self, run_id: str) -> RunRecord:
        """Request the run's cancellation, and return it: still running, or cancelled already if it has no executor.

        Raises NotFoundError for an unknown run, UserError for one that is over.
        """

        def request(connection: Connection) -> RunRecord:
            now = utc_now()
            run = update(RUN).where(RUN.c.id == run_id)
            connection.execute(
                run.where(RUN.c.status == "running", RUN.c.cancel_requested_at.is_(None)).values(
                    cancel_requested_at=now
                )
            )
            connection.execute(
                run.where(RUN.c.status == "pending").values(
                    status="cancelled", cancel_requested_at=now, completed_at=now, error="cancelled before it began"
                )
            )
            record = find_run(connection, run_id)
            if record.status != "running" and record.completed_at != now:
                raise UserError(f"Run {run_id} is over, it is {record.status}: there is nothing to cancel.")
            return record

        return self._database.write(request)

    def cancel_requested(self, run_id: str) -> bool:
        """Whether the run is to stop."""
        with self._database.reading() as connection:
            return connection.scalar(select(RUN.c.cancel_requested_at).where(RUN.c.id == run_id)) is not None

    def withdraw_cancel(self, run_id: str) -> None:
        """Take the flag back from a run that is over, because it is to be resumed."""
        over = update(RUN).where(RUN.c.id == run_id, RUN.c.status.not_in(("pending", "running")))
        self._database.write(lambda connection: connection.execute(over.values(cancel_requested_at=None)))

    def mark_cancelled(self, run_id: str) -> bool:
        """Say that an interrupted run was cancelled: its executor was killed on request."""
        interrupted = update(RUN).where(RUN.c.id == run_id, RUN.c.status == "interrupted")
        change = interrupted.values(status="cancelled", error="cancelled while it was running")
        return self._database.write(lambda connection: connection.execute(change).rowcount == 1)
