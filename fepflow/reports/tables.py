"""Tables of a run: CSV with a row for each check or for each case, Parquet for programs, and sheets of labels."""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

from fepflow.checks.explanation import explain
from fepflow.errors import UserError
from fepflow.extras import require
from fepflow.protocol.results import COLUMNS, NOT_REACHED, CheckResult, Kind, Row, as_columns, rows_of, score_of
from fepflow.protocol.test_case import Output
from fepflow.reports.fep import dumps, run_summary
from fepflow.security.redaction import known_secrets, redact_json
from fepflow.store.records import CaseResult, RunRecord
from fepflow.store.store import Store
from fepflow.text import cut, text_of

if TYPE_CHECKING:
    import pyarrow


_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufdcf\ufdf0-\ufffd\U00010000-\U0010ffff]")


def printable(text: str) -> str:
    """Return text that XML and spreadsheets can show: control characters and lone surrogates as escapes."""
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


CSV_COLUMNS = (
    "test_case_id",
    "repeat",
    "check_id",
    "check_type",
    "status",
    "passed",
    "score",
    "reason",
    "error",
    "input",
    "expected",
    "output",
    "metadata",
    "output_metadata",
    "latency_ms",
    "attempts",
)

MAX_CELL = 32_000
"""Excel takes 32,767 characters, and spreads the rest over other cells."""

BYTE_ORDER_MARK = "\ufeff"
"""Excel recognizes UTF-8 by it; pandas and others skip it."""

_FORMULA = frozenset("=+-@＝＋－＠")  # full-width signs begin a formula, too
_OF_THE_CALL = ("error", "attempts", "attempt_log", "latency_ms", "last_attempt_ms")


def write_csv(store: Store, run: RunRecord, file: TextIO) -> None:
    """Write a row for each check; one for a call without checks, and for a case that the run did not get to."""
    file.write(BYTE_ORDER_MARK)
    table = csv.writer(file)
    table.writerow(CSV_COLUMNS)
    for result in store.results.by_case(run.id):
        about = about_the_call(result)
        rows = [_of_check(check) for check in result.checks] or list(_of_call(result.output))
        for row in rows:
            row_values = {"test_case_id": result.case.id, "repeat": result.repeat + 1, **about, **row}
            table.writerow([harmless(row_values.get(column)) for column in CSV_COLUMNS])


def _of_check(check: CheckResult) -> dict[str, Any]:
    passed = check.passed
    return {
        "check_id": check.check_id,
        "check_type": check.check_type,
        "status": check.status,
        "passed": passed,
        "score": score_of(check),
        "reason": None if check.error or passed else explain(check) or None,
        "error": explain(check) if check.error else None,
    }


def _of_call(output: Output | None) -> Iterator[dict[str, Any]]:
    if output is None:
        yield {"status": "skip", "reason": NOT_REACHED}
    elif output.failure is not None:
        yield {"status": "error", "error": output.failure["message"]}
    else:
        yield {"status": "completed"}


def about_the_call(result: CaseResult) -> dict[str, Any]:
    """Return the cells of a case and its output."""
    case, output = result.case, result.output
    metadata = (output.metadata if output else None) or {}
    attempts: Sequence[dict[str, Any]] = metadata.get("attempt_log") or ()
    return {
        "input": case.input,
        "expected": case.expected,
        "metadata": case.metadata or None,
        "output": None if output is None else output.value,
        "output_metadata": {name: value for name, value in metadata.items() if name not in _OF_THE_CALL} or None,
        "latency_ms": metadata.get("latency_ms", attempts[-1].get("latency_ms") if attempts else None),
        "attempts": metadata.get("attempts"),
    }


def harmless(value: Any) -> Any:
    """Return a cell: None is empty, numbers stay numbers, and a text that would be taken for a formula is quoted.

    In front of a formula a spreadsheet overlooks white space and what has no width, such as a byte order mark.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return value
    text = printable(cut(text_of(value), MAX_CELL))
    return f"'{text}" if _first_sign(text) in _FORMULA or text[:1] in tuple("\t\r\n\ufeff") else text


def _first_sign(text: str) -> str:
    return next((sign for sign in text if not sign.isspace() and unicodedata.category(sign) != "Cf"), "")


def write_label_sheet(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write rows with the same keys, `id` the first and `label` among them, to a new file; raises UserError.

    An id stays as it is, since labels are found by it.
    """
    if path.suffix not in (".csv", ".jsonl"):
        raise UserError(f"{path}: a file of labels is written as .csv or .jsonl: name one that ends so.")
    try:
        with path.open("x", encoding="utf-8", newline="") as file:
            if path.suffix == ".jsonl":
                file.writelines(f"{dumps(row)}\n" for row in rows)
                return
            file.write(BYTE_ORDER_MARK)
            table = csv.writer(file)
            table.writerow(rows[0])
            table.writerows([row["id"], *(harmless(row[name]) for name in row if name != "id")] for row in rows)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from None


MAX_ROWS = 20_000
MAX_CHARACTERS = 16_000_000
"""Limits of a row group of the file, which is in memory as a whole: rows, and characters of text."""

_TEXTS = ("input", "expected", "output", "results", "metadata")


def stored_rows(store: Store, run: RunRecord) -> Iterator[Row]:
    """Yield the rows of a run, also of the cases that it did not get to."""
    for result in store.results.by_case(run.id):
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
    """Write the rows of a run; a run without any test case is a file without rows.

    The file's metadata has the run itself as JSON under `fepflow`: what `fepflow list --json` shows, and its suite.
    """
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    schema = _schema(pyarrow).with_metadata({"fepflow": dumps({**run_summary(run), "suite": run.suite})})
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


WIDE_COLUMNS = (
    "test_case_id",
    "repeat",
    "status",
    "passed",
    "input",
    "expected",
    "output",
    "error",
    "latency_ms",
    "metadata",
)
WIDE_CHECK_COLUMNS = ("passed", "score", "error")


def write_wide_csv(store: Store, run: RunRecord, file: TextIO) -> None:
    """Write one row for each repeat of each test case, in their order, with columns for each check.

    A check that says nothing of a case leaves its cells empty.
    """
    check_ids = [counts.check_id for counts in store.results.check_totals(run.id)]
    secrets = known_secrets()
    file.write(BYTE_ORDER_MARK)
    table = csv.writer(file)
    names = [f"{check_id}.{name}" for check_id in check_ids for name in WIDE_CHECK_COLUMNS]
    table.writerow([*WIDE_COLUMNS, *map(harmless, names)])
    for result in store.results.by_case(run.id):
        cells = redact_json(_wide_row(result), secrets)
        table.writerow([harmless(cells.get(column)) for column in (*WIDE_COLUMNS, *names)])


def _wide_row(result: CaseResult) -> dict[str, Any]:
    output = result.output
    failure = output.failure if output else None
    has_error = failure is not None or any(check.status == "error" for check in result.checks)
    return {
        **about_the_call(result),
        "test_case_id": result.case.id,
        "repeat": result.repeat + 1,
        "status": "missing" if output is None else "error" if has_error else "completed",
        "passed": passed_all(result),
        "error": failure["message"] if failure is not None else NOT_REACHED if output is None else None,
        **{name: value for check in result.checks for name, value in _wide_cells(check)},
    }


def _wide_cells(check: CheckResult) -> Iterator[tuple[str, Any]]:
    yield f"{check.check_id}.passed", check.passed
    yield f"{check.check_id}.score", score_of(check)
    yield f"{check.check_id}.error", explain(check) if check.error else None


def passed_all(result: CaseResult) -> bool | None:
    """Return whether every check passed: False if one failed, None if that is not known, such as after an error."""
    if any(check.passed is False for check in result.checks):
        return False
    is_whole = result.output is not None and result.output.failure is None and bool(result.checks)
    return True if is_whole and all(check.status == "completed" and check.passed for check in result.checks) else None
