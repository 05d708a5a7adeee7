"""Reading reports: EvalGuard's own, in either layout, and result files of lm-evaluation-harness.

A metric without a usable value does not make a report unreadable: it is left without one, and said.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fepflow.documents.loader import Document, parse_document, read_text
from fepflow.documents.yaml_parser import too_deep
from fepflow.errors import InputError, Problem, dotted
from fepflow.evalguard.documents import is_bare_report, is_lm_eval, kind_of
from fepflow.evalguard.lm_eval import convert
from fepflow.evalguard.report import Report, flattened
from fepflow.evalguard.reported_values import usable_results
from fepflow.evalguard.schema_errors import validated
from fepflow.json.decoder import is_deep, loads_with_nan
from fepflow.json.parser import syntax_error

MAX_BYTES = 50_000_000


@dataclass(frozen=True)
class ReadReport:
    """A report, the SHA-256 of the file that it comes from, and what could not be taken as it stands there."""

    report: Report
    content_hash: str
    warnings: list[str]


def report_document(path: Path) -> Document | None:
    """The document in a file of up to 50 MB (.json, .yaml or .yml); None if it is not that of a report.

    Raises InputError if it cannot be read.
    """
    document = _parse(read_text(path, str(path), MAX_BYTES), str(path))
    is_report = isinstance(document.data, Mapping) and bool({"results", "context"} & set(document.data))
    is_report = is_report or (kind_of(document.data, path) == "report" and is_bare_report(document.data))
    return document if is_report else None


def read_report(path: Path, document: Document | None = None) -> ReadReport:
    """Read a file, or the `document` in it. Raises InputError with every reason why it is no report."""
    document = document or report_document(path)
    if document is None:
        advice = "a report has context, tasks and results"
        raise InputError(
            Problem("is no report, neither of EvalGuard nor of lm-evaluation-harness", str(path), 1, None, advice)
        )
    if is_lm_eval(document.data):
        data, warnings = convert(document.data)
    else:
        data, warnings = _with_usable_values(flattened(document.data))
    report, errors = validated(Report, data)
    if report is None or errors:
        raise InputError([document.problem(error.path, error.message, error.advice) for error in errors])
    try:
        list(report.pairs())
    except ValueError as error:
        raise InputError(document.problem(("results",), str(error))) from None
    return ReadReport(report, hashlib.sha256(document.text.encode()).hexdigest(), warnings)


def _parse(text: str, file: str) -> Document:
    if not file.endswith(".json"):
        return parse_document(text, file)
    try:
        data = loads_with_nan(text)
    except json.JSONDecodeError as error:
        raise InputError(
            Problem(f"is not valid JSON: {syntax_error(error)}", file, error.lineno, column=error.colno)
        ) from None
    except RecursionError:
        raise too_deep(file) from None
    except ValueError as error:
        raise InputError(Problem(f"is not valid JSON: {error}", file)) from None
    if is_deep(data):
        raise too_deep(file)
    return Document(data, file, text)


def _with_usable_values(data: Any) -> tuple[Any, list[str]]:
    """The document of a report, with the metrics that have no usable value noted with their tasks."""
    tasks, results = data.get("tasks"), data.get("results")
    if not isinstance(results, list) or not all(_is_result(each) for each in results):
        return data, []
    tasks = [dict(task) if isinstance(task, Mapping) else task for task in tasks] if isinstance(tasks, list) else []
    taken, warnings = [], []
    for index, each in enumerate(results):
        usable, no_value, said = usable_results(each)
        owner = 0 if len(tasks) == 1 else index
        name = dotted(("results", index))
        warnings += [f"{name}: {warning}" for warning in said]
        taken.append(usable)
        if no_value and owner < len(tasks) and isinstance(tasks[owner], dict):
            metadata = tasks[owner].get("metadata")
            tasks[owner]["metadata"] = {**(metadata if isinstance(metadata, Mapping) else {}), **no_value}
    return {**data, "results": taken, **({"tasks": tasks} if tasks else {})}, warnings


def _is_result(result: Any) -> bool:
    return isinstance(result, Mapping) and all(isinstance(fields, Mapping) for fields in result.values())
