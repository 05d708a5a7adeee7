"""The audit log: entries are added and, when they are old, deleted. A trigger refuses to change them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from sqlalchemy import delete, insert, select

from fepflow.store.access_records import AuditEntry
from fepflow.store.database import Repository
from fepflow.store.network_tables import AUDIT_ENTRY


class AuditLog(Repository):
    """What callers over the network did."""

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
