"""Bringing a database to the newest schema."""

from __future__ import annotations

import threading
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy import Connection, text

from fepflow.errors import InfrastructureError

_ADVISORY_LOCK = 7_305_808_869_230_650  # any number, the same in every version
_one_at_a_time = threading.Lock()  # alembic keeps the migration that is under way in globals


def migrations(connection: Connection | None = None) -> Config:
    """Alembic's configuration for our migrations, to run on `connection`."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def is_current(connection: Connection) -> bool:
    """Whether the database has the newest schema; asking takes no lock."""
    return _revision(connection) == ScriptDirectory.from_config(migrations()).get_current_head()


def upgrade(connection: Connection, place: str) -> None:
    """Upgrade to the newest schema inside the connection's transaction, one process at a time.

    SQLite's BEGIN IMMEDIATE is the lock there; PostgreSQL has one for the purpose. An upgrade that dies half-way
    leaves nothing behind. Raises InfrastructureError if the database is newer than this program.
    """
    with _one_at_a_time:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
        config = migrations(connection)
        revision = _revision(connection)
        try:
            ScriptDirectory.from_config(config).get_revision(revision)
        except CommandError:
            raise InfrastructureError(
                f"{place} was written by a newer fepflow (its schema is {revision}): upgrade fepflow, or name another "
                "database in FEPFLOW_STORE_URL."
            ) from None
        command.upgrade(config, "head")


def _revision(connection: Connection) -> str:
    return MigrationContext.configure(connection).get_current_revision() or "base"
