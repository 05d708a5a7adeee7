"""Callers over the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta

from sqlalchemy import (
    Connection,
    delete,
    exists,
    insert,
    or_,
    select,
    update,
)

from fepflow.errors import NotFoundError
from fepflow.store.database import Repository, now_of
from fepflow.store.records import (
    ApiKey,
    AuditEntry,
)
from fepflow.store.tables import (
    API_KEY,
    AUDIT_ENTRY,
    PAGE_SESSION,
)

MAX_SESSIONS = 100
"""Sessions of a key; a further one ends the oldest."""


class Access(Repository):
    """Keys, sessions, audit log."""

    def add_key(self, key: ApiKey) -> None:
        """Store a new key. Raises InfrastructureError if its id is there already."""
        self._database.write_once(lambda connection: connection.execute(insert(API_KEY).values(asdict(key))))

    def all_keys(self) -> list[ApiKey]:
        """All keys, also those that are expired or revoked, the oldest first."""
        with self._database.reading() as connection:
            rows = connection.execute(select(API_KEY).order_by(API_KEY.c.created_at, API_KEY.c.id)).mappings()
            return [ApiKey(**row) for row in rows]

    def find_key(self, key_id: str) -> tuple[ApiKey | None, datetime]:
        """The key of an id, None if there is none, and the time by the database's clock."""
        with self._database.reading() as connection:
            row = connection.execute(select(API_KEY).where(API_KEY.c.id == key_id)).mappings().first()
            return None if row is None else ApiKey(**row), now_of(connection)

    def has_keys(self, *, active: bool) -> bool:
        """Whether there ever was a key; with `active`, whether there is one that may be used now."""
        with self._database.reading() as connection:
            keys = select(API_KEY.c.id)
            if active:
                unexpired = or_(API_KEY.c.expires_at.is_(None), API_KEY.c.expires_at > now_of(connection))
                keys = keys.where(API_KEY.c.revoked_at.is_(None), unexpired)
            return bool(connection.scalar(select(exists(keys))))

    def revoke_key(self, key_id: str) -> ApiKey:
        """End a key for good, with its sessions; one that was revoked before stays as it is. Raises NotFoundError."""

        def revoke(connection: Connection) -> ApiKey:
            mine = API_KEY.c.id == key_id
            now = now_of(connection)
            connection.execute(update(API_KEY).where(mine, API_KEY.c.revoked_at.is_(None)).values(revoked_at=now))
            connection.execute(delete(PAGE_SESSION).where(PAGE_SESSION.c.key_id == key_id))
            row = connection.execute(select(API_KEY).where(mine)).mappings().first()
            if row is None:
                raise NotFoundError("There is no API key of this id: `fepflow keys list` shows all.")
            return ApiKey(**row)

        return self._database.write(revoke)

    def add_session(self, id_hash: str, key_id: str, seconds: float) -> None:
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

    def key_of_session(self, id_hash: str) -> ApiKey | None:
        """The key of a session that is not over, if it may be used still; None otherwise."""
        table = PAGE_SESSION.c
        rows = select(API_KEY).join(PAGE_SESSION, table.key_id == API_KEY.c.id).where(table.id_hash == id_hash)
        with self._database.reading() as connection:
            now = now_of(connection)
            row = connection.execute(rows.where(table.expires_at > now)).mappings().first()
            key = None if row is None else ApiKey(**row)
            return key if key is not None and key.state_at(now) == "active" else None

    def end_session(self, id_hash: str) -> None:
        """End a session, if there is one."""
        statement = delete(PAGE_SESSION).where(PAGE_SESSION.c.id_hash == id_hash)
        self._database.write(lambda connection: connection.execute(statement))

    def add_audit_entries(self, entries: Sequence[AuditEntry]) -> None:
        """Add entries in one transaction."""
        rows = [asdict(entry) for entry in entries]
        if rows:
            self._database.write_once(lambda connection: connection.execute(insert(AUDIT_ENTRY), rows))

    def audit_entries(
        self, limit: int, *, since: datetime | None = None, caller: str | None = None, outcome: str | None = None
    ) -> list[AuditEntry]:
        """At most `limit` entries, the newest first: from a time on, of a caller, with an outcome."""
        table = AUDIT_ENTRY.c
        rows = select(*(table[name] for name in AuditEntry.__slots__))
        if since is not None:
            rows = rows.where(table.at >= since)
        if caller is not None:
            rows = rows.where(table.caller == caller)
        if outcome is not None:
            rows = rows.where(table.outcome == outcome)
        with self._database.reading() as connection:
            found = connection.execute(rows.order_by(table.at.desc(), table.id.desc()).limit(limit)).mappings()
            return [AuditEntry(**row) for row in found]

    def delete_audit_entries(self, before: datetime) -> int:
        """Delete the entries from before a time; how many they were."""
        statement = delete(AUDIT_ENTRY).where(AUDIT_ENTRY.c.at < before)
        return self._database.write(lambda connection: connection.execute(statement).rowcount)
