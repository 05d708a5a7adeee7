"""Maintenance of a whole store: a check of its integrity, and a backup while others read and write it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any

from sqlalchemy import Column, Connection, Table, Text, and_, func, select, type_coerce

from fepflow.errors import InfrastructureError, UserError
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.blobs import AT_ONCE, Blobs, LostBlob
from fepflow.store.database import Database, EscapedText, JsonText, chunks
from fepflow.store.migrate import revision_of, revisions, unknown
from fepflow.store.records import BLOB, CASE, CHECK_RESULT, METADATA, OUTPUT, RUN
from fepflow.text import brief

SPELLED_OUT = 20
"""Rows of a kind that are named; the others are counted."""

_ROWS_AT_ONCE = 1_000
_READERS: dict[Column[Any], Callable[[Any], object]] = {
    CASE.c.data: TestCase.model_validate,
    CHECK_RESULT.c.result: CheckResult.model_validate,
    OUTPUT.c.metadata: lambda metadata: Output(value=None, metadata=metadata),
}
_NO_PG_DUMP = (
    "pg_dump, which makes backups of PostgreSQL, is not on PATH: install PostgreSQL's client programs of the server's "
    "version or newer, or run `pg_dump --format=custom` where they are."
)


@dataclass
class StoreReport:
    """The findings about a store. `rows` are counts by table; `problems` are sentences, none for a whole store, and
    `notes` are sentences about what does no harm."""

    location: str
    version: str
    revision: str | None
    rows: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def check_integrity(url: str) -> StoreReport:
    """Read everything in the store at `url`, and the blobs that FEPFLOW_BLOBS names, and change nothing.

    Raises FepflowError if the store cannot be opened, or the blobs cannot be reached.
    """
    database = Database(url, create=False)
    try:
        with database.reading() as connection:
            report = StoreReport(database.location, _version(connection), revision_of(connection))
            report.problems += _damage(connection)
            if problem := _schema_problem(report):
                report.problems.append(problem)
                return report
            report.rows = {
                table.name: connection.scalar(select(func.count()).select_from(table)) or 0
                for table in METADATA.sorted_tables
            }
            for kind in (_miscounted(connection), _orphans(connection), _unreadable(connection)):
                report.problems += _shortened(kind)
            used, noted = _blobs(connection)
            size = sum(noted[digest] for digest in used if digest in noted)
        if blobs := Blobs.of_settings():
            if used:
                report.notes.append(f"{len(used):,} large outputs are at {blobs.address} ({size / 1e6:,.1f} MB).")
            report.problems += _shortened(_lost_blobs(database, blobs, used))
            report.notes += _unused_blobs(database, blobs, len(noted.keys() - used.keys()))
        elif used:
            report.problems.append(
                f"{len(used):,} large outputs were not looked at, because FEPFLOW_BLOBS is not set here: set it to the "
                "address that the runs were written with."
            )
        return report
    finally:
        database.close()


def _version(connection: Connection) -> str:
    version = ".".join(map(str, connection.dialect.server_version_info or ()))
    return f"{'SQLite' if connection.dialect.name == 'sqlite' else 'PostgreSQL'} {version}"


def _schema_problem(report: StoreReport) -> str | None:
    if report.revision is None:
        return "The database has no tables of fepflow's: `fepflow store migrate` makes them."
    if report.revision not in revisions():
        return unknown(report.location, report.revision)
    if report.revision != revisions()[-1]:
        return (
            f"The schema is {report.revision}, and {revisions()[-1]} is the newest: `fepflow store migrate` upgrades "
            "it; rows were not looked at."
        )
    return None


def _damage(connection: Connection) -> Iterator[str]:
    """Yield the damage that SQLite finds in its file; PostgreSQL verifies its pages itself when it reads them."""
    if connection.dialect.name == "sqlite":
        lines = connection.exec_driver_sql(f"PRAGMA integrity_check({SPELLED_OUT})").scalars()
        yield from (f"The file is damaged: {line}." for line in lines if line != "ok")


def _miscounted(connection: Connection) -> Iterator[str]:
    n_rows = select(func.count()).where(CASE.c.run_id == RUN.c.id).scalar_subquery()
    for run_id, expected, options, count in connection.execute(
        select(RUN.c.id, RUN.c.n_cases, RUN.c.options, n_rows).where(RUN.c.n_cases != n_rows)
    ):
        # A run that may be extended has its further cases, too.
        if count != ((options or {}).get("sample") or {}).get("cases", expected):
            yield f"Run {run_id} has {count} test cases, not {expected}."


def _orphans(connection: Connection) -> Iterator[str]:
    for table in METADATA.sorted_tables:
        for constraint in table.foreign_key_constraints:
            pairs = [(element.parent, element.column) for element in constraint.elements]
            yield from _without_parent(connection, table, constraint.referred_table, pairs)
    same = [(CHECK_RESULT.c[name], OUTPUT.c[name]) for name in ("run_id", "case_index", "repeat")]
    yield from _without_parent(connection, CHECK_RESULT, OUTPUT, same)


def _without_parent(
    connection: Connection, table: Table, parent: Table, pairs: list[tuple[Column[Any], Column[Any]]]
) -> Iterator[str]:
    joined = table.outerjoin(parent, and_(*(child == its for child, its in pairs)))
    refers = (child.is_not(None) for child, _ in pairs)  # a row that refers to nothing is no orphan
    orphans = select(*table.primary_key).select_from(joined).where(pairs[0][1].is_(None), *refers)
    for key in connection.execute(orphans):
        yield f"{_row(table, key)} has no row in {parent.name}."


def _unreadable(connection: Connection) -> Iterator[str]:
    for table in METADATA.sorted_tables:
        columns = [column for column in table.c if isinstance(column.type, JsonText | EscapedText)]
        keys = list(table.primary_key)
        raw = [type_coerce(column, Text) for column in (*keys, *columns)]
        for row in connection.execute(select(*raw), execution_options={"yield_per": _ROWS_AT_ONCE}):
            for column, text in zip(columns, row[len(keys) :], strict=True):
                if reason := _unreadable_because(connection, column, text):
                    yield f"{_row(table, row[: len(keys)])}: {column.name} cannot be read ({reason})."


def _unreadable_because(connection: Connection, column: Column[Any], text: str | None) -> str | None:
    assert isinstance(column.type, JsonText | EscapedText)
    try:
        value = column.type.process_result_value(text, connection.dialect)
        if text is not None and column in _READERS:
            _READERS[column](value)
    except Exception as error:  # whatever stands there
        return type(error).__name__
    return None


def _blobs(connection: Connection) -> tuple[dict[str, str], dict[str, int]]:
    """Return the blobs that outputs refer to, each with one of these outputs; and the sizes of all that are noted."""
    keys = list(OUTPUT.primary_key)
    rows = connection.execute(select(OUTPUT.c.blob, *keys).where(OUTPUT.c.blob.is_not(None)).order_by(*keys))
    used: dict[str, str] = {}
    for digest, *key in rows:
        used.setdefault(digest, _row(OUTPUT, key))
    return used, {row.digest: row.size for row in connection.execute(select(BLOB.c.digest, BLOB.c.size))}


def _lost_blobs(database: Database, blobs: Blobs, used: Mapping[str, str]) -> Iterator[str]:
    for some in chunks(list(used), AT_ONCE):
        lost = {digest: blob for digest, blob in blobs.read(some).items() if isinstance(blob, LostBlob)}
        if lost:
            with database.reading() as connection:  # a run may have been deleted meanwhile
                missed = set(connection.scalars(select(OUTPUT.c.blob).where(OUTPUT.c.blob.in_(lost))))
            yield from (f"{used[digest]}: {blob.reason}" for digest, blob in lost.items() if digest in missed)


def _unused_blobs(database: Database, blobs: Blobs, unused: int) -> Iterator[str]:
    if unused:
        yield f"{unused:,} large outputs belong to no run any more: `fepflow store prune` deletes them."
    names = blobs.names()
    with database.reading() as connection:  # after the names, as a blob is noted before it is written
        noted = set(connection.scalars(select(BLOB.c.digest)))
    if strange := sorted(set(names) - noted):
        yield (
            f"{len(strange):,} files at {blobs.address} are not of this store, such as {brief(strange[0], 100)}: "
            "another store may use that address, too, or an older backup was restored."
        )


def _row(table: Table, key: Any) -> str:
    return f"{table.name} {'/'.join(map(str, key))}"


def _shortened(problems: Iterator[str]) -> Iterator[str]:
    yield from islice(problems, SPELLED_OUT)
    if more := sum(1 for _ in problems):
        yield f"… and {more:,} more like these."


def back_up(url: str, target: Path) -> str:
    """Write the store at `url` to the new file `target` (0600), and say where the store is.

    A SQLite store becomes a SQLite file, which is a store; one on PostgreSQL becomes an archive for pg_restore. When
    this fails there is no file. Raises UserError if there is something at `target` already, InfrastructureError.
    """
    database = Database(url, create=False)
    try:
        with _new_file(target) as file:
            try:
                if database.file:
                    with database.outside_transactions() as connection:
                        connection.exec_driver_sql("VACUUM INTO ?", (str(target),))
                else:
                    _dump(database, file)
                os.fsync(file.fileno())
            except BaseException:
                target.unlink()
                raise
        return database.location
    finally:
        database.close()


def _new_file(path: Path) -> IO[bytes]:
    try:
        return open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600), "wb")
    except FileExistsError:
        raise UserError(f"{path} already exists, and a backup overwrites nothing: name a new file.") from None
    except OSError as error:
        raise InfrastructureError(
            f"{path} cannot be written ({error.strerror}): name a file in a folder of yours."
        ) from error


def _dump(database: Database, file: IO[bytes]) -> None:
    program = shutil.which("pg_dump")
    if program is None:
        raise InfrastructureError(_NO_PG_DUMP)
    # By the environment, because all users of the machine see the arguments of a command.
    env = {**os.environ, **_libpq_variables(database)}
    command = [program, "--format=custom", "--no-password", "--no-owner", "--no-privileges"]
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE, check=False)  # noqa: S603  # a program of PATH, words of ours
    if done.returncode:
        errors = done.stderr.decode(errors="replace").strip().splitlines()
        raise InfrastructureError(
            f"{database.location} was not backed up: {' '.join(errors[-3:])}. If it is about versions: the first "
            f"pg_dump on PATH is {program}, and it has to be of the server's version or newer."
        )


def _libpq_variables(database: Database) -> dict[str, str]:
    """Return the variables that make PostgreSQL's programs use the database as we do."""
    from psycopg.pq import Conninfo

    _, parameters = database.engine.dialect.create_connect_args(database.engine.url)
    parameters = {"dbname" if name == "database" else name: value for name, value in parameters.items()}
    return {
        option.envvar.decode(): str(parameters[option.keyword.decode()])
        for option in Conninfo.get_defaults()
        if option.envvar and parameters.get(option.keyword.decode()) is not None
    }
