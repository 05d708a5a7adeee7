"""Imports in fepflow's own terms: test cases with ids, checks of recorded scores, and outputs with these scores."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from fepflow.documents.messages import validation_messages
from fepflow.errors import InputError, Problem, dotted
from fepflow.imports.checks import fit_ids
from fepflow.imports.imported import Imported, ImportedOutput, ImportedRun
from fepflow.imports.values import finite_number, unique_names
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
    metadata: dict[str, Any] = dict(output.metadata)
    if output.scores:
        metadata[SCORES] = {
            ids[name]: {**score.data(), **({} if ids[name] == name else {"name": name})}
            for name, score in output.scores.items()
        }
    if output.error is not None:
        metadata["error"] = {"type": "unknown_error", "kind": "recorded", "message": output.error}
        return Output(value=None, metadata=metadata)
    return Output(value=output.value, metadata=metadata or None)
