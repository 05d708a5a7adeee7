"""A run as Parquet: a row for each check of each output, as `to_dataframe()` has them, written as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from fepflow.extras import require
from fepflow.protocol.tables import COLUMNS, Kind, Row, as_columns, rows_of
from fepflow.store.records import RunRecord
from fepflow.store.store import Store

if TYPE_CHECKING:
    import pyarrow

MAX_ROWS = 20_000
MAX_CHARACTERS = 16_000_000
"""What is in memory at once, and a row group of the file: so many rows, or fewer with so much text."""

_TEXTS = ("input", "expected", "output", "results", "metadata")


def stored_rows(store: Store, run: RunRecord) -> Iterator[Row]:
    """The rows of a run, also of the cases that it did not get to."""
    for result in store.results(run.id):
        position: dict[str, str | int | None] = {
            "run_id": run.id,
            "suite": run.name,
            "case_index": result.case_index,
            "repeat": result.repeat + 1,
        }
        yield from rows_of(result.case, result.output, result.checks, position)


def require_pyarrow(name: str) -> None:
    """Raise MissingExtraError if what writes Parquet is not installed; `name` is the report's."""
    require("dataframe", name, "pyarrow")


def write_parquet(store: Store, run: RunRecord, file: BinaryIO) -> None:
    """Write the rows of a run; a run without any test case is a file without rows."""
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    schema = _schema(pyarrow)
    with ParquetWriter(file, schema, compression="zstd") as writer:
        for rows in _groups(stored_rows(store, run)):
            writer.write_batch(pyarrow.record_batch(as_columns(rows), schema=schema), row_group_size=MAX_ROWS)


def _schema(pyarrow: Any) -> pyarrow.Schema:
    types: dict[Kind, Any] = {
        "text": pyarrow.string(),
        "index": pyarrow.int64(),
        "int": pyarrow.int64(),
        "float": pyarrow.float64(),
        "bool": pyarrow.bool_(),
        "time": pyarrow.timestamp("us", "UTC"),
    }
    return pyarrow.schema([pyarrow.field(name, types[kind], kind != "index") for name, kind in COLUMNS.items()])


def _groups(rows: Iterator[Row]) -> Iterator[list[Row]]:
    group: list[Row] = []
    characters = 0
    for row in rows:
        group.append(row)
        characters += sum(len(row[name] or "") for name in _TEXTS)
        if len(group) == MAX_ROWS or characters >= MAX_CHARACTERS:
            yield group
            group, characters = [], 0
    if group:
        yield group
