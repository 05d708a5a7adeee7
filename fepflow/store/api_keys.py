"""Keys of programs that call over the network."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime

from sqlalchemy import Connection, delete, exists, insert, or_, select, update

from fepflow.errors import NotFoundError
from fepflow.store.access_records import ApiKey
from fepflow.store.database import Repository, now_of
from fepflow.store.network_tables import API_KEY, PAGE_SESSION


class ApiKeys(Repository):
    """Adding, finding and revoking keys. A key that was revoked stays, so that the audit log can be read."""

    def add_api_key(self, key: ApiKey) -> None:
        """Store a new key. Raises InfrastructureError if its id is there already."""
        self._database.write_once(lambda connection: connection.execute(insert(API_KEY).values(asdict(key))))

    def api_keys(self) -> list[ApiKey]:
        """All keys, also those that are expired or revoked, the oldest first."""
        with self._database.reading() as connection:
            rows = connection.execute(select(API_KEY).order_by(API_KEY.c.created_at, API_KEY.c.id)).mappings()
            return [ApiKey(**row) for row in rows]

    def find_api_key(self, key_id: str) -> tuple[ApiKey | None, datetime]:
        """The key of an id, None if there is none, and the time by the database's clock."""
        with self._database.reading() as connection:
            row = connection.execute(select(API_KEY).where(API_KEY.c.id == key_id)).mappings().first()
            return None if row is None else ApiKey(**row), now_of(connection)

    def has_api_keys(self, *, active: bool) -> bool:
        """Whether there ever was a key; with `active`, whether there is one that may be used now."""
        with self._database.reading() as connection:
            keys = select(API_KEY.c.id)
            if active:
                unexpired = or_(API_KEY.c.expires_at.is_(None), API_KEY.c.expires_at > now_of(connection))
                keys = keys.where(API_KEY.c.revoked_at.is_(None), unexpired)
            return bool(connection.scalar(select(exists(keys))))

    def revoke_api_key(self, key_id: str) -> ApiKey:
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
