"""Leases on runs. One executor at a time: the one whose lease has not ended, by the database's clock."""

from __future__ import annotations

import os
import socket
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, Table, Update, case, func, or_, select, update

from fepflow.errors import RunBusyError
from fepflow.protocol.model import utc_now
from fepflow.store.database import Repository, now_of
from fepflow.store.records import Outcome, RunRecord, RunStatus
from fepflow.store.runs import find_run
from fepflow.store.tables import RUN


def new_owner() -> str:
    """A name for this executor: `host/pid/token`."""
    return f"{_this_host()}/{os.getpid()}/{uuid4().hex[:12]}"


def _this_host() -> str:
    # Containers that share the host's name do not share its process numbers.
    try:
        return f"{socket.gethostname()}:{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return socket.gethostname()


def is_gone(owner: str | None) -> bool:
    """Whether `owner` was a process of this machine that has ended."""
    host, _, rest = (owner or "").partition("/")
    pid = rest.partition("/")[0]
    if host not in (_this_host(), socket.gethostname()) or not pid.isdecimal() or int(pid) == 0:
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return _is_zombie(int(pid))


def _is_zombie(pid: int) -> bool:
    """Whether the process has ended, and its parent, which may be gone too, has not looked at it yet."""
    import psutil  # only who finds a lease wants it

    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def free_lease(table: Table, owner: str, before: str | None, now: datetime) -> ColumnElement[bool]:
    """Whether `owner` may take a lease that `before` had: its own, a free or an ended one, that of an ended process."""
    free = [table.c.lease_owner.is_(None), table.c.lease_owner == owner, table.c.lease_until <= now]
    return or_(*free, table.c.lease_owner == before) if is_gone(before) else or_(*free)


def renew(connection: Connection, held: Update, seconds: float) -> bool:
    """Let the lease that `held` names last for the next `seconds`; False if it was lost."""
    until = now_of(connection) + timedelta(seconds=seconds)
    return connection.execute(held.values(lease_until=until)).rowcount == 1


class Leases(Repository):
    """Acquiring, renewing and releasing the lease of a run."""

    def acquire_lease(self, run_id: str, owner: str, seconds: float) -> RunRecord:
        """Make `owner` the run's executor for the next `seconds`; the run is then running, without its former outcome.

        An owner may acquire again what it holds. Raises RunBusyError while another owner's lease is valid (that of a
        process of this machine that has ended is not), NotFoundError for an unknown run.
        """

        def acquire(connection: Connection) -> RunRecord:
            now = now_of(connection)
            before = find_run(connection, run_id)
            taken = connection.execute(
                update(RUN)
                .where(RUN.c.id == run_id, free_lease(RUN, owner, before.lease_owner, now))
                .values(
                    lease_owner=owner,
                    lease_until=now + timedelta(seconds=seconds),
                    status="running",
                    started_at=func.coalesce(RUN.c.started_at, now),
                    completed_at=None,
                    outcome=None,
                    metrics=None,
                    verdict=None,
                    error=None,
                )
            )
            after = find_run(connection, run_id)
            if not taken.rowcount:
                raise RunBusyError(
                    f"Run {run_id} is being executed by {after.lease_owner}, whose lease lasts until "
                    f"{_time(after.lease_until)}: wait for it, or stop that process and try again."
                )
            return after

        return self._database.write(acquire)

    def renew_lease(self, run_id: str, owner: str, seconds: float) -> bool:
        """Renew the lease for the next `seconds`. False when it was lost: the executor has to stop."""
        return self._database.write(lambda connection: renew(connection, _held(run_id, owner), seconds))

    def finish(
        self,
        run_id: str,
        owner: str,
        status: RunStatus,
        *,
        outcome: Outcome | None = None,
        metrics: Any = None,
        verdict: Any = None,
        stats: Any = None,
        error: str | None = None,
    ) -> None:
        """End the run as `owner` and give the lease back. Raises RunBusyError, changing nothing, if it was lost."""
        ended = _held(run_id, owner).values(
            status=status,
            completed_at=utc_now(),
            lease_owner=None,
            lease_until=None,
            outcome=outcome,
            metrics=metrics,
            verdict=verdict,
            stats=stats,
            error=error,
        )
        if not self._change(ended):
            raise RunBusyError(f"The end of run {run_id} was not recorded: it is {_lost(run_id, owner)}")

    def extend_run(self, run_id: str, owner: str, *, n_cases: int, repeats: int) -> RunRecord:
        """Have the run take in its first `n_cases` cases, and so many repeats of each, as its executor `owner`; the
        run as it is then. Raises RunBusyError, changing nothing, if the lease was lost.
        """

        def extend(connection: Connection) -> RunRecord:
            if not connection.execute(_held(run_id, owner).values(n_cases=n_cases, repeats=repeats)).rowcount:
                raise RunBusyError(f"Run {run_id} is {_lost(run_id, owner)}")
            return find_run(connection, run_id)

        return self._database.write(extend)

    def reap(self) -> list[str]:
        """Mark the running runs whose executor has ended, or whose lease has, as interrupted; their ids, sorted.

        Where that end was requested, the run is cancelled.
        """
        leases = select(RUN.c.id, RUN.c.lease_owner, RUN.c.lease_until).where(RUN.c.status == "running")
        with self._database.reading() as connection:
            now = now_of(connection)
            ended = [
                lease
                for lease in connection.execute(leases)
                if lease.lease_until is None or lease.lease_until <= now or is_gone(lease.lease_owner)
            ]
        return sorted(lease.id for lease in ended if self._interrupt(*lease))

    def _interrupt(self, run_id: str, owner: str | None, until: datetime | None) -> bool:
        # The lease may have been renewed or taken over since it was read.
        unchanged = RUN.c.lease_owner.is_not_distinct_from(owner), RUN.c.lease_until.is_not_distinct_from(until)
        return self._change(
            update(RUN)
            .where(RUN.c.id == run_id, RUN.c.status == "running", *unchanged)
            .values(
                status=case((RUN.c.cancel_requested_at.is_(None), "interrupted"), else_="cancelled"),
                completed_at=utc_now(),
                lease_owner=None,
                lease_until=None,
                error=f"Its executor {owner} ended without finishing it: `fepflow run --resume {run_id}` goes on.",
            )
        )

    def _change(self, statement: Update) -> bool:
        return self._database.write(lambda connection: connection.execute(statement).rowcount == 1)


def _held(run_id: str, owner: str) -> Update:
    return update(RUN).where(RUN.c.id == run_id, RUN.c.lease_owner == owner)


def _lost(run_id: str, owner: str) -> str:
    return (
        f"no longer executed by {owner}, whose lease ended and was taken away. "
        f"`fepflow show {run_id}` says what became of it."
    )


def _time(moment: datetime | None) -> str:
    return moment.strftime("%H:%M:%S UTC") if moment else "an unknown time"
