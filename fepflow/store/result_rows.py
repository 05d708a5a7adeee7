"""New outputs and check results as rows, and many rows in few statements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    Connection,
    Dialect,
    Row,
    Table,
)

from fepflow.json.codec import Encoded, encode, may_be_deep
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckError, CheckResult
from fepflow.store.records import (
    NewCheckResult,
    NewOutput,
)
from fepflow.store.tables import (
    CHECK_RESULT,
    OUTPUT,
)


def insert_results(
    run_id: str, outputs: Sequence[NewOutput], checks: Sequence[NewCheckResult] = ()
) -> Callable[[Connection], None]:
    """What inserts the rows, see `Results.write`; they are made here, once."""
    now = utc_now()
    output_rows = [output_row(run_id, new, now) for new in sorted(outputs, key=output_key)]
    check_rows = [check_row(run_id, new, now) for new in sorted(checks, key=check_key)]

    def insert_both(connection: Connection) -> None:
        insert_new(connection, OUTPUT, output_rows)
        insert_new(connection, CHECK_RESULT, check_rows)

    return insert_both


def output_key(new: NewOutput) -> tuple[int, int]:
    """The order in which outputs are inserted."""
    return new.case_index, new.repeat


def check_key(check: NewCheckResult | Row[Any]) -> tuple[int, int, str]:
    """The order of check results; of rows, too: each PostgreSQL database orders text by a language's own rules."""
    return check.case_index, check.repeat, check.check_id


def output_row(run_id: str, new: NewOutput, now: datetime) -> dict[str, Any]:
    """The row of an output; of a failed one if its value has no JSON form."""
    failed, output_id = new.output.failure is not None, new.output.id
    try:
        value = encode(new.output.value)
        metadata = None if new.output.metadata is None else encode(new.output.metadata)
    except ValueError as error:
        failed, value = True, encode(None)
        metadata = encode({"error": _no_json_form("output", error).model_dump()})
    return {
        "run_id": run_id,
        "case_index": new.case_index,
        "repeat": new.repeat,
        "content_hash": new.content_hash,
        "output_id": output_id,
        "value": value,
        "metadata": metadata,
        "failed": failed,
        "created_at": now,
    }


def check_row(run_id: str, new: NewCheckResult, now: datetime) -> dict[str, Any]:
    """The row of a check result; of one in status error if it has no JSON form."""
    result, passed = new.result, new.passed
    try:
        text = _encode_result(result)
    except ValueError as error:
        passed = None
        result = CheckResult(
            check_type=result.check_type,
            status="error",
            results={},
            evaluated_at=result.evaluated_at,
            metadata={"check_id": new.check_id},
            error=_no_json_form("check's result", error),
        )
        text = encode(result.model_dump())
    return {
        "run_id": run_id,
        "case_index": new.case_index,
        "repeat": new.repeat,
        "check_id": new.check_id,
        "content_hash": new.content_hash,
        "check_type": result.check_type,
        "status": result.status,
        "passed": passed,
        "result": text,
        "created_at": now,
    }


def _encode_result(result: CheckResult) -> Encoded:
    """As `encode`, in half the time for a result without anything that pydantic writes in another way."""
    try:
        text = result.model_dump_json()
    except ValueError:
        return encode(result.model_dump())
    plain = text.isascii() and not any(word in text for word in ("NaN", "Infinity", '$float":'))
    return Encoded(text) if plain and not may_be_deep(text) else encode(result.model_dump())


def _no_json_form(what: str, error: ValueError) -> CheckError:
    return CheckError(type="validation_error", message=f"The {what} has no JSON form: {error}", recoverable=False)


ROWS_AT_ONCE = 50
"""Rows of one statement. At each statement a driver lets Python's other threads go first: with a row a statement,
writing waits for all that the process has to compute."""


def insert_new(connection: Connection, table: Table, rows: Sequence[dict[str, Any]]) -> None:
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
