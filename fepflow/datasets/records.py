"""Records of files, in JSONL, JSON, YAML or CSV, each also gzipped, Parquet or Excel, in bounded memory.

CSV is read as spreadsheets write it: separated by commas, semicolons or tabs, with quotes, line ends in cells, `sep=`.
Errors are collected and raised together.

Values of Parquet and Excel have types of their own. Dates, times and UUIDs become texts (ISO 8601), durations seconds,
decimals numbers. A value without a JSON form (NaN, bytes, an Excel error) is an error of its row.
"""

from __future__ import annotations

import csv
import json
import math
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, get_args
from uuid import UUID

from fepflow.documents.files import MAX_BYTES as MAX_YAML_BYTES
from fepflow.documents.files import (
    SAVE_AS_UTF8,
    UNREADABLE,
    not_utf8,
    open_plain,
    open_regular,
    other_encoding,
    read_text,
    unreadable,
)
from fepflow.documents.loader import parse_document
from fepflow.errors import InputError, Problem
from fepflow.extras import require
from fepflow.json import values as parser
from fepflow.text import brief
from fepflow.traces.recorded import atif_records, otlp_records

SPELLED_OUT = 20
MAX_ERRORS = 10_000
"""Errors after which a file is read no further."""


class ErrorCollector:
    """Errors of one file: the first 20, and the number of the others."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._first: list[Problem] = []
        self._more = 0

    def __len__(self) -> int:
        return len(self._first) + self._more

    @property
    def first(self) -> Problem:
        """The first error, which must exist."""
        return self._first[0]

    def take(self, others: ErrorCollector) -> None:
        """Add the errors of another collector."""
        for problem in others._first:
            self.add_problem(problem)
        self._more += others._more

    @property
    def are_enough(self) -> bool:
        """True once there are so many that reading stops."""
        return self._more >= MAX_ERRORS

    def add(self, message: str, line: int | None = None, path: str | None = None, advice: str | None = None) -> None:
        """Add an error."""
        self.add_problem(Problem(message, self.file, line, path, advice))

    def add_problem(self, problem: Problem) -> None:
        """Add an error that is a Problem already."""
        if len(self._first) < SPELLED_OUT:
            self._first.append(problem)
        else:
            self._more += 1

    def raise_if_any(self) -> None:
        """Raise InputError with all of them."""
        if self._first:
            more = f"... and {self._more:,} more" + (", and no more was read" if self.are_enough else "")
            rest = [Problem(more, self.file)] if self._more else []
            raise InputError([*self._first, *rest])


Format = Literal["jsonl", "json", "yaml", "csv", "parquet", "xlsx", "otlp", "atif"]

TRACES = ("otlp", "atif")
"""Formats of traces, which cannot be told from a file's ending."""

MAX_LINE_BYTES = 10_000_000
MAX_STREAM_BYTES = 2_000_000_000
MAX_JSON_BYTES = 100_000_000
MAX_LINES = 5_000_000

_ENDINGS: dict[str, Format] = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "csv"}
_ENDINGS |= {".yaml": "yaml", ".yml": "yaml", ".parquet": "parquet", ".xlsx": "xlsx"}


def format_of(path: Path, format: str | None, file: str) -> Format:
    """Return the given format, or else that of the file's ending. Raises InputError if it is not known."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    known = format if format in get_args(Format) else _ENDINGS.get(suffixes[-1] if suffixes else "")
    if known is None:
        advice = "known are .jsonl, .json, .yaml and .csv, each also with .gz, .parquet and .xlsx; or name it, as in "
        raise InputError(Problem("the ending does not say what format it is", file, advice=f"{advice}`format: jsonl`"))
    if known in ("parquet", "xlsx") and path.suffix.lower() == ".gz":
        message = f"{known} is compressed by itself, and not read with .gz"
        raise InputError(Problem(message, file, advice="unpack it"))
    return known  # type: ignore[return-value]  # one of get_args(Format), which the checker does not follow


class Columns(NamedTuple):
    """Names of the fields that a reader uses: those that each file must have, and those that it may have."""

    needed: Collection[str]
    optional: Collection[str]


def records(
    path: Path, format: Format, errors: ErrorCollector, columns: Columns | None = None, *, nan: bool = False
) -> Iterator[tuple[int, Any]]:
    """Yield each readable record with the line, from 1, on which it begins.

    Of a Parquet file, other `columns` are left out; None stands for all. With `nan`, JSONL may hold NaN and infinities.
    """
    if format == "parquet":
        return parquet_records(path, errors, columns)
    if format == "xlsx":
        return excel_records(path, errors)
    if format in TRACES:
        read = otlp_records if format == "otlp" else atif_records
        return read(_traces(path, errors), errors.add)
    if format == "jsonl":
        return _jsonl(_lines(path, errors), errors, nan=nan)
    if format == "csv":
        return csv_records(_lines(path, errors), errors, MAX_LINE_BYTES)
    if format == "json":
        return _document(path, MAX_JSON_BYTES, _json_list, errors)
    return _document(path, MAX_YAML_BYTES, partial(_yaml_list, file=errors.file), errors)


def _lines(path: Path, errors: ErrorCollector) -> Iterator[tuple[int, str]]:
    """Yield each line with its number and its line end. Ends with an error at the first that cannot be read."""
    number = total = 0
    try:
        with open_plain(path) as stream:
            for number in count(1):
                raw = stream.readline(MAX_LINE_BYTES + 1)
                total += len(raw)
                if not raw or errors.are_enough:
                    return
                if number > MAX_LINES:
                    errors.add(f"has more than {MAX_LINES:,} lines")
                    return
                if len(raw) > MAX_LINE_BYTES or total > MAX_STREAM_BYTES:
                    limit, what = (
                        (MAX_LINE_BYTES, "this line") if len(raw) > MAX_LINE_BYTES else (MAX_STREAM_BYTES, "the file")
                    )
                    errors.add(f"{what} is larger than {limit:,} bytes", number)
                    return
                if number == 1 and (foreign := other_encoding(raw)):
                    errors.add(foreign[0], advice=foreign[1])
                    return
                yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError as error:
        errors.add(not_utf8(error), number, advice=SAVE_AS_UTF8)
    except UNREADABLE as error:
        message, advice = unreadable(error)
        errors.add(message, advice=advice)


def _jsonl(lines: Iterator[tuple[int, str]], errors: ErrorCollector, *, nan: bool = False) -> Iterator[tuple[int, Any]]:
    for number, line in lines:
        text = line.strip()
        if number == 1 and text in ("[", "{"):
            errors.add("is one JSON document, not a record a line", 1, advice="name it .json, or set `format: json`")
            return
        if not text:
            continue
        try:
            record = parser.parse(text, nan=nan)
        except ValueError as error:
            errors.add(f"is not valid JSON: {error}", number)
        else:
            yield number, record


def _traces(path: Path, errors: ErrorCollector) -> Iterator[tuple[int, Any]]:
    """Yield documents: the one in a .json file, or the items of its list; in other files, one for each line."""
    if ".json" in [suffix.lower() for suffix in path.suffixes]:
        return _document(path, MAX_JSON_BYTES, _json_documents, errors)
    return _jsonl(_lines(path, errors), errors)


def _document(
    path: Path, limit: int, read: Callable[[str], Iterable[tuple[int, Any]]], errors: ErrorCollector
) -> Iterator[tuple[int, Any]]:
    """Yield the records that `read` finds in a file's text of at most `limit` bytes."""
    try:
        pairs = read(read_text(path, errors.file, limit))
    except InputError as error:
        for problem in error.problems:
            errors.add_problem(problem)
    except ValueError as error:
        errors.add(str(error))
    else:
        yield from pairs


def _json(text: str) -> Any:
    try:
        return parser.parse(text)
    except ValueError as error:
        raise ValueError(f"is not valid JSON: {error}") from None


def _json_documents(text: str) -> list[tuple[int, Any]]:
    document = _json(text)
    return [(1, item) for item in (document if isinstance(document, list) else [document])]


def _json_list(text: str) -> list[tuple[int, Any]]:
    elements = _elements(_json(text))
    pairs = []
    line, at = 1, 0
    for element, start in zip(elements, _starts(text), strict=True):
        line += text.count("\n", at, start)
        at = start
        pairs.append((line, element))
    return pairs


def _yaml_list(text: str, file: str) -> list[tuple[int, Any]]:
    document = parse_document(text, file)
    data = document.data
    prefix: tuple[str, ...] = ("test_cases",) if isinstance(data, dict) else ()
    elements = _elements(data if data is not None else [])
    return [(document.line_of((*prefix, index)) or index + 1, element) for index, element in enumerate(elements)]


def _elements(data: Any) -> list[Any]:
    elements = data.get("test_cases") if isinstance(data, dict) else data
    if not isinstance(elements, list):
        raise ValueError("holds no list of records, and no object with a list under test_cases")
    return elements


_SEPARATORS = re.compile(r"[ \t\r\n,:]*")


def _starts(text: str) -> Iterator[int]:
    """Yield the position of each element of the list; `text` is valid JSON that has one."""
    decode_at = json.JSONDecoder().raw_decode

    def skip(at: int) -> int:
        match = _SEPARATORS.match(text, at)
        return match.end() if match else at

    at = skip(0)
    if text[at] == "{":
        key, at = decode_at(text, skip(at + 1))
        while key != "test_cases":
            at = skip(decode_at(text, skip(at))[1])
            key, at = decode_at(text, at)
        at = skip(at)
    at = skip(at + 1)
    while text[at] != "]":
        yield at
        at = skip(decode_at(text, at)[1])


_SEP = re.compile(r"\ufeff?\"?sep=(.)\"?\s*", re.IGNORECASE)
_QUOTED = re.compile(r'"[^"]*"')
_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


def csv_records(
    lines: Iterator[tuple[int, str]], errors: ErrorCollector, longest_cell: int
) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield each record by the header's names, with the line, from 1, on which it begins.

    The delimiter is given by a first line `sep=;`, as Excel writes it, or else by the header: it is a comma if
    there is one outside of quotes, else a semicolon, a tab or a bar.
    """
    csv.field_size_limit(max(csv.field_size_limit(), longest_cell))
    first = next(lines, None)
    if first is None:
        return
    separator_line = _SEP.fullmatch(first[1])
    offset = 1 if separator_line else 0
    header_line = next(lines, None) if separator_line else first
    while header_line is not None and not header_line[1].strip():
        offset += 1
        header_line = next(lines, None)
    if header_line is None:
        return
    bare = _QUOTED.sub("", header_line[1])
    delimiter = separator_line[1] if separator_line else next((mark for mark in ",;\t|" if mark in bare), ",")
    yield from _rows(chain([header_line], lines), delimiter, offset, errors)


def _rows(
    lines: Iterator[tuple[int, str]], delimiter: str, offset: int, errors: ErrorCollector
) -> Iterator[tuple[int, dict[str, str]]]:
    # Strict: else a quote that is never closed swallows the rest of the file as one cell.
    reader = csv.reader((line for _, line in lines), strict=True, delimiter=delimiter)
    header: list[str] | None = None
    start = offset + 1
    try:
        for row in reader:
            if header is None and row:
                header = header_names(row, start, errors)
                if not header:
                    return
            elif header and any(map(str.strip, row)):  # spreadsheets export rows without anything in them, too
                if len(row) == len(header):
                    yield start, dict(zip(header, row, strict=True))
                else:
                    advice = f"cells are separated by {_NAMES.get(delimiter, delimiter)}; quote those that hold one"
                    errors.add(f"has {len(row)} cells, but the header has {len(header)}", start, advice=advice)
            start = offset + reader.line_num + 1
    except csv.Error as error:
        explained = ((text, advice) for part, text, advice in _CSV_ERRORS if part in str(error))
        text, advice = next(explained, (str(error), _QUOTE_TWICE))
        errors.add(f"is not valid CSV: {text}", start, advice=advice)


def header_names(row: list[str], line: int | None, errors: ErrorCollector) -> list[str]:
    """Return the names in a header; an empty list, with an error, if one is missing or appears twice."""
    names = [name.strip() for name in row]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if not all(names) or twice:
        empty = [str(index) for index, name in enumerate(names, start=1) if not name][:SPELLED_OUT]
        shown = ", ".join(brief(name, 60) for name in twice[:SPELLED_OUT])
        what = f"the columns {shown} appear twice" if not empty else f"column {', '.join(empty)} has no name"
        errors.add(f"{what} in the header", line, advice="the first row names the columns")
        return []
    return names


_QUOTE_TWICE = 'a quote inside of a quoted cell is written twice: ""'
_CSV_ERRORS = [
    (
        "new-line character seen",
        "its lines end in carriage returns only, or one stands in a cell without quotes",
        "save it with line feeds",
    ),
    ("unexpected end of data", "a quote is opened here and never closed", _QUOTE_TWICE),
    ("expected after", "a text goes on after a closing quote", _QUOTE_TWICE),
]
"""Parts of Python's messages, with explanations and advice."""


# --- tables: Parquet and Excel ---------------------------------------------------------------------------------------


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
            if all(cell.value is None or not str(cell.value).strip() for cell in written):
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
            record[name] = _json_value(value)
        except ValueError as error:
            errors.add(str(error), number, name, _MAP_COLUMNS)
            return None
    return record


def _json_value(value: Any, depth: int = 0) -> Any:
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
        return [_json_value(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {str(name): _json_value(item, depth + 1) for name, item in value.items()}
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
