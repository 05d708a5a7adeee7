"""Leases on runs and shards: one executor at a time, whose lease is valid by the database's clock."""

from __future__ import annotations

import os
import socket
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, Connection, Row, Table, Update, and_, case, func, or_, select, update

from fepflow.errors import RunBusyError
from fepflow.host import pid_namespace
from fepflow.protocol.model import utc_now
from fepflow.store.database import Repository, now_of, upserting
from fepflow.store.records import RUN, SHARD, LeaseHolder, Outcome, RunRecord, RunStatus
from fepflow.store.runs import find_run, no_such_run
from fepflow.store.totals import count_end
from fepflow.text import plural

CLAIM_PATIENCE = timedelta(minutes=10)
"""Time after its last renewal in which a claim of a process of this machine holds that seems to live: another may
have got its number. Thirty that load Prefect at once on two cores do nothing else for a minute."""

_unstarted_or_over = RUN.c.status != "running"
_HANDED_OVER: dict[str, Any] = {
    "status": "pending",
    "lease_owner": None,
    "lease_until": None,
    "takeovers": RUN.c.takeovers + 1,
    "takeovers_left": RUN.c.takeovers_left - 1,
}
"""Values of a run that waits for another executor, because its own is gone."""


def new_owner() -> str:
    """Return a new name for this executor: `host/pid/token`."""
    return f"{_this_host()}/{os.getpid()}/{uuid4().hex[:12]}"


def _this_host() -> str:
    namespace = pid_namespace()
    return f"{socket.gethostname()}:{namespace}" if namespace else socket.gethostname()


def is_gone(owner: str | None) -> bool:
    """Return whether `owner` was a process of this machine that has ended."""
    pid = _pid_here(owner)
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        return False
    return _is_zombie(pid)


def _pid_here(owner: str | None) -> int | None:
    """Return the process id in `owner`, if it is or was a process of this machine."""
    host, _, rest = (owner or "").partition("/")
    pid = rest.partition("/")[0]
    here = host in (_this_host(), socket.gethostname()) and pid.isdecimal()
    return int(pid) or None if here else None


def _is_alive(owner: str | None, until: datetime | None, now: datetime, *, begun: bool) -> bool:
    """Return whether a lease, or the claim of a run that has not started, is valid."""
    if until is None or is_gone(owner):
        return False
    return until + (timedelta() if begun or _pid_here(owner) is None else CLAIM_PATIENCE) > now


def _is_zombie(pid: int) -> bool:
    """Return whether the process has ended, and its parent, which may be gone too, has not collected its status."""
    import psutil  # only a lease of a process here needs it

    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _free_lease(table: Table, owner: str, before: str | None, now: datetime) -> ColumnElement[bool]:
    """Return the condition under which `owner` may take the lease of `before`.

    It may take its own, a free or an expired lease, and that of a process that has ended.
    """
    free = [table.c.lease_owner.is_(None), table.c.lease_owner == owner, table.c.lease_until <= now]
    return or_(*free, table.c.lease_owner == before) if is_gone(before) else or_(*free)


def _renew(connection: Connection, held: Update, seconds: float) -> bool:
    """Renew the lease that `held` names for the next `seconds`; return False if it was lost."""
    until = now_of(connection) + timedelta(seconds=seconds)
    return connection.execute(held.values(lease_until=until)).rowcount == 1


class Leases(Repository):
    """Acquiring, renewing and releasing the lease of a run, or of one of its shards, numbered from 0."""

    def claim(self, run_id: str, owner: str, seconds: float) -> None:
        """Note that `owner` will execute the run, for the next `seconds`, unless another process executes it.

        A claim is a sign of life. It prevents nobody from taking the lease, but shows `reap` that the process exists.
        `renew` renews it.
        """

        def note(connection: Connection) -> None:
            until = now_of(connection) + timedelta(seconds=seconds)
            claimed = update(RUN).where(RUN.c.id == run_id, _unstarted_or_over)
            connection.execute(claimed.values(lease_owner=owner, lease_until=until))

        self._database.write(note)

    def is_attended(self, run_id: str) -> bool:
        """Return whether a living process executes the run, or has claimed it. Raises NotFoundError."""
        with self._database.reading() as connection:
            run, now = find_run(connection, run_id), now_of(connection)
        return _is_alive(run.lease_owner, run.lease_until, now, begun=run.status == "running")

    def acquire(self, run_id: str, owner: str, seconds: float) -> RunRecord:
        """Make `owner` the run's executor for the next `seconds`. The run is then running, without its former outcome.

        An owner may acquire its own lease again, and anybody may acquire a run that is only claimed. Raises
        RunBusyError while another owner's lease is valid (unless that is an ended process of this machine),
        NotFoundError for an unknown run.
        """

        def take(connection: Connection) -> RunRecord:
            now = now_of(connection)
            before = find_run(connection, run_id)
            taken = connection.execute(
                update(RUN)
                .where(RUN.c.id == run_id, _unstarted_or_over | _free_lease(RUN, owner, before.lease_owner, now))
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

        return self._database.write(take)

    def renew(self, run_id: str, owner: str, seconds: float) -> bool:
        """Renew the lease for the next `seconds`. Returns False if it was lost: the executor has to stop."""
        return self._database.write(lambda connection: _renew(connection, _held(run_id, owner), seconds))

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
        completed_at: datetime | None = None,
    ) -> None:
        """End the run as `owner`, now unless it ended before, and release the lease.

        Raises RunBusyError, changing nothing, if it was lost.
        """
        ended = _held(run_id, owner).values(
            status=status,
            completed_at=completed_at or utc_now(),
            lease_owner=None,
            lease_until=None,
            outcome=outcome,
            metrics=metrics,
            verdict=verdict,
            stats=stats,
            error=error,
        )
        if not self._end(run_id, ended):
            raise RunBusyError(f"The end of run {run_id} was not recorded: it is {_lost(run_id, owner)}")

    def extend_run(self, run_id: str, owner: str, *, n_cases: int, repeats: int) -> RunRecord:
        """Extend the run to its first `n_cases` cases and a number of repeats of each, as its executor `owner`.

        Returns the run as it is then. Raises RunBusyError, changing nothing, if the lease was lost.
        """

        def extend(connection: Connection) -> RunRecord:
            if not connection.execute(_held(run_id, owner).values(n_cases=n_cases, repeats=repeats)).rowcount:
                raise RunBusyError(f"Run {run_id} is {_lost(run_id, owner)}")
            return find_run(connection, run_id)

        return self._database.write(extend)

    def hand_over(self, run_id: str, owner: str, why: str) -> bool:
        """Release the run as `owner`, as pending, so that a worker takes it over.

        Returns False, changing nothing, if it may not be taken over, is to be cancelled, or the lease was lost.
        """
        return self._hand_over(_held(run_id, owner), why)

    def reap(self) -> list[str]:
        """End the runs whose executor is gone or whose lease has expired, and return their ids, sorted.

        They are pending again if they may be taken over, else interrupted. Claimed runs that have not started are
        included. A run whose end was requested is cancelled.
        """
        claimed = (RUN.c.status == "pending") & RUN.c.lease_owner.is_not(None)
        leases = select(
            RUN.c.id, RUN.c.status, RUN.c.lease_owner, RUN.c.lease_until, RUN.c.takeovers, RUN.c.takeovers_left
        )
        with self._database.reading() as connection:
            now = now_of(connection)
            rows = connection.execute(leases.where((RUN.c.status == "running") | claimed)).all()
        return sorted(
            row.id
            for row in rows
            if not _is_alive(row.lease_owner, row.lease_until, now, begun=row.status == "running")
            and self._interrupt(row)
        )

    def acquire_shard(self, run_id: str, shard: int, owner: str, seconds: float) -> bool:
        """Make `owner` the shard's executor for the next `seconds`; False if there is another one.

        Raises NotFoundError for an unknown run.
        """

        def acquire(connection: Connection) -> bool:
            if connection.scalar(select(RUN.c.id).where(RUN.c.id == run_id)) is None:
                raise no_such_run(run_id)
            now = now_of(connection)
            held = {"lease_owner": owner, "lease_until": now + timedelta(seconds=seconds)}
            connection.execute(upserting(connection, SHARD).values(run_id=run_id, shard=shard).on_conflict_do_nothing())
            before = connection.execute(select(SHARD).where(_is_shard(run_id, shard))).one()
            free = _free_lease(SHARD, owner, before.lease_owner, now)
            return connection.execute(update(SHARD).where(_is_shard(run_id, shard), free).values(held)).rowcount == 1

        return self._database.write(acquire)

    def renew_shard(self, run_id: str, shard: int, owner: str, seconds: float) -> bool:
        """Renew the lease for the next `seconds`. Returns False if it was lost: the executor has to stop."""
        return self._database.write(lambda connection: _renew(connection, _held_shard(run_id, shard, owner), seconds))

    def release_shard(self, run_id: str, shard: int, owner: str) -> None:
        """Release the lease."""
        change = _held_shard(run_id, shard, owner).values(lease_owner=None, lease_until=None)
        self._database.write(lambda connection: connection.execute(change))

    def shard_holder(self, run_id: str, shard: int) -> LeaseHolder | None:
        """Return the holder of the shard's lease; None if it has not started, or was released."""
        with self._database.reading() as connection:
            row = connection.execute(select(SHARD).where(_is_shard(run_id, shard))).one_or_none()
            now = now_of(connection)
        if row is None or row.lease_owner is None:
            return None
        return LeaseHolder(row.lease_owner, row.lease_until > now and not is_gone(row.lease_owner))

    def _interrupt(self, seen: Row[Any]) -> bool:
        # The lease may have been renewed or taken over since it was read.
        unchanged = (RUN.c[name].is_not_distinct_from(getattr(seen, name)) for name in ("lease_owner", "lease_until"))
        run = update(RUN).where(RUN.c.id == seen.id, RUN.c.status == seen.status, *unchanged)
        how = "before it had begun" if seen.status == "pending" else "without finishing it"
        before = f", after it had been taken over {plural(seen.takeovers, 'time')}" if seen.takeovers else ""
        ended = f"Its executor {seen.lease_owner} ended {how}{before}"
        if seen.takeovers_left and self._hand_over(run, f"{ended}: a worker takes it over."):
            return True
        return self._end(
            seen.id,
            run.values(
                status=case((RUN.c.cancel_requested_at.is_(None), "interrupted"), else_="cancelled"),
                completed_at=utc_now(),
                lease_owner=None,
                lease_until=None,
                error=f"{ended}: `fepflow run --resume {seen.id}` goes on.",
            ),
        )

    def _hand_over(self, run: Update, why: str) -> bool:
        """Make a run wait for another executor; False, changing nothing, if that is not allowed or it is to be
        cancelled.
        """
        handed_over = run.where(RUN.c.cancel_requested_at.is_(None), RUN.c.takeovers_left > 0)

        def hand_over(connection: Connection) -> bool:
            # By the clock that all machines share: with that of a machine which is ahead, the run would wait for it.
            values = {**_HANDED_OVER, "completed_at": now_of(connection), "error": why}
            return connection.execute(handed_over.values(values)).rowcount == 1

        return self._database.write(hand_over)

    def _end(self, run_id: str, statement: Update) -> bool:
        """End a run by a statement, and count its end; False if nothing changed."""

        def end(connection: Connection) -> bool:
            if has_ended := connection.execute(statement).rowcount == 1:
                count_end(connection, run_id)
            return has_ended

        return self._database.write(end)


def _held(run_id: str, owner: str) -> Update:
    return update(RUN).where(RUN.c.id == run_id, RUN.c.lease_owner == owner)


def _lost(run_id: str, owner: str) -> str:
    return (
        f"no longer executed by {owner}, whose lease ended and was taken away. "
        f"`fepflow show {run_id}` says what became of it."
    )


def _time(moment: datetime | None) -> str:
    return moment.strftime("%H:%M:%S UTC") if moment else "an unknown time"


def _held_shard(run_id: str, shard: int, owner: str) -> Update:
    return update(SHARD).where(_is_shard(run_id, shard), SHARD.c.lease_owner == owner)


def _is_shard(run_id: str, shard: int) -> ColumnElement[bool]:
    return and_(SHARD.c.run_id == run_id, SHARD.c.shard == shard)
