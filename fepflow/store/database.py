"""The connection to the store's database, set up so that many processes can share it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from tenacity import (
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    stop_after_delay,
    wait_random,
    wait_random_exponential,
)

from fepflow.errors import InfrastructureError, UserError
from fepflow.store.faults import is_busy, is_retryable, place_of, translated
from fepflow.store.schema import is_current, upgrade

BUSY_TIMEOUT = 5.0
"""Seconds that a writer waits for another one."""

T = TypeVar("T")


class _DBAPIConnection(Protocol):
    isolation_level: str | None

    def execute(self, statement: str, /) -> Any: ...


class Database:
    """An engine with transactions for reading and for writing. Thread-safe.

    Opening creates the file (0600, in a folder of 0700) where there is none, and upgrades the schema. Raises
    UserError for a URL that cannot be a store, InfrastructureError for a database that is in the way.
    """

    def __init__(self, url: str) -> None:
        address = _parse(url)
        self.place = place_of(address)
        if address.get_backend_name() == "sqlite":
            self._create_file(Path(str(address.database)))
        self.engine = _engine(address, self.place)
        try:
            with self.reading() as connection:
                current = is_current(connection)
            if not current:
                self.write(lambda connection: upgrade(connection, self.place))
        except BaseException:
            self.close()
            raise

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection in a transaction that sees one state of the database (on SQLite) and never waits for writers."""
        with translated(self.place), self.engine.connect() as connection:
            yield connection

    def write(self, work: Callable[[Connection], T]) -> T:
        """What `work` returns, once its transaction is committed; called again if PostgreSQL asks for that."""
        retrying = Retrying(
            retry=retry_if_exception(is_retryable),
            stop=stop_after_attempt(8),
            wait=wait_random_exponential(multiplier=0.05, max=1),
            reraise=True,
        )
        with translated(self.place):
            result: T = retrying(self._transact, work)
            return result

    def write_once(self, work: Callable[[Connection], T]) -> T:
        """As `write`, for work that cannot be done twice."""
        with translated(self.place):
            return self._transact(work)

    def close(self) -> None:
        """Give all connections back."""
        self.engine.dispose()

    def _transact(self, work: Callable[[Connection], T]) -> T:
        with self.engine.execution_options(writes=True).begin() as connection:
            return work(connection)

    def _create_file(self, path: Path) -> None:
        # SQLite gives its -wal and -shm files the permissions of the database.
        try:
            for folder in reversed([folder for folder in path.absolute().parents if not folder.exists()]):
                folder.mkdir(mode=0o700, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as error:
            raise InfrastructureError(
                f"{self.place} cannot be opened ({error.strerror}): make the file and its folder writable for this "
                "user, or name another in FEPFLOW_STORE_URL."
            ) from error


class DatabaseUser:
    """Base of the store's parts: each is about some of the tables of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database


def _parse(url: str) -> URL:
    try:
        address = make_url(url)
        backend = address.get_backend_name()
    except (ArgumentError, ValueError):  # the latter for a port that is no number
        raise UserError(
            "The address of the store (FEPFLOW_STORE_URL) is not a database URL: write sqlite:////path/to/file.db or "
            "postgresql://user:password@host/database."
        ) from None
    if backend not in ("sqlite", "postgresql"):
        raise UserError(
            f"The store cannot be a {backend} database (FEPFLOW_STORE_URL): use sqlite:////path/to/file.db or "
            "postgresql://user:password@host/database."
        )
    if backend == "sqlite" and address.database in (None, "", ":memory:"):
        raise UserError(
            "The store has to be a file, because the processes of a run share it: write sqlite:////path/to/file.db."
        )
    return address.set(drivername="sqlite" if backend == "sqlite" else "postgresql+psycopg")


def _engine(address: URL, place: str) -> Engine:
    sqlite = address.get_backend_name() == "sqlite"
    try:
        engine = create_engine(
            address,
            hide_parameters=True,  # what users evaluate is nobody's to read in an error
            pool_pre_ping=not sqlite,
            connect_args={"timeout": BUSY_TIMEOUT} if sqlite else {},
        )
    except (ModuleNotFoundError, NoSuchModuleError):
        raise InfrastructureError(
            f"{place} needs a driver that is not installed: `pip install 'psycopg[binary]'`."
        ) from None
    if sqlite:
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: _DBAPIConnection, record: object) -> None:
    connection.isolation_level = None  # the driver begins no transactions; _begin_sqlite does
    # The mode stays with the file. SQLite answers "locked" at once when two processes set it for the first time.
    Retrying(
        retry=retry_if_exception(is_busy), stop=stop_after_delay(BUSY_TIMEOUT), wait=wait_random(0, 0.05), reraise=True
    )(connection.execute, "PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that reads first and writes later fails at once when another process wrote in between.
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
