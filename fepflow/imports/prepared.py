"""Imports in fepflow's own terms: as runs, and as the files of a suite.

A run has test cases with ids, checks of recorded scores, and outputs with these scores. The files are texts by name:
`suite.yaml`, `cases.jsonl`, and recorded outputs.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from fepflow.calls.base import RESERVED_METADATA, without_negative_costs
from fepflow.documents.loader import dump_yaml
from fepflow.documents.messages import validation_messages
from fepflow.errors import InputError, Problem, dotted
from fepflow.imports.imported import (
    OUTPUT,
    PLACEHOLDER_URL,
    Imported,
    ImportedOutput,
    ImportedRun,
    finite_number,
    fit_ids,
    known,
    unique_names,
)
from fepflow.protocol.check import Check
from fepflow.protocol.test_case import Output, TestCase, case_in_full

CHECK_TYPE = "recorded_score"
SCORES = "scores"
"""Member of an output's metadata: each scorer's result, by the id of its check."""

_MOST_PROBLEMS = 20


@dataclass(frozen=True, slots=True)
class PreparedRun:
    """A run as it is stored: its cases with the checks that they do not share, and outputs by index in `cases`."""

    cases: list[TestCase]
    checks: list[Check]
    outputs: list[tuple[int, int, Output]]
    metrics: list[dict[str, Any]] | None
    """Metrics of a suite, if scorers gave scores only: their means. None: the default."""


def cases_of(imported: Imported) -> list[TestCase]:
    """Return the test cases, each with a unique id. An id that appears twice gets a number, with a note.

    Cases without an id get one from their content, which is the same at every import. Raises InputError for cases that
    are not valid.
    """
    cases: list[TestCase] = []
    problems: list[Problem] = []
    for index, data in enumerate(imported.cases):
        try:
            cases.append(TestCase.model_validate(case_in_full(data)))
        except ValidationError as error:
            for item in validation_messages(data, error):
                path = dotted((f"test case {index + 1}", *item.path))
                problems.append(Problem(item.message, imported.notes.file, path=path, advice=item.advice))
            if len(problems) >= _MOST_PROBLEMS:
                break
    if not imported.cases:
        problems += [Problem("holds no test cases", imported.notes.file), *imported.notes.problems()]
    if problems:
        raise InputError(problems)
    for name, count in Counter(str(data["id"]) for data in imported.cases if data.get("id")).items():
        if count > 1:
            imported.notes.by_hand(f"the id {name!r} appears {count} times: all but the first get a number")
    names = unique_names([case.id for case in cases])
    return [
        case if name == case.id else case.model_copy(update={"id": name})
        for case, name in zip(cases, names, strict=True)
    ]


def prepare_run(imported: Imported, cases: Sequence[TestCase], run: ImportedRun) -> PreparedRun:
    """Return a run of the cases that `cases_of` returned, with the scorers as checks.

    A scorer with a result for every case is a check of all; the others are checks of the cases that they judged. A case
    without any result has all checks, so that it cannot pass unseen, unless the source says that nothing judges it.
    """
    indices = list(range(len(cases)) if run.cases is None else run.cases)
    places = {index: place for place, index in enumerate(indices)}
    outputs = [output for output in run.outputs if output.case in places]
    ids = scorer_ids(run)
    names = list(ids)
    by_case: dict[int, set[str]] = defaultdict(set)
    for output in outputs:
        by_case[output.case] |= output.scores.keys()
    for index in set(indices) - {output.case for output in outputs if output.asserts_nothing}:
        by_case[index] = by_case[index] or set(names)
    everywhere = set(names)
    for index in indices:
        everywhere &= by_case[index] | set(run.checks)
    prepared = []
    for index in indices:
        own = [name for name in names if name in by_case[index] and name not in everywhere]
        checks = [recorded_check(name, ids[name]) for name in own] or None
        case = cases[index].model_copy(update={"checks": checks, "turns": None, "user": None})
        # A field that is set, and be it to null, would make it another case than that of the suite which is written.
        case.model_fields_set.difference_update({"turns", "user"} if checks else {"checks", "turns", "user"})
        prepared.append(case)
    return PreparedRun(
        prepared,
        [recorded_check(name, ids[name]) for name in names if name in everywhere],
        [(places[output.case], output.repeat, recorded_output(output, ids)) for output in outputs],
        _metrics(outputs, ids),
    )


def _metrics(outputs: Sequence[ImportedOutput], ids: dict[str, str]) -> list[dict[str, Any]] | None:
    """Return a metric for each check: of its scores if it never passes or fails. None if all checks pass or fail."""
    judged: set[str] = set()
    scores: dict[str, list[float]] = defaultdict(list)
    for output in outputs:
        for name, score in output.scores.items():
            if score.passed is not None:
                judged.add(name)
            if output.error is None and (number := finite_number(score.score)) is not None:
                scores[name].append(number)
    metrics = []
    for name, check_id in ids.items():
        metric: dict[str, Any] = {"id": check_id, "check": check_id}
        if name not in judged and scores[name]:
            metric["value"] = "$.score"
            if all(0 <= number <= 1 for number in scores[name]):
                metric["range"] = [0, 1]
        metrics.append(metric)
    return metrics if any("value" in metric for metric in metrics) else None


def scorer_ids(run: ImportedRun) -> dict[str, str]:
    """Return the id of each scorer's check by the scorer's name: the name, without what an id cannot hold."""
    names = list(dict.fromkeys([*run.checks, *(name for output in run.outputs for name in output.scores)]))
    return dict(zip(names, fit_ids(names), strict=True))


def recorded_check(name: str, check_id: str) -> Check:
    """Return the check of a scorer's results."""
    step = f".{check_id}" if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", check_id) else f"['{check_id}']"
    return Check(type=CHECK_TYPE, id=check_id, arguments={"result": f"$.output.metadata.{SCORES}{step}"})


def recorded_output(output: ImportedOutput, ids: dict[str, str]) -> Output:
    """Return the output with its scores in its metadata; one whose call failed has no value."""
    metadata = without_negative_costs(dict(output.metadata))
    if output.scores:
        metadata[SCORES] = {
            ids[name]: {**score.data(), **({} if ids[name] == name else {"name": name})}
            for name, score in output.scores.items()
        }
    if output.error is not None:
        metadata["error"] = {"type": "unknown_error", "kind": "recorded", "message": output.error}
        return Output(value=None, metadata=metadata)
    return Output(value=output.value, metadata=metadata or None)


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
