"""CSV as spreadsheets write it: separated by commas, semicolons or tabs, with quotes, line ends in cells, `sep=`."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain

from fepflow.datasets.error_collector import SPELLED_OUT, ErrorCollector
from fepflow.text import brief

_SEP = re.compile(r"\ufeff?\"?sep=(.)\"?\s*", re.IGNORECASE)
_QUOTED = re.compile(r'"[^"]*"')
_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


def csv_records(
    lines: Iterator[tuple[int, str]], errors: ErrorCollector, longest_cell: int
) -> Iterator[tuple[int, dict[str, str]]]:
    """Each record by the header's names, with the line, from 1, on which it begins.

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
    delimiter = separator_line[1] if separator_line else _delimiter(header_line[1])
    yield from _rows(chain([header_line], lines), delimiter, offset, errors)


def _delimiter(header: str) -> str:
    bare = _QUOTED.sub("", header)
    return next((mark for mark in (",", ";", "\t", "|") if mark in bare), ",")


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
                header = _header(row, start, errors)
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
        errors.add(f"is not valid CSV: {_explained(str(error))}", start, advice=_advice(str(error)))


def _header(row: list[str], line: int, errors: ErrorCollector) -> list[str]:
    names = [name.strip() for name in row]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if not all(names) or twice:
        empty = [str(index) for index, name in enumerate(names, start=1) if not name][:SPELLED_OUT]
        shown = ", ".join(brief(name, 60) for name in twice[:SPELLED_OUT])
        what = f"the columns {shown} stand twice" if not empty else f"column {', '.join(empty)} has no name"
        errors.add(f"{what} in the header", line, advice="the first row names the columns")
        return []
    return names


def _explained(message: str) -> str:
    if "new-line character seen" in message:
        return "its lines end in carriage returns only, or one stands in a cell without quotes"
    if "unexpected end of data" in message:
        return "a quote is opened here and never closed"
    if "expected after" in message:
        return "a text goes on after a closing quote"
    return message


def _advice(message: str) -> str:
    if "new-line" in message:
        return "save it with line feeds"
    return 'a quote inside of a quoted cell is written twice: ""'
