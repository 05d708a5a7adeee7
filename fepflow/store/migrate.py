"""Migrations of a database to the newest schema, or back to an older one."""

from __future__ import annotations

import threading
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from fepflow.errors import InfrastructureError, UserError

if TYPE_CHECKING:
    from alembic.config import Config

# Alembic is imported where it is needed: loading it takes 0.15 s, and a database is upgraded once.

_MIGRATIONS = Path(__file__).parent / "migrations"
_VERSION_TABLE = "alembic_version"
_ADVISORY_LOCK = 7_305_808_869_230_650  # any number, the same in every version
UNRELEASED = ["the first 0001", *(f"{number:04}" for number in range(2, 15))]
"""Revisions of stores that were written before `0001` became the schema of the first release."""

_one_at_a_time = threading.Lock()  # alembic keeps the migration that is under way in globals


def migrations(connection: Connection) -> Config:
    """Return Alembic's configuration for our migrations, to run on `connection`."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def loaded_alembic() -> ModuleType:
    """Return Alembic's commands. Thirty processes at once take seconds to load it, so none does that under the lock."""
    from alembic import command

    return command


def is_current(connection: Connection) -> bool:
    """Return whether the database has the newest schema; takes no lock."""
    return revision_of(connection) == revisions()[-1]


def revision_of(connection: Connection) -> str | None:
    """Return the revision of the database's schema; None where there is none."""
    tables = inspect(connection)
    if not tables.has_table(_VERSION_TABLE):
        return None
    revision = connection.scalar(text(f"SELECT version_num FROM {_VERSION_TABLE}"))  # noqa: S608  # a name of ours
    if revision == "0001" and not tables.has_table("blob"):
        return UNRELEASED[0]
    return None if revision is None else str(revision)


def revisions() -> list[str]:
    """Return all revisions that this program knows, oldest first. The migrations' files begin with their numbers."""
    return sorted(path.name[:4] for path in (_MIGRATIONS / "versions").glob("[0-9]*.py"))


def migrate(connection: Connection, location: str, to: str, *, back: bool) -> tuple[str | None, str]:
    """Bring the schema to the revision `to` inside the connection's transaction, one process at a time.

    Returns the revision before, None for an empty database, and after. SQLite's BEGIN IMMEDIATE is the lock there;
    PostgreSQL has one for the purpose. A migration that dies half-way leaves nothing behind. Raises
    InfrastructureError if the database is newer than this program, UserError for a revision that is not there, and
    for an older one without `back`.
    """
    command = loaded_alembic()
    known = revisions()
    if to not in known:
        raise UserError(f"There is no schema {to}: this fepflow knows {', '.join(known)}.")
    with _one_at_a_time:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
        before = revision_of(connection)
        if before is not None and before not in known:
            raise InfrastructureError(unknown(location, before))
        if before is not None and to < before and not back:
            raise UserError(
                f"{location} has schema {before}; {to} is older, and what it has no place for would be lost: take a "
                "backup (`fepflow store backup`), then add --yes."
            )
        if before == to:  # another process was faster
            return before, to
        move = command.downgrade if before is not None and to < before else command.upgrade
        move(migrations(connection), to)
    return before, to


def unknown(location: str, revision: str) -> str:
    """Return a sentence about a schema that this program does not know, and what to do."""
    if revision in UNRELEASED:
        return (
            f"{location} was written by a fepflow from before the first release (its schema is {revision}), which "
            "is not upgraded: keep it for that fepflow, and name another database in FEPFLOW_STORE_URL, or move the "
            "file away."
        )
    return (
        f"{location} was written by a newer fepflow (its schema is {revision}): upgrade fepflow, or name another "
        "database in FEPFLOW_STORE_URL."
    )
