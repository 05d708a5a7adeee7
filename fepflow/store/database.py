"""The connection to the store's database, set up so that many processes can share it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from sqlalchemy import URL, ColumnElement, Connection, Engine, Select, Table, collate, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError
from sqlalchemy.orm import Session
from tenacity import (
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    stop_after_delay,
    wait_random,
    wait_random_exponential,
)

from fepflow.errors import InfrastructureError, MissingExtraError, UserError
from fepflow.extras import sentence
from fepflow.security.redaction import remember
from fepflow.security.secret_names import secrets_in_address
from fepflow.store.errors import is_busy, is_passing, is_retryable, location_of, translated
from fepflow.store.migrate import is_current, loaded_alembic, migrate, revisions

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite

BUSY_TIMEOUT = 5.0
"""Seconds that a writer waits for another one on SQLite."""

CONNECT_TIMEOUT = 10
"""Seconds after which a PostgreSQL server that does not answer is away, unless the URL has a `connect_timeout`."""

T = TypeVar("T")


class _DBAPIConnection(Protocol):
    isolation_level: str | None

    def execute(self, statement: str, /) -> Any: ...


class Database:
    """An engine with transactions for reading and for writing. Thread-safe.

    `create` makes the SQLite file (0600, in a folder of 0700) where there is none. The schema stays as it is, which
    may be none at all. `wait_seconds` is how long a database that is away or locked is waited for.

    Raises UserError for a URL that cannot be a store, InfrastructureError for one without its file,
    MissingExtraError for one without its driver.
    """

    def __init__(self, url: str, *, create: bool = True, wait_seconds: float = 0.0) -> None:
        parsed = _parse(url)
        self._wait_seconds = wait_seconds
        self.location = location_of(parsed)
        self.file = Path(str(parsed.database)) if parsed.get_backend_name() == "sqlite" else None
        if self.file and create:
            self._create_file(self.file)
        elif self.file and not self.file.is_file():
            raise InfrastructureError(f"{self.location} is not there: the first `fepflow run` makes it.")
        self.engine = _engine(parsed, self.location)

    @classmethod
    def open(cls, url: str, wait_seconds: float = 0.0) -> Self:
        """The database with the newest schema; raises InfrastructureError, too, when it is unavailable."""
        database = cls(url, wait_seconds=wait_seconds)
        try:
            with database.reading() as connection:
                current = is_current(connection)
            if not current:
                database.migrate()
        except BaseException:
            database.close()
            raise
        return database

    def waiting(self, wait_seconds: float) -> Self:
        """The same database with the same connections, and another time to wait for one that is away."""
        same = copy(self)
        same._wait_seconds = wait_seconds
        return same

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection in a transaction that sees one state of the database and never waits for writers."""
        with translated(self.location), self._retry_while_away(self._snapshot) as connection:
            yield connection

    def _snapshot(self) -> Connection:
        snapshot = {} if self.file else {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        connection = self.engine.connect().execution_options(**snapshot)
        if self.file:
            try:
                # The first read alone may find the file locked: while another process changes its journal, or closes it
                # as the last one.
                connection.exec_driver_sql("PRAGMA schema_version")
            except BaseException:
                connection.close()
                raise
        return connection

    def write(self, work: Callable[[Connection], T]) -> T:
        """What `work` returns, once its transaction is committed.

        Called again if PostgreSQL asks for that, and, within `wait_seconds`, if the database was away or locked: work
        that was committed without our hearing of it has to do no harm a second time.
        """
        retrying = Retrying(
            retry=retry_if_exception(is_retryable),
            stop=stop_after_attempt(8),
            wait=wait_random_exponential(multiplier=0.05, max=1),
            reraise=True,
        )
        with translated(self.location):
            result: T = self._retry_while_away(lambda: retrying(self._transact, work))
            return result

    def _retry_while_away(self, work: Callable[[], T]) -> T:
        retrying = Retrying(
            retry=retry_if_exception(is_passing),
            stop=stop_after_delay(self._wait_seconds),
            wait=wait_random_exponential(multiplier=0.1, max=1),
            reraise=True,
        )
        result: T = retrying(work)
        return result

    def write_once(self, work: Callable[[Connection], T]) -> T:
        """As `write`, for work that cannot be done twice: only the beginning of its transaction is tried again."""
        writing = self.engine.execution_options(writes=True)
        with translated(self.location), ExitStack() as transaction:
            # Nothing is done yet when SQLite refuses a writer.
            connection = self._retry_while_away(lambda: transaction.enter_context(writing.begin()))
            return work(connection)

    def migrate(self, to: str | None = None, *, back: bool = False) -> tuple[str | None, str]:
        """Bring the schema to the newest revision or to another, with `back` to an older one; all of it or nothing.

        Returns the revision before, None for an empty database, and after.

        Raises InfrastructureError for a schema newer than this program, UserError for a revision that is not there,
        and for an older one without `back`.
        """
        loaded_alembic()
        # Altering a table may mean copying and dropping it, which must not take the rows that refer to it along.
        migrating = self.engine.execution_options(writes=True, migrates=True)

        def move() -> tuple[str | None, str]:
            with migrating.begin() as connection:
                return migrate(connection, self.location, to or revisions()[-1], back=back)

        with translated(self.location):
            moved = self._retry_while_away(move)
        self.engine.dispose()  # the connection without foreign keys
        return moved

    def by_code_points(self, column: ColumnElement[str]) -> ColumnElement[str]:
        """`column` to order by: each PostgreSQL database has an order of text of its own, SQLite has this one."""
        return column if self.file else collate(column, "C")

    @contextmanager
    def outside_transactions(self) -> Iterator[Connection]:
        """A connection for the commands that SQLite takes outside of transactions only."""
        with translated(self.location), self.engine.connect().execution_options(autocommits=True) as connection:
            yield connection

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
                f"{self.location} cannot be opened ({error.strerror}): make the file and its folder writable for this "
                "user, or name another in FEPFLOW_STORE_URL."
            ) from error


def now_of(connection: Connection) -> datetime:
    """The time by the database's clock, of which those who share the database have one only."""
    if connection.dialect.name == "postgresql":
        moment: datetime = connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one()
        return moment.astimezone(UTC)
    told = connection.exec_driver_sql("SELECT strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now')").scalar_one()
    return datetime.fromisoformat(told)


def upserting(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """An INSERT in the database's own dialect, which has ON CONFLICT."""
    # Each is imported where it is used: a store on SQLite needs nothing of PostgreSQL's.
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as postgresql_insert

        return postgresql_insert(table)
    from sqlalchemy.dialects.sqlite import insert as sqlite_insert

    return sqlite_insert(table)


def records(connection: Connection, statement: Select[tuple[T]]) -> list[T]:
    """Return rows as records, which belong to no session."""
    with Session(connection) as session:
        return list(session.scalars(statement))


class Repository:
    """Base of the repositories, which share one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def _records(self, statement: Select[tuple[T]]) -> list[T]:
        with self._database.reading() as connection:
            return records(connection, statement)


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
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
    if backend == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise UserError(
            "The store has to be a file, because the processes of a run share it: write sqlite:////path/to/file.db."
        )
    if backend == "postgresql" and url.partition("://")[2].partition("?")[0].count("@") > 1:
        raise UserError("The address of the store (FEPFLOW_STORE_URL) holds several @: write one in a password as %40.")
    remember(secrets_in_address(url))
    return parsed.set(drivername="sqlite" if backend == "sqlite" else "postgresql+psycopg")


def _engine(url: URL, location: str) -> Engine:
    sqlite = url.get_backend_name() == "sqlite"
    timeout = {"timeout": BUSY_TIMEOUT} if sqlite else {"connect_timeout": CONNECT_TIMEOUT}
    connect_args = {name: value for name, value in timeout.items() if name not in url.query}
    try:
        engine = create_engine(
            url,
            hide_parameters=True,  # what users evaluate does not belong into an error
            pool_pre_ping=not sqlite,
            connect_args=connect_args,
        )
    except (ModuleNotFoundError, NoSuchModuleError):
        raise MissingExtraError(sentence(location, "a driver", "postgres")) from None
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
    options = connection.get_execution_options()
    if options.get("autocommits"):
        return
    if options.get("migrates"):
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")  # inside a transaction it has no effect
    connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("writes") else "BEGIN")
