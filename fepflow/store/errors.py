"""Database errors as sentences: what is wrong, where, what to do. Never SQL, a parameter or a password."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from fepflow.errors import InfrastructureError

_SQLITE_ADVICE = {
    sqlite3.SQLITE_BUSY: (
        "is locked by another process",
        "another run, a backup or a database browser holds it for longer than 5 seconds; end that and try again",
    ),
    sqlite3.SQLITE_FULL: ("is full", "free space on its disk, then go on with `fepflow run --resume`"),
    sqlite3.SQLITE_IOERR: ("cannot be read or written", "look at its disk: free space, quota, mount"),
    sqlite3.SQLITE_READONLY: ("is read-only", "make the file and its folder writable for this user"),
    sqlite3.SQLITE_CANTOPEN: ("cannot be opened", "make the file and its folder readable and writable for this user"),
    sqlite3.SQLITE_PERM: ("cannot be opened", "make the file and its folder readable and writable for this user"),
    sqlite3.SQLITE_NOTADB: ("is not a database", "name another file in FEPFLOW_STORE_URL, or move this one away"),
    sqlite3.SQLITE_CORRUPT: ("is damaged", "restore it from a backup, or move the file away to begin a new one"),
}
_SQLSTATE_ADVICE = {
    "08": (
        "cannot be reached",
        "check that the server is up and that FEPFLOW_STORE_URL names its host, port, database, user and password",
    ),
    "28": ("refuses this user", "check the user and the password in FEPFLOW_STORE_URL"),
    "3D": ("does not exist", "create the database, or name another in FEPFLOW_STORE_URL"),
    "42": ("does not allow this user to do this", "grant the user the rights to the tables"),
    "53": ("is out of disk, memory or connections", "free some and try again"),
    "57": ("is shutting down or starting", "try again when it is up"),
}
_RETRYABLE_SQLSTATES = {"40001", "40P01"}  # serialization failure, deadlock: the same transaction may succeed now


def location_of(url: URL) -> str:
    """Where the store is, for people: without the user, the password and the query, which may hold one too."""
    if url.get_backend_name() == "sqlite":
        return f"The store {url.database}"
    port = f":{url.port}" if url.port else ""
    return f"The store {url.get_backend_name()}://{url.host or ''}{port}/{url.database or ''}"


def is_retryable(error: BaseException) -> bool:
    """Whether PostgreSQL asks for the transaction to be tried again."""
    return isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) in _RETRYABLE_SQLSTATES


def is_passing(error: BaseException) -> bool:
    """Whether it may be over in a moment: another process holds SQLite's file, PostgreSQL is started anew."""
    if not isinstance(error, DBAPIError):
        return False
    return _sqlite_code(error.orig) == sqlite3.SQLITE_BUSY or (_state_of(error) or "")[:2] in ("08", "57")


def is_busy(error: BaseException | None) -> bool:
    """Whether SQLite's driver found the file locked."""
    return _sqlite_code(error) == sqlite3.SQLITE_BUSY


@contextmanager
def translated(location: str) -> Iterator[None]:
    """Turn what SQLAlchemy raises inside into an InfrastructureError about `location`."""
    try:
        yield
    except PoolTimeoutError as error:
        raise InfrastructureError(
            f"{location} has too many readers at once: try again with less concurrency."
        ) from error
    except IntegrityError as error:
        raise InfrastructureError(
            f"{location} refused rows ({_message(error)}): the run or the test case they belong to is not there "
            "(any more)."
        ) from error
    except DBAPIError as error:
        raise InfrastructureError(_sentence(location, error)) from error
    except SQLAlchemyError as error:
        raise InfrastructureError(f"{location} failed: {error}") from error


def _sentence(location: str, error: DBAPIError) -> str:
    known = _SQLSTATE_ADVICE.get((_state_of(error) or "")[:2]) or _SQLITE_ADVICE.get(_sqlite_code(error.orig) or -1)
    if known is None:
        return f"{location} failed: {_message(error)}"
    what, advice = known
    return f"{location} {what} ({_message(error)}): {advice}."


def _state_of(error: DBAPIError) -> str | None:
    state: str | None = getattr(error.orig, "sqlstate", None)
    if state is None and _sqlite_code(error.orig) is None and isinstance(error, OperationalError):
        return "08"  # libpq reports a connection that never came about, or was cut, without a SQLSTATE
    return state


def _message(error: DBAPIError) -> str:
    """The database's own words in a line, without PostgreSQL's details: they show what is in the row."""
    diagnosis = getattr(error.orig, "diag", None)
    primary = getattr(diagnosis, "message_primary", None)
    return str(primary or " ".join(str(error.orig).split()))


def _sqlite_code(error: BaseException | None) -> int | None:
    """SQLite's primary result code: the low byte of the extended one."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else int(code) & 0xFF
