"""Sessions of browsers: each is of an API key, ends with it, and of its id there is the hash only."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Connection, delete, insert, select

from fepflow.store.access_records import ApiKey
from fepflow.store.database import Repository, now_of
from fepflow.store.network_tables import API_KEY, PAGE_SESSION

MAX_SESSIONS = 100
"""Sessions of a key; a further one ends the oldest."""


class PageSessions(Repository):
    """Beginning, finding and ending sessions."""

    def add_page_session(self, id_hash: str, key_id: str, seconds: float) -> None:
        """Begin a session of a key that lasts so long; those that are over are deleted."""
        table = PAGE_SESSION.c

        def add(connection: Connection) -> None:
            now = now_of(connection)
            rows = {"id_hash": id_hash, "key_id": key_id, "created_at": now}
            connection.execute(insert(PAGE_SESSION).values(**rows, expires_at=now + timedelta(seconds=seconds)))
            connection.execute(delete(PAGE_SESSION).where(table.expires_at <= now))
            newest = select(table.id_hash).where(table.key_id == key_id).order_by(table.created_at.desc())
            kept = list(connection.scalars(newest.limit(MAX_SESSIONS)))
            connection.execute(delete(PAGE_SESSION).where(table.key_id == key_id, table.id_hash.not_in(kept)))

        self._database.write_once(add)

    def key_of_page_session(self, id_hash: str) -> ApiKey | None:
        """The key of a session that is not over, if it may be used still; None otherwise."""
        table = PAGE_SESSION.c
        rows = select(API_KEY).join(PAGE_SESSION, table.key_id == API_KEY.c.id).where(table.id_hash == id_hash)
        with self._database.reading() as connection:
            now = now_of(connection)
            row = connection.execute(rows.where(table.expires_at > now)).mappings().first()
            key = None if row is None else ApiKey(**row)
            return key if key is not None and key.state_at(now) == "active" else None

    def end_page_session(self, id_hash: str) -> None:
        """End a session, if there is one."""
        statement = delete(PAGE_SESSION).where(PAGE_SESSION.c.id_hash == id_hash)
        self._database.write(lambda connection: connection.execute(statement))
