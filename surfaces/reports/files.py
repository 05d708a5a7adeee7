"""Reports of a run as files, their format by the ending: .json, .jsonl, .csv, .xml (JUnit)."""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from fepflow.errors import InfrastructureError, UserError
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output
from fepflow.store.records import RunRecord, StoredResult
from fepflow.store.store import Store
from fepflow.targets.attempts import is_failed
from surfaces.reports.fep import dumps, test_case_results, write_run
from tasks.doubt import doubts_of

Writer = Callable[[Store, RunRecord, TextIO], None]


def _write_jsonl(store: Store, run: RunRecord, file: TextIO) -> None:
    for result in test_case_results(store, run):
        file.write(dumps(result) + "\n")


CSV_COLUMNS = ("test_case_id", "repeat", "check_id", "check_type", "status", "passed", "score", "error", "output")


def _write_csv(store: Store, run: RunRecord, file: TextIO) -> None:
    """One row for each check; a failed call without checks still has a row."""
    table = csv.writer(file)
    table.writerow(CSV_COLUMNS)
    for result in store.results(run.id):
        output = "" if result.output is None else result.output.value
        text = output if isinstance(output, str) else dumps(output)
        for check in result.checks:
            row = (
                result.case.id,
                result.repeat + 1,
                check.check_id,
                check.check_type,
                check.status,
                {True: "true", False: "false"}.get(_answer(check, "passed"), ""),
                _answer(check, "score"),
                check.error.message if check.error else "",
                text,
            )
            table.writerow([_harmless(cell) for cell in row])
        if result.output is not None and is_failed(result.output) and not result.checks:
            error = (result.output.metadata or {})["error"]["message"]
            row = (result.case.id, result.repeat + 1, "", "", "error", "", "", error, text)
            table.writerow([_harmless(cell) for cell in row])


def _answer(check: CheckResult, name: str) -> Any:
    response = check.results.get("response")
    return check.results.get(name, response.get(name, "") if isinstance(response, dict) else "")


def _harmless(cell: Any) -> Any:
    """A text that a spreadsheet would take for a formula gets a quote in front; numbers stay numbers."""
    if isinstance(cell, str):
        text = _printable(cell)
        return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
    return cell


def _write_junit(store: Store, run: RunRecord, file: TextIO) -> None:
    """JUnit's XML: a test case for each repeat of each case, failed if a check is, in error if one is."""
    # The counts stand in front of what is counted, and a run may be too large for memory: so it is read twice.
    kinds = Counter(_junit_kind(result) for result in store.results(run.id))
    counts = {
        "tests": kinds.total(),
        "failures": kinds["failure"],
        "errors": kinds["error"],
        "skipped": kinds["skipped"],
    }
    stamp = (run.started_at or run.created_at).isoformat()
    attributes = {"name": _printable(run.name), "timestamp": stamp, **{key: str(counts[key]) for key in counts}}
    shown = " ".join(f"{key}={quoteattr(value)}" for key, value in attributes.items())
    file.write(f"<?xml version='1.0' encoding='utf-8'?>\n<testsuites><testsuite {shown}>\n")
    properties = {"fepflow.run": run.id, "fepflow.outcome": run.outcome or "", "fepflow.status": run.status}
    properties |= {f"fepflow.judge.{doubt.check_id}": doubt.sentence() for doubt in doubts_of(store, run)}
    element = ElementTree.Element("properties")
    for name, value in properties.items():
        ElementTree.SubElement(element, "property", name=name, value=_printable(value))
    file.write(ElementTree.tostring(element, encoding="unicode") + "\n")
    for result in store.results(run.id):
        file.write(ElementTree.tostring(_junit_case(run, result), encoding="unicode") + "\n")
    file.write("</testsuite></testsuites>\n")


def _junit_kind(result: StoredResult) -> str:
    """What JUnit calls it. A test case has one result there: an error says more than a failure."""
    if result.output is None:
        return "skipped"
    if is_failed(result.output):
        return "error"
    kinds = {_kind_of_check(check) for check in result.checks}
    return next((kind for kind in ("error", "failure") if kind in kinds), "passed")


def _kind_of_check(check: CheckResult) -> str:
    if check.status == "error":
        return "error"
    return "failure" if _answer(check, "passed") is False else "passed"


def _junit_case(run: RunRecord, result: StoredResult) -> ElementTree.Element:
    name = result.case.id if run.repeats == 1 else f"{result.case.id} #{result.repeat + 1}"
    element = ElementTree.Element(
        "testcase", classname=_printable(run.name), name=_printable(name), time=f"{_seconds(result.output):.3f}"
    )
    kind = _junit_kind(result)
    if kind == "skipped":
        ElementTree.SubElement(element, kind, message="the run did not get to it")
    elif kind != "passed":
        told = [check for check in result.checks if _kind_of_check(check) == kind]
        words = "failed" if kind == "failure" else "in error"
        message = ", ".join(f"{check.check_id} {words}" for check in told) or "the target gave no output"
        detail = ElementTree.SubElement(element, kind, message=_printable(message))
        detail.text = _printable("\n".join(map(_detail, told)))
    return element


def _seconds(output: Output | None) -> float:
    """How long the target was asked, all attempts together."""
    metadata = (output.metadata if output else None) or {}
    attempts = metadata.get("attempt_log") or [metadata]
    return float(sum(attempt.get("latency_ms") or 0 for attempt in attempts)) / 1000


def _detail(check: CheckResult) -> str:
    reason = check.error.message if check.error else "failed"
    return f"{check.check_id}: {reason}\n{dumps(check.grounds)}"


def _printable(text: str) -> str:
    """What XML and a terminal can show: control characters and lone surrogates as escapes."""
    return re.sub(
        "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", lambda match: f"\\u{ord(match[0]):04x}", text
    )


FORMATS: dict[str, Writer] = {".json": write_run, ".jsonl": _write_jsonl, ".csv": _write_csv, ".xml": _write_junit}


def require_writable(paths: Sequence[Path], *, overwrite: bool) -> None:
    """Raises UserError, before anything is run, for a file whose format is unknown or that would be overwritten."""
    for path in paths:
        if path.suffix not in FORMATS:
            raise UserError(f"{path}: no report ends in {path.suffix or 'nothing'}; use {', '.join(FORMATS)}")
        if path.exists() and not overwrite:
            raise UserError(f"{path} is there already: remove it, name another, or give --overwrite")
        if not path.parent.is_dir():
            raise UserError(f"{path.parent} is no folder: create it, or name another")


def write_report(store: Store, run: RunRecord, path: Path) -> None:
    """Write a report, whole or not at all. Raises InfrastructureError when the disk is in the way."""
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="") as file:
            FORMATS[path.suffix](store, run, file)
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise InfrastructureError(f"{path} cannot be written ({error.strerror}); the run is in the store") from None
