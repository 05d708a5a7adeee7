"""Whether a store is whole: its schema, its file, and that every row has its parent and can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Column, Connection, Table, Text, and_, func, select, type_coerce

from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.columns import EscapedText, JsonText
from fepflow.store.database import Database
from fepflow.store.migrate import revision_of, revisions, unknown
from fepflow.store.records import CASE, CHECK_RESULT, METADATA, OUTPUT, RUN

SPELLED_OUT = 20
"""Rows of a kind that are named; the others are counted."""

_ROWS_AT_ONCE = 1_000
_READERS: dict[Column[Any], Callable[[Any], object]] = {
    CASE.c.data: TestCase.model_validate,
    CHECK_RESULT.c.result: CheckResult.model_validate,
    OUTPUT.c.metadata: lambda metadata: Output(value=None, metadata=metadata),
}


@dataclass
class StoreReport:
    """What was found. `rows` are counted by table; `problems` are sentences, none of them for a store that is whole."""

    location: str
    version: str
    revision: str | None
    rows: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def check_integrity(url: str) -> StoreReport:
    """Read everything in the store at `url` and change nothing. Raises FepflowError if it cannot be opened."""
    database = Database(url, create=False)
    try:
        with database.reading() as connection:
            report = StoreReport(database.location, _version(connection), revision_of(connection))
            report.problems += _damage(connection)
            if problem := _schema_problem(report):
                report.problems.append(problem)
                return report
            report.rows = {table.name: _count(connection, table) for table in METADATA.sorted_tables}
            for kind in (_miscounted(connection), _orphans(connection), _unreadable(connection)):
                report.problems += _shortened(kind)
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
    """What SQLite finds wrong with its file; PostgreSQL verifies its pages itself when it reads them."""
    if connection.dialect.name == "sqlite":
        found = connection.exec_driver_sql(f"PRAGMA integrity_check({SPELLED_OUT})").scalars()
        yield from (f"The file is damaged: {line}." for line in found if line != "ok")


def _count(connection: Connection, table: Table) -> int:
    return connection.scalar(select(func.count()).select_from(table)) or 0


def _miscounted(connection: Connection) -> Iterator[str]:
    there = select(func.count()).where(CASE.c.run_id == RUN.c.id).scalar_subquery()
    for run_id, expected, options, found in connection.execute(
        select(RUN.c.id, RUN.c.n_cases, RUN.c.options, there).where(RUN.c.n_cases != there)
    ):
        # A run that may be extended has its further cases, too.
        if found != ((options or {}).get("sample") or {}).get("cases", expected):
            yield f"Run {run_id} has {found} test cases, not {expected}."


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
    orphans = select(*table.primary_key).select_from(joined).where(pairs[0][1].is_(None))
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


def _row(table: Table, key: Any) -> str:
    return f"{table.name} {'/'.join(map(str, key))}"


def _shortened(problems: Iterator[str]) -> Iterator[str]:
    more = 0
    for number, problem in enumerate(problems):
        if number < SPELLED_OUT:
            yield problem
        else:
            more += 1
    if more:
        yield f"… and {more:,} more like these."
