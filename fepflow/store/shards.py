"""Leases on shards of a run. One executor at a time: the one whose lease has not ended."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, Update, and_, select, update

from fepflow.store.database import Repository, now_of, upserting
from fepflow.store.leases import free_lease, is_gone, renew
from fepflow.store.runs import no_such_run
from fepflow.store.tables import RUN, SHARD


class LeaseHolder(NamedTuple):
    """The executor of a shard, and whether its lease is valid and its process, as far as one can see, alive."""

    owner: str
    alive: bool


class Shards(Repository):
    """Acquiring, renewing and releasing the lease of one shard of a run, numbered from 0."""

    def acquire_shard(self, run_id: str, shard: int, owner: str, seconds: float) -> bool:
        """Make `owner` the shard's executor for the next `seconds`; False while another one is.

        Raises NotFoundError for an unknown run.
        """

        def acquire(connection: Connection) -> bool:
            if connection.scalar(select(RUN.c.id).where(RUN.c.id == run_id)) is None:
                raise no_such_run(run_id)
            now = now_of(connection)
            held = {"lease_owner": owner, "lease_until": now + timedelta(seconds=seconds)}
            connection.execute(upserting(connection, SHARD).values(run_id=run_id, shard=shard).on_conflict_do_nothing())
            before = connection.execute(select(SHARD).where(_is(run_id, shard))).one()
            free = free_lease(SHARD, owner, before.lease_owner, now)
            return connection.execute(update(SHARD).where(_is(run_id, shard), free).values(held)).rowcount == 1

        return self._database.write(acquire)

    def renew_shard(self, run_id: str, shard: int, owner: str, seconds: float) -> bool:
        """Renew the lease for the next `seconds`. False when it was lost: the executor has to stop."""
        return self._database.write(lambda connection: renew(connection, _held(run_id, shard, owner), seconds))

    def release_shard(self, run_id: str, shard: int, owner: str) -> None:
        """Give the lease back."""
        change = _held(run_id, shard, owner).values(lease_owner=None, lease_until=None)
        self._database.write(lambda connection: connection.execute(change))

    def shard_holder(self, run_id: str, shard: int) -> LeaseHolder | None:
        """The holder of the shard's lease; None if it has not begun, or the last executor has released it."""
        with self._database.reading() as connection:
            row = connection.execute(select(SHARD).where(_is(run_id, shard))).one_or_none()
            now = now_of(connection)
        if row is None or row.lease_owner is None:
            return None
        return LeaseHolder(row.lease_owner, row.lease_until > now and not is_gone(row.lease_owner))


def _held(run_id: str, shard: int, owner: str) -> Update:
    return update(SHARD).where(_is(run_id, shard), SHARD.c.lease_owner == owner)


def _is(run_id: str, shard: int) -> ColumnElement[bool]:
    return and_(SHARD.c.run_id == run_id, SHARD.c.shard == shard)
