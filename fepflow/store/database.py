"""The connection to the store's database, set up so that many processes can share it, and the types of its columns."""

from __future__ import annotations

import errno
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, overload

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    DateTime,
    Dialect,
    Engine,
    Executable,
    Row,
    Select,
    Table,
    Text,
    collate,
    create_engine,
    event,
    make_url,
)
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    IntegrityError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session
from sqlalchemy.types import TypeDecorator
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
from fepflow.json.values import Encoded, decode, encode
from fepflow.security.redaction import remember, secrets_in_address
from fepflow.store.migrate import is_current, loaded_alembic, migrate, revisions

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite


MAX_INDEXED = 2_000
"""Letters of a text, escapes included, that fit into an index; PostgreSQL's limit is 2,700."""
_KEPT = 100
SHORTEST_CUT = _KEPT + len(r"\u2026 ") + 64
"""The least number of letters in the column of a text that `indexable` has cut: its beginning, and a SHA-256."""

_PLAIN = re.compile(r"[ !#-\[\]-~]*")  # what JSON writes as it is


class JsonText(TypeDecorator[Any]):
    """A JSON value in a TEXT column, by `fepflow.json.values`; None is JSON's `null`."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Encode the value, unless it is encoded already."""
        return str(value) if isinstance(value, Encoded) else str(encode(value))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """Decode the value."""
        return None if value is None else decode(value)


class OptionalJson(JsonText):
    """A JSON value in a nullable TEXT column; None is SQL's NULL."""

    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Encode the value; None stays."""
        return None if value is None else super().process_bind_param(value, dialect)


class EscapedText(TypeDecorator[str]):
    """Text with JSON's escapes, so that names and messages may hold NUL characters and lone surrogates."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Escape the text."""
        if value is None or _PLAIN.fullmatch(value):
            return value
        return json.dumps(value)[1:-1]

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Undo the escapes."""
        return value if value is None or "\\" not in value else str(json.loads(f'"{value}"'))


class UtcDateTime(TypeDecorator[datetime]):
    """An aware time, in UTC on both sides; SQLite has no time zones of its own."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert the time to UTC."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Give the time its zone."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


@overload
def indexable(text: str, limit: int = MAX_INDEXED) -> str: ...
@overload
def indexable(text: str | None, limit: int = MAX_INDEXED) -> str | None: ...
def indexable(text: str | None, limit: int = MAX_INDEXED) -> str | None:
    """Return a text that fits into an index: a longer one is cut, and a SHA-256 tells it from others.

    `limit`: letters, escapes included. The columns of an index share its limit.
    """
    if text is None or len(encode(text)) <= limit:
        return text
    return f"{text[:_KEPT]}… {sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


KEYS_AT_ONCE = 500
"""Keys that one statement looks for."""

BUSY_TIMEOUT = 5.0
"""Seconds that a writer waits for another one on SQLite."""

CONNECT_TIMEOUT = 10
"""Seconds after which a PostgreSQL server that does not answer is away, unless the URL has a `connect_timeout`."""

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
        self.location = _location_of(parsed)
        self.file = Path(str(parsed.database)) if parsed.get_backend_name() == "sqlite" else None
        if self.file and create:
            self._create_file(self.file)
        elif self.file and not self.file.is_file():
            raise InfrastructureError(f"{self.location} is not there: the first `fepflow run` makes it.")
        self.engine = _engine(parsed, self.location)

    @classmethod
    def open(cls, url: str, wait_seconds: float = 0.0) -> Self:
        """Open the database with the newest schema; raises InfrastructureError, too, when it is unavailable."""
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
        """Return the same database with the same connections, and another time to wait for one that is away."""
        same = copy(self)
        same._wait_seconds = wait_seconds
        return same

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a connection in a transaction that sees one state of the database and never waits for writers."""
        with _translated(self.location), self._retry_while_away(self._snapshot) as connection:
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
        """Call `work` in a transaction, and return its result once that is committed.

        It is called again if PostgreSQL asks for that, and, within `wait_seconds`, if the database was away or locked:
        work that was committed without our hearing of it has to do no harm a second time.
        """
        retrying = Retrying(
            retry=retry_if_exception(_is_retryable),
            stop=stop_after_attempt(8),
            wait=wait_random_exponential(multiplier=0.05, max=1),
            reraise=True,
        )
        with _translated(self.location):
            result: T = self._retry_while_away(lambda: retrying(self._transact, work))
            return result

    def _retry_while_away(self, work: Callable[[], T]) -> T:
        retrying = Retrying(
            retry=retry_if_exception(_is_passing),
            stop=stop_after_delay(self._wait_seconds),
            wait=wait_random_exponential(multiplier=0.1, max=1),
            reraise=True,
        )
        result: T = retrying(work)
        return result

    def write_once(self, work: Callable[[Connection], T]) -> T:
        """Do work that cannot be done twice: unlike in `write`, only the start of its transaction is tried again."""
        writing = self.engine.execution_options(writes=True)
        with _translated(self.location), ExitStack() as transaction:
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

        with _translated(self.location):
            moved = self._retry_while_away(move)
        self.engine.dispose()  # the connection without foreign keys
        return moved

    def by_code_points(self, column: ColumnElement[str]) -> ColumnElement[str]:
        """Return a column to order by code points, as SQLite does; each PostgreSQL database has an order of its own."""
        return column if self.file else collate(column, "C")

    @contextmanager
    def outside_transactions(self) -> Iterator[Connection]:
        """Yield a connection for commands that SQLite takes outside of transactions only."""
        with _translated(self.location), self.engine.connect().execution_options(autocommits=True) as connection:
            yield connection

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def _transact(self, work: Callable[[Connection], T]) -> T:
        with self.engine.execution_options(writes=True).begin() as connection:
            return work(connection)

    def _create_file(self, path: Path) -> None:
        # SQLite gives its -wal and -shm files the permissions of the database.
        try:
            for folder in reversed([folder for folder in path.absolute().parents if not folder.exists()]):
                folder.mkdir(mode=0o700, exist_ok=True)
            os.close(os.open(os.path.realpath(path), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except FileExistsError:
            # It is not opened here: closing any descriptor of the file takes this process's locks on it away (POSIX),
            # also those of a connection that is open. Others would then remove the log that it reads and writes.
            if path.is_dir() or not os.access(path, os.R_OK | os.W_OK):
                reason = os.strerror(errno.EISDIR if path.is_dir() else errno.EACCES)
                raise InfrastructureError(self._not_opened(reason)) from None
        except OSError as error:
            raise InfrastructureError(self._not_opened(error.strerror)) from error

    def _not_opened(self, reason: str | None) -> str:
        return (
            f"{self.location} cannot be opened ({reason}): make the file and its folder writable for this user, or "
            "name another in FEPFLOW_STORE_URL."
        )


def now_of(connection: Connection) -> datetime:
    """Return the time by the database's clock, the one clock that all users of the database share."""
    if connection.dialect.name == "postgresql":
        moment: datetime = connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one()
        return moment.astimezone(UTC)
    text = connection.exec_driver_sql("SELECT strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now')").scalar_one()
    return datetime.fromisoformat(text)


def upserting(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """Return an INSERT in the database's own dialect, which has ON CONFLICT."""
    # Each is imported where it is used: a store on SQLite needs nothing of PostgreSQL's.
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as postgresql_insert

        return postgresql_insert(table)
    from sqlalchemy.dialects.sqlite import insert as sqlite_insert

    return sqlite_insert(table)


def upsert(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows in the place of those with the same primary key."""
    new = upserting(connection, table)
    columns = {column.name: new.excluded[column.name] for column in table.columns if not column.primary_key}
    replacing = new.on_conflict_do_update(index_elements=list(table.primary_key.columns), set_=columns)
    if rows:
        connection.execute(replacing, rows)


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items in parts: a statement takes a limited number of parameters."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


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

    def _first(self, statement: Select[tuple[T]]) -> T | None:
        return next(iter(self._records(statement.limit(1))), None)

    def _rows(self, statement: Select[Any]) -> Sequence[Row[Any]]:
        with self._database.reading() as connection:
            return connection.execute(statement).all()

    def _scalar(self, statement: Select[tuple[T]]) -> T | None:
        with self._database.reading() as connection:
            return connection.scalar(statement)

    def _scalars(self, statement: Select[tuple[T]]) -> Sequence[T]:
        with self._database.reading() as connection:
            return connection.scalars(statement).all()

    def _execute(self, statement: Executable) -> int:
        """Execute a statement in a transaction of its own; return the number of rows that it changed."""
        return self._database.write(lambda connection: connection.execute(statement).rowcount)


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
    # The modes stay with the file. SQLite answers "locked" at once when two processes set them for the first time.
    Retrying(
        retry=retry_if_exception(_is_busy), stop=stop_after_delay(BUSY_TIMEOUT), wait=wait_random(0, 0.05), reraise=True
    )(_set_modes, connection)
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")  # else erased text stays in free pages; not every build's default


def _set_modes(connection: _DBAPIConnection) -> None:
    if connection.execute("PRAGMA page_count").fetchone() == (0,):  # it would wait for writers of a file that is in use
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that reads first and writes later fails at once when another process wrote in between.
    options = connection.get_execution_options()
    if options.get("autocommits"):
        return
    if options.get("migrates"):
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")  # inside a transaction it has no effect
    connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("writes") else "BEGIN")


def _location_of(url: URL) -> str:
    """Name the store for people: without the user, the password and the query, which may hold one, too."""
    if url.get_backend_name() == "sqlite":
        return f"The store {url.database}"
    port = f":{url.port}" if url.port else ""
    return f"The store {url.get_backend_name()}://{url.host or ''}{port}/{url.database or ''}"


def _is_retryable(error: BaseException) -> bool:
    """Return whether PostgreSQL asks for the transaction to be tried again."""
    return isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) in _RETRYABLE_SQLSTATES


def _is_passing(error: BaseException) -> bool:
    """Return whether the error may be over in a moment: SQLite's file is locked, PostgreSQL is restarted."""
    if not isinstance(error, DBAPIError):
        return False
    return _sqlite_code(error.orig) == sqlite3.SQLITE_BUSY or (_state_of(error) or "")[:2] in ("08", "57")


def _is_busy(error: BaseException | None) -> bool:
    """Return whether SQLite's driver found the file locked."""
    return _sqlite_code(error) == sqlite3.SQLITE_BUSY


@contextmanager
def _translated(location: str) -> Iterator[None]:
    """Turn SQLAlchemy's errors into an InfrastructureError about `location`: what is wrong, and what to do.

    Its message never holds SQL, a parameter or a password.
    """
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
    """Return the database's own words in a line, without PostgreSQL's details, which show what is in the row."""
    diagnosis = getattr(error.orig, "diag", None)
    primary = getattr(diagnosis, "message_primary", None)
    return str(primary or " ".join(str(error.orig).split()))


def _sqlite_code(error: BaseException | None) -> int | None:
    """Return SQLite's primary result code: the low byte of the extended one."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else int(code) & 0xFF
