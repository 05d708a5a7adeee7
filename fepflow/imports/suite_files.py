"""The files of an imported suite, as texts by name: `suite.yaml`, `cases.jsonl`, and recorded outputs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from fepflow.calls.base import RESERVED_METADATA
from fepflow.documents.yaml import dump_yaml
from fepflow.errors import InputError, Problem
from fepflow.imports.checks import OUTPUT
from fepflow.imports.imported import PLACEHOLDER_URL, Imported, ImportedRun
from fepflow.imports.prepared import SCORES, PreparedRun, cases_of, prepare_run, recorded_output, scorer_ids
from fepflow.imports.values import known
from fepflow.protocol.test_case import TestCase

_SURROGATE = re.compile("[\ud800-\udfff]")
LATENCY = "latency_ms"
_OF_CALLS = {*RESERVED_METADATA, SCORES} - {LATENCY}
_SECTIONS = ("name", "description", "target", "variants", "test_cases", "repeats", "checks", "judge", "metrics", "gate")
"""Sections of a suite in the order in which a reader looks for them; others follow."""


def suite_files(imported: Imported) -> dict[str, str]:
    """Return the texts of the suite's files by name. A target that the source lacks is a placeholder, with a note.

    If the source has results, the recorded outputs are the target, so that they can be judged anew without a call.
    """
    cases = cases_of(imported)
    suite: dict[str, Any] = {"name": imported.name, **imported.suite}
    files = dict(imported.files)
    if "target" not in suite and imported.runs:
        outputs, prepared = _recorded(imported, cases, suite)
        files |= outputs
        cases = prepared.cases
    elif "target" not in suite:
        is_conversation = any(case.is_conversation for case in cases)
        body = {"messages": "$.turn.messages"} if is_conversation else {"input": "$.test_case.input"}
        suite["target"] = {"http": {"url": PLACEHOLDER_URL, "body": body}}
        advice = "write how your agent is called: http, openai, python, …"
        imported.notes.by_hand("has no target, so suite.yaml has a placeholder", advice=advice)
    if not suite.get("checks") and not any(case.checks for case in cases):
        suite["checks"] = [_placeholder_check(cases)]
        what = f"has no checks that could be imported, so suite.yaml has a placeholder: {suite['checks'][0]['type']}"
        imported.notes.by_hand(what, advice="fepflow checks lists all types")
    files["cases.jsonl"] = _lines((_plain(case) for case in cases), imported)
    suite["test_cases"] = "cases.jsonl"
    ordered = {name: suite.pop(name) for name in _SECTIONS if name in suite}
    about = f"# Imported by fepflow from {imported.format}. The report of the import says what needs attention.\n"
    files["suite.yaml"] = about + dump_yaml({**ordered, **suite})
    return files


def _recorded(
    imported: Imported, cases: Sequence[TestCase], suite: dict[str, Any]
) -> tuple[dict[str, str], PreparedRun]:
    """Return the files of recorded outputs by name, and the cases and checks that are about all of them."""
    together = ImportedRun([output for run in imported.runs for output in run.outputs])
    prepared = prepare_run(imported, cases, together)
    ids = scorer_ids(together)
    files = {}
    answered = [run for run in imported.runs if any(output.error is None for output in run.outputs)]
    if not answered:
        raise InputError(Problem("has no output that could be judged again: every call failed", imported.notes.file))
    if len(answered) < len(imported.runs):
        count = len(imported.runs) - len(answered)
        imported.notes.by_hand(f"{count} of {len(imported.runs)} runs are left out of the folder: every call failed")
    repeats = max(run.repeats for run in answered)
    if any(run.repeats != repeats for run in answered):
        imported.notes.by_hand(f"some runs have fewer than {repeats} repeats: those that they lack are errors")
    for number, run in enumerate(answered, 1):
        records = []
        for output in run.outputs:
            recorded = recorded_output(output, ids)
            record: dict[str, Any] = {"id": cases[output.case].id}
            record |= {"repeat": output.repeat + 1} if repeats > 1 else {}
            record["metadata"] = recorded.metadata or {}
            records.append(record if output.error is not None else {**record, "value": recorded.value})
        files["outputs.jsonl" if len(answered) == 1 else f"outputs-{number}.jsonl"] = _lines(records, imported)
    if len(files) > 1:
        suite["variants"] = {"outputs": list(files)}
    path = "${variant.outputs}" if len(files) > 1 else next(iter(files))
    target: dict[str, Any] = {"path": path, "id": "$.id", "output": "$.value"}
    if repeats > 1:
        target["repeat"] = "$.repeat"
        suite["repeats"] = repeats
    kept = {name for run in answered for output in run.outputs for name in output.metadata}
    kept = {name for name in kept if re.fullmatch(r"[A-Za-z_]\w*", name) and name not in _OF_CALLS}
    # Without a time that was recorded, that of reading would be taken for the agent's.
    names = [*([SCORES] if ids else []), *sorted(kept | {LATENCY})]
    target["metadata"] = {name: f"$.metadata.{name}" for name in names}
    suite["target"] = {"recorded": target}
    if prepared.checks:
        suite["checks"] = [check.model_dump(exclude_none=True) for check in prepared.checks]
    if prepared.metrics is not None:
        suite.setdefault("metrics", prepared.metrics)
    return files, prepared


def _placeholder_check(cases: Sequence[TestCase]) -> dict[str, Any]:
    """Return a check that fits every suite, and is rather too strict than too lax."""
    if all("expected" in case.model_fields_set for case in cases):
        return {"type": "exact_match", "arguments": {"actual": OUTPUT, "expected": "$.test_case.expected"}}
    return {"type": "is_empty", "arguments": {"value": OUTPUT, "negate": True}}


def _plain(case: TestCase) -> dict[str, Any]:
    data: dict[str, Any] = {"id": case.id} if case.is_conversation else {"id": case.id, "input": case.input}
    data |= known(expected=case.expected, metadata=case.metadata)
    if case.is_conversation:
        data |= case.model_dump(include={"turns", "user"}, exclude_none=True)
    if case.checks:
        data["checks"] = [check.to_check().model_dump(exclude_none=True) for check in case.checks]
    return data


def _lines(records: Iterable[Any], imported: Imported) -> str:
    """Return the records as JSONL. A record that is not JSON, because of a NaN for example, is left out with a note."""
    lines = []
    for number, record in enumerate(records, 1):
        try:
            text = json.dumps(record, ensure_ascii=False, allow_nan=False)
            lines.append(text if text.isascii() or not _SURROGATE.search(text) else json.dumps(record))
        except (TypeError, ValueError) as error:
            what = "a test case or output is not JSON, and is left out"
            imported.notes.by_hand(what, path=f"record {number}", advice=str(error))
    return "".join(f"{line}\n" for line in lines)
