"""Who is executing which shard of a run. One executor at a time: the one whose lease has not ended."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, or_, select, update

from fepflow.errors import NotFoundError
from fepflow.store.database import DatabaseUser, now_of, upserting
from fepflow.store.leases import is_gone
from fepflow.store.tables import RUN, SHARD


class Holder(NamedTuple):
    """The executor of a shard, and whether its lease is valid and its process, as far as one can see, alive."""

    owner: str
    alive: bool


class Shards(DatabaseUser):
    """Taking, keeping and giving back the right to execute one shard of a run, numbered from 0."""

    def acquire_shard(self, run_id: str, shard: int, owner: str, seconds: float) -> bool:
        """Make `owner` the shard's executor for the next `seconds`; False while somebody else is.

        Raises NotFoundError for an unknown run.
        """

        def acquire(connection: Connection) -> bool:
            if connection.scalar(select(RUN.c.id).where(RUN.c.id == run_id)) is None:
                raise NotFoundError(f"There is no run {run_id}: `fepflow list` shows the runs there are.")
            now = now_of(connection)
            held = {"lease_owner": owner, "lease_until": now + timedelta(seconds=seconds)}
            connection.execute(upserting(connection, SHARD).values(run_id=run_id, shard=shard).on_conflict_do_nothing())
            before = connection.execute(select(SHARD).where(_is(run_id, shard))).one()
            free = [SHARD.c.lease_owner.is_(None), SHARD.c.lease_owner == owner, SHARD.c.lease_until <= now]
            if is_gone(before.lease_owner):
                free.append(SHARD.c.lease_owner == before.lease_owner)
            return connection.execute(update(SHARD).where(_is(run_id, shard), or_(*free)).values(held)).rowcount == 1

        return self._database.write(acquire)

    def renew_shard(self, run_id: str, shard: int, owner: str, seconds: float) -> bool:
        """Keep the lease for the next `seconds`. False when it was lost: the executor has to stop."""

        def renew(connection: Connection) -> bool:
            until = now_of(connection) + timedelta(seconds=seconds)
            change = update(SHARD).where(_is(run_id, shard), SHARD.c.lease_owner == owner)
            return connection.execute(change.values(lease_until=until)).rowcount == 1

        return self._database.write(renew)

    def release_shard(self, run_id: str, shard: int, owner: str) -> None:
        """Give the lease back."""
        change = update(SHARD).where(_is(run_id, shard), SHARD.c.lease_owner == owner)
        self._database.write(lambda connection: connection.execute(change.values(lease_owner=None, lease_until=None)))

    def shard_holder(self, run_id: str, shard: int) -> Holder | None:
        """Who has the shard; None if nobody has begun it, or the last one has given it back."""
        with self._database.reading() as connection:
            row = connection.execute(select(SHARD).where(_is(run_id, shard))).one_or_none()
            now = now_of(connection)
        if row is None or row.lease_owner is None:
            return None
        return Holder(row.lease_owner, row.lease_until > now and not is_gone(row.lease_owner))


def _is(run_id: str, shard: int) -> ColumnElement[bool]:
    return and_(SHARD.c.run_id == run_id, SHARD.c.shard == shard)
