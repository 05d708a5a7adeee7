"""Callers over the network: API keys, the sessions of browsers, and the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta

from sqlalchemy import Connection, delete, exists, insert, or_, select, update

from fepflow.errors import NotFoundError
from fepflow.store.database import Repository, now_of, records
from fepflow.store.records import API_KEY, AUDIT_ENTRY, PAGE_SESSION, ApiKey, AuditEntry

MAX_SESSIONS = 100
"""Sessions of a key; a further one ends the oldest."""


class Access(Repository):
    """Keys, which stay when they are revoked so that the audit log can be read; sessions, which end with their key; and
    the audit log, whose entries are never changed, and deleted when they are old."""

    def add_key(self, key: ApiKey) -> None:
        """Store a new key. Raises InfrastructureError if its id already exists."""
        self._database.write_once(lambda connection: connection.execute(insert(API_KEY).values(key.values())))

    def all_keys(self) -> list[ApiKey]:
        """Return all keys, also those that are expired or revoked, the oldest first."""
        return self._records(select(ApiKey).order_by(API_KEY.c.created_at, API_KEY.c.id))

    def find_key(self, key_id: str) -> tuple[ApiKey | None, datetime]:
        """Return the key with this id, None if there is none, and the time by the database's clock."""
        with self._database.reading() as connection:
            return _find_key(connection, key_id), now_of(connection)

    def has_keys(self, *, active: bool) -> bool:
        """Return whether there ever was a key; with `active`, whether there is one that may be used now."""
        with self._database.reading() as connection:
            keys = select(API_KEY.c.id)
            if active:
                unexpired = or_(API_KEY.c.expires_at.is_(None), API_KEY.c.expires_at > now_of(connection))
                keys = keys.where(API_KEY.c.revoked_at.is_(None), unexpired)
            return bool(connection.scalar(select(exists(keys))))

    def revoke_key(self, key_id: str) -> ApiKey:
        """End a key for good, with its sessions; one that was revoked before stays as it is. Raises NotFoundError."""

        def revoke(connection: Connection) -> ApiKey:
            active = API_KEY.c.id == key_id, API_KEY.c.revoked_at.is_(None)
            connection.execute(update(API_KEY).where(*active).values(revoked_at=now_of(connection)))
            connection.execute(delete(PAGE_SESSION).where(PAGE_SESSION.c.key_id == key_id))
            key = _find_key(connection, key_id)
            if key is None:
                raise NotFoundError("There is no API key of this id: `fepflow keys list` shows all.")
            return key

        return self._database.write(revoke)

    def add_session(self, id_hash: str, key_id: str, seconds: float) -> None:
        """Begin a session of a key that lasts so long; sessions that are over are deleted."""
        table = PAGE_SESSION.c

        def add(connection: Connection) -> None:
            now = now_of(connection)
            row = {"id_hash": id_hash, "key_id": key_id, "created_at": now}
            connection.execute(insert(PAGE_SESSION).values(**row, expires_at=now + timedelta(seconds=seconds)))
            connection.execute(delete(PAGE_SESSION).where(table.expires_at <= now))
            newest = select(table.id_hash).where(table.key_id == key_id).order_by(table.created_at.desc())
            kept = list(connection.scalars(newest.limit(MAX_SESSIONS)))
            connection.execute(delete(PAGE_SESSION).where(table.key_id == key_id, table.id_hash.not_in(kept)))

        self._database.write_once(add)

    def key_of_session(self, id_hash: str) -> ApiKey | None:
        """Return the key of a session that is not over, if the key may still be used."""
        table = PAGE_SESSION.c
        keys = select(ApiKey).join(PAGE_SESSION, table.key_id == API_KEY.c.id).where(table.id_hash == id_hash)
        with self._database.reading() as connection:
            now = now_of(connection)
            key = next(iter(records(connection, keys.where(table.expires_at > now))), None)
            return key if key is not None and key.state_at(now) == "active" else None

    def end_session(self, id_hash: str) -> None:
        """End a session, if there is one."""
        self._execute(delete(PAGE_SESSION).where(PAGE_SESSION.c.id_hash == id_hash))

    def add_audit_entries(self, entries: Sequence[AuditEntry]) -> None:
        """Add entries in one transaction."""
        rows = [asdict(entry) for entry in entries]
        if rows:
            self._database.write_once(lambda connection: connection.execute(insert(AUDIT_ENTRY), rows))

    def audit_entries(
        self, limit: int, *, since: datetime | None = None, caller: str | None = None, outcome: str | None = None
    ) -> list[AuditEntry]:
        """Return at most `limit` entries, the newest first: from a time on, of a caller, with an outcome."""
        table = AUDIT_ENTRY.c
        rows = select(*(table[name] for name in AuditEntry.__slots__))
        if since is not None:
            rows = rows.where(table.at >= since)
        if caller is not None:
            rows = rows.where(table.caller == caller)
        if outcome is not None:
            rows = rows.where(table.outcome == outcome)
        newest = rows.order_by(table.at.desc(), table.id.desc()).limit(limit)
        return [AuditEntry(*row) for row in self._rows(newest)]

    def delete_audit_entries(self, before: datetime) -> int:
        """Delete the entries from before a time, and return their number."""
        return self._execute(delete(AUDIT_ENTRY).where(AUDIT_ENTRY.c.at < before))


def _find_key(connection: Connection, key_id: str) -> ApiKey | None:
    return next(iter(records(connection, select(ApiKey).where(API_KEY.c.id == key_id))), None)
