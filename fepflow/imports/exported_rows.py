"""Rows of exports: a JSON document, JSONL or CSV, whose cells may hold JSON; and scores of which a name has several."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from fepflow.imports.imported import finite_number, mapping
from fepflow.imports.source import Source
from fepflow.json.values import is_deep

LISTS = ("data", "events", "items", "objects", "rows")
"""Names under which APIs list their rows."""


def rows_of(source: Source) -> Iterator[tuple[int | None, dict[str, Any]]]:
    """Yield the rows, those of JSONL and tables with their lines; what is no object is left out."""
    if source.is_document:
        listed = source.listed(*LISTS) or [source.data]
        yield from ((None, row) for row in listed if isinstance(row, dict))
        return
    is_table = source.ending in (".csv", ".tsv")
    for line, row in source.records():
        if isinstance(row, dict):
            yield line, {name: cell(value) for name, value in row.items()} if is_table else row


def first_row(source: Source) -> dict[str, Any]:
    """Return the first row, to see what it looks like; without one an empty one."""
    return mapping(source.first_of(*LISTS) or source.data)


def cell(value: Any) -> Any:
    """Return a cell of a table: an object, list or quoted text in JSON as that, an empty cell as None, else the text.

    A bare number stays the text that it is: it may be an answer such as `007`.
    """
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not text or text == "null":
        return None
    if text[0] + text[-1] in ("{}", "[]", '""'):
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            return value
        return value if is_deep(parsed) else parsed
    return value


def member(row: Mapping[str, Any], *names: str) -> Any:
    """Return the first member with one of these names that is not None: exports write `traceId` or `trace_id`."""
    return next((row[name] for name in names if row.get(name) is not None), None)


def number_of(value: Any) -> float | None:
    """Return a number, also one that stands in a table's cell; None for what is none."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    return finite_number(value)
