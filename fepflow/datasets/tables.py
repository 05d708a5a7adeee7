"""Records of Parquet files and Excel sheets, whose values have types of their own.

Dates, times and UUIDs become texts (ISO 8601), durations seconds, decimals numbers. A value without
a JSON form (NaN, bytes, an Excel error) is an error of its row.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import IO, Any
from uuid import UUID

from fepflow.datasets.records import (
    MAX_LINE_BYTES,
    MAX_LINES,
    MAX_STREAM_BYTES,
    Columns,
    ErrorCollector,
    header_names,
)
from fepflow.documents.files import open_regular, unreadable
from fepflow.extras import require
from fepflow.text import brief

MAX_COLUMNS = 1_000
MAX_EXCEL_ROWS = 1_048_576
"""Excel's own limit."""
MAX_EXCEL_BYTES = 100_000_000
"""Largest workbook, unpacked: its texts are held in memory."""

_ROWS_AT_ONCE = 4
"""Rows of Parquet that are read at once. Arrow unpacks a value for each row that refers to it before its size can be
seen: 40 MB in a file of 2 kB took 1.3 GB with 32 rows."""
_DEEPEST = 50
_NO_JSON = "has no JSON form"
_MAP_COLUMNS = "leave the column out: map those that you need, as in `input: $.question`"


def parquet_records(
    path: Path, errors: ErrorCollector, columns: Columns | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each row with its number, from 1. Only these `columns` are read; None: all."""
    require("remote", "reading Parquet", "pyarrow")
    import pyarrow
    from pyarrow import parquet

    number = total = 0
    try:
        # The limits hold for the footer, which is read as a whole.
        with (
            open_regular(path) as stream,
            parquet.ParquetFile(
                stream, thrift_string_size_limit=MAX_LINE_BYTES, thrift_container_size_limit=MAX_LINE_BYTES // 100
            ) as file,
        ):
            names = list(file.schema_arrow.names)
            if reason := _too_large(file.metadata, len(names)):
                errors.add(reason)
                return
            if not header_names(names, None, errors):
                return
            wanted = names
            if columns is not None and set(columns.needed) <= set(names):  # else an error names the others
                wanted = [name for name in names if name in columns.needed or name in columns.optional]
            # Without buffering ahead: else each row group would be in memory as a whole.
            for part in file.iter_batches(_ROWS_AT_ONCE, columns=wanted, use_threads=False):
                # A part of a category column, as pandas writes it, would count with all of the column's categories.
                values = [
                    column.dictionary_decode() if isinstance(column, pyarrow.DictionaryArray) else column
                    for column in part.columns
                ]
                batch = pyarrow.RecordBatch.from_arrays(values, names=part.schema.names)
                total += batch.nbytes  # a value that is repeated stands in the file once
                if batch.nbytes > _ROWS_AT_ONCE * MAX_LINE_BYTES:
                    errors.add(f"rows are longer than {MAX_LINE_BYTES:,} bytes", number + 1)
                    return
                if total > MAX_STREAM_BYTES:
                    errors.add(f"is larger than {MAX_STREAM_BYTES:,} bytes, unpacked", number + 1)
                    return
                for row in batch.to_pylist(maps_as_pydicts="strict"):
                    number += 1
                    if errors.are_enough:
                        return
                    if (record := _json_record(row, number, errors)) is not None:
                        yield number, record
    except (pyarrow.ArrowException, KeyError, ValueError, OverflowError) as error:  # also of moments past year 9999
        errors.add(f"is not a readable Parquet file: {brief(str(error), 200)}", number + 1 if number else None)
    except OSError as error:
        if error.errno is not None:
            errors.add(unreadable(error)[0])
        else:  # what pyarrow makes of a damaged footer
            errors.add(f"is not a readable Parquet file: {brief(str(error), 200)}", number + 1 if number else None)


def _too_large(metadata: Any, columns: int) -> str | None:
    if columns > MAX_COLUMNS:
        return f"has {columns:,} columns, more than {MAX_COLUMNS:,}"
    if metadata.num_rows > MAX_LINES:
        return f"has more than {MAX_LINES:,} rows"
    unpacked = sum(metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups))
    return f"is larger than {MAX_STREAM_BYTES:,} bytes, unpacked" if unpacked > MAX_STREAM_BYTES else None


def excel_records(path: Path, errors: ErrorCollector) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each row of the first sheet with its number; the first row that is not empty has the names."""
    require("remote", "reading Excel", "openpyxl")
    try:
        with open_regular(path) as stream, open_regular(path) as again:
            if reason := _bomb(stream):
                errors.add(reason, advice="save the sheet as CSV")
                return
            yield from _sheet(stream, again, errors)
    except OSError as error:
        errors.add(unreadable(error)[0])


def _bomb(stream: IO[bytes]) -> str | None:
    """Return why a workbook must not be unpacked, by the sizes in its directory, which unpacking does not exceed."""
    try:
        with zipfile.ZipFile(stream) as archive:
            sizes = [entry.file_size for entry in archive.infolist()]
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError):
        return "is not an Excel workbook (.xlsx)"
    if sum(sizes) > MAX_EXCEL_BYTES or len(sizes) > MAX_COLUMNS:
        return f"is larger than {MAX_EXCEL_BYTES:,} bytes, unpacked"
    stream.seek(0)
    return None


def _sheet(stream: IO[bytes], again: IO[bytes], errors: ErrorCollector) -> Iterator[tuple[int, dict[str, Any]]]:
    from openpyxl import load_workbook

    number = 0
    names: list[str] = []
    try:
        # Values alone do not tell an empty cell from a formula that was never calculated.
        values, formulas = load_workbook(stream, read_only=True, data_only=True), load_workbook(again, read_only=True)
        if not values.worksheets:
            errors.add("holds no sheet of cells")
            return
        sheet, of_formulas = values.worksheets[0], formulas.worksheets[0]
        for one in (sheet, of_formulas):
            one.reset_dimensions()  # as some programs write them, they leave out most of the sheet
        for number, (row, written) in enumerate(
            zip(sheet.iter_rows(max_row=MAX_EXCEL_ROWS), of_formulas.iter_rows(max_row=MAX_EXCEL_ROWS), strict=True),
            start=1,
        ):
            if errors.are_enough:
                return
            cells = [cell.value for cell in row]
            if not any(cell.value not in (None, "") for cell in written):
                continue
            if not names:
                while cells[-1] in (None, ""):
                    cells.pop()
                names = header_names(["" if name is None else str(name) for name in cells], number, errors)
                if not names or len(names) > MAX_COLUMNS:
                    return
            elif (record := _excel_record(names, cells, row, written, number, errors)) is not None:
                yield number, record
    except Exception as error:  # a damaged workbook makes openpyxl raise anything
        errors.add(f"is not a readable Excel workbook: {type(error).__name__}: {brief(str(error), 200)}", number)


def _excel_record(
    names: list[str], cells: list[Any], row: Any, written: Any, number: int, errors: ErrorCollector
) -> dict[str, Any] | None:
    if any(value not in (None, "") for value in cells[len(names) :]):
        errors.add(f"has {len(cells)} cells, but the header has {len(names)}", number)
        return None
    for name, cell, formula in zip(names, row, written, strict=False):
        if formula.data_type == "f" and cell.value is None:
            advice = "open it in Excel, and save it"
            errors.add("this formula was never calculated", number, name, advice)
            return None
        if cell.data_type == "e":
            errors.add(f"the cell is the error {brief(str(cell.value), 20)}", number, name)
            return None
    padded = [*cells, *[None] * (len(names) - len(cells))]
    # Excel has a time for each date: midnight.
    days = [value.date() if isinstance(value, datetime) and value.time() == time() else value for value in padded]
    texts = ["" if value is None else value for value in days[: len(names)]]
    return _json_record(dict(zip(names, texts, strict=True)), number, errors)


def _json_record(row: dict[str, Any], number: int, errors: ErrorCollector) -> dict[str, Any] | None:
    record = {}
    for name, value in row.items():
        try:
            record[name] = _json(value)
        except ValueError as error:
            errors.add(str(error), number, name, _MAP_COLUMNS)
            return None
    return record


def _json(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON. Raises ValueError if it has no JSON form."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        if len(value) > MAX_LINE_BYTES:
            raise ValueError(f"is longer than {MAX_LINE_BYTES:,} characters")
        return value
    if isinstance(value, float | Decimal):
        return _number(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, UUID):
        return str(value)
    if depth == _DEEPEST:
        raise ValueError(f"nests deeper than {_DEEPEST} levels")
    if isinstance(value, list):
        return [_json(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {str(name): _json(item, depth + 1) for name, item in value.items()}
    what = "binary data" if isinstance(value, bytes) else f"a value of type {type(value).__name__}"
    raise ValueError(f"{what} {_NO_JSON}")


def _number(value: float | Decimal) -> float | int:
    if not math.isfinite(value):
        raise ValueError(f"{value} {_NO_JSON}; an empty cell is null")
    if isinstance(value, float):
        return value
    if value == value.to_integral_value() and abs(value.adjusted()) < MAX_COLUMNS:
        return int(value)
    if Decimal(repr(float(value))) != value:
        raise ValueError(f"the decimal {brief(str(value), 60)} has more digits than a number of JSON keeps")
    return float(value)
