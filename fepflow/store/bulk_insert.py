"""Many rows in few statements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Dialect, Table

ROWS_AT_ONCE = 50
"""Rows of one statement. At each statement a driver lets Python's other threads go first: with a row a statement,
writing waits for all that the process has to compute."""

Row = dict[str, Any]


def insert_new(connection: Connection, table: Table, rows: Sequence[Row]) -> None:
    """Insert rows that have a value for each column; those whose key is there already are left out."""
    dialect = connection.dialect
    columns = _columns(table, dialect)
    for start in range(0, len(rows), ROWS_AT_ONCE):
        some = rows[start : start + ROWS_AT_ONCE]
        values = tuple(row[name] if bind is None else bind(row[name]) for row in some for name, bind in columns)
        connection.exec_driver_sql(_statement(table, dialect, len(some)), values)


@lru_cache(maxsize=16)
def _columns(table: Table, dialect: Dialect) -> list[tuple[str, Callable[[Any], Any] | None]]:
    """Each column's name, and what makes its values such as the driver takes."""
    return [(column.name, column.type.dialect_impl(dialect).bind_processor(dialect)) for column in table.columns]


@lru_cache(maxsize=2 * ROWS_AT_ONCE)
def _statement(table: Table, dialect: Dialect, count: int) -> str:
    names = [dialect.identifier_preparer.format_column(column) for column in table.columns]
    placeholder = "?" if dialect.paramstyle == "qmark" else "%s"
    row = f"({', '.join(placeholder for _ in names)})"
    into = f"{dialect.identifier_preparer.format_table(table)} ({', '.join(names)})"
    return f"INSERT INTO {into} VALUES {', '.join([row] * count)} ON CONFLICT DO NOTHING"  # noqa: S608  # names of ours
