"""Bringing a database to the newest schema."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from fepflow.errors import InfrastructureError

if TYPE_CHECKING:
    from alembic.config import Config

# Alembic is imported where it is needed: loading it takes 0.15 s, and a database is upgraded once.

_MIGRATIONS = Path(__file__).parent / "migrations"
_VERSION_TABLE = "alembic_version"
_ADVISORY_LOCK = 7_305_808_869_230_650  # any number, the same in every version
_one_at_a_time = threading.Lock()  # alembic keeps the migration that is under way in globals


def migrations(connection: Connection | None = None) -> Config:
    """Alembic's configuration for our migrations, to run on `connection`."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def is_current(connection: Connection) -> bool:
    """Whether the database has the newest schema; asking takes no lock."""
    if not inspect(connection).has_table(_VERSION_TABLE):
        return False
    revision = connection.scalar(text(f"SELECT version_num FROM {_VERSION_TABLE}"))  # noqa: S608  # a name of ours
    return bool(revision == _newest_revision())


def _newest_revision() -> str:
    """The migrations' files begin with their numbers."""
    return max(path.name[:4] for path in (_MIGRATIONS / "versions").glob("[0-9]*.py"))


def upgrade(connection: Connection, place: str) -> None:
    """Upgrade to the newest schema inside the connection's transaction, one process at a time.

    SQLite's BEGIN IMMEDIATE is the lock there; PostgreSQL has one for the purpose. An upgrade that dies half-way
    leaves nothing behind. Raises InfrastructureError if the database is newer than this program.
    """
    from alembic import command
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory
    from alembic.util.exc import CommandError

    with _one_at_a_time:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
        config = migrations(connection)
        revision = MigrationContext.configure(connection).get_current_revision() or "base"
        try:
            ScriptDirectory.from_config(config).get_revision(revision)
        except CommandError:
            raise InfrastructureError(
                f"{place} was written by a newer fepflow (its schema is {revision}): upgrade fepflow, or name another "
                "database in FEPFLOW_STORE_URL."
            ) from None
        command.upgrade(config, "head")
