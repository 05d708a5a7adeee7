"""Results in files as runs: reports of fepflow (`-o results.json`, `.jsonl`), and FEP results of other tools.

A file becomes a run of a store, so that all that works on runs works on files. A report of a whole run has its suite;
other files do not, so checks are taken to be as their results show them: their type, version and arguments, as far as
these are the same in all cases. A check of more than half of the cases is one of all, which the others lack. `notes`
say what a file cannot tell.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fepflow.documents.files import read_text
from fepflow.documents.messages import validation_messages
from fepflow.errors import InputError, Problem, dotted
from fepflow.json.values import parse
from fepflow.protocol.check import CHECK_ID, Check, to_check
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.results import CheckResult, TestCaseResult, score_of
from fepflow.protocol.test_case import TestCase
from fepflow.store.records import FILTERS, FROM_FILE, HAS_SUITE, NewCheckResult, NewOutput, RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import check_ids
from fepflow.suite.reader import read_snapshot
from fepflow.text import is_unicode

MAX_BYTES = 1_000_000_000

SUFFIXES = (".json", ".jsonl")

_MAX_ARGUMENT = 10_000
"""Characters of an argument that is compared as it is; of longer ones their hash."""

_ADVICE = (
    "give a report of fepflow (-o results.json or .jsonl) or an EvaluationRunResult of FEP; results of other tools "
    "become a run by `fepflow import FILE`"
)

_COMPARED_SECTIONS = frozenset({"checks", "metrics", "gate", "cluster", "slices", "thresholds"})


@dataclass(frozen=True, slots=True)
class FileRun:
    """A run in the file `path`, not stored yet; `notes` say what the file does not tell."""

    path: str
    record: RunRecord
    cases: Sequence[TestCase]
    outputs: Sequence[NewOutput]
    checks: Sequence[NewCheckResult]
    notes: Sequence[str]

    @property
    def has_suite(self) -> bool:
        """True if the file has the run's suite."""
        return not self.notes

    def add_to(self, store: Store) -> str:
        """Store it as a finished run, and return the run's id."""
        run = self.record
        while run.id in {stored.id for stored in store.runs.newest()}:
            run.id = content_hash(run.id)
        run.options = {**run.options, FROM_FILE: self.path, HAS_SUITE: self.has_suite}
        results = self.cases, self.outputs, self.checks
        store.runs.add_completed(run, *results, outcome=run.outcome, metrics=run.metrics, verdict={})
        return run.id


def is_result_file(name: str) -> bool:
    """Return whether a name is that of a file, and not of a run or a baseline."""
    path = Path(name)
    return path.suffix in SUFFIXES or "/" in name or path.is_file()


def read_result_file(path: Path) -> FileRun:
    """Read a file of results. Raises InputError, with the line if it is known, for other files."""
    file = str(path)
    text = read_text(path, file, MAX_BYTES)
    if path.suffix == ".jsonl":
        return _run_of(file, {}, list(_lines(text, file)))
    document, positions = _document(text, file)
    return run_of_document(file, document, positions)


def run_of_document(file: str, document: Any, positions: Sequence[int | None] = ()) -> FileRun:
    """Return the run in an EvaluationRunResult, which is JSON data."""
    if not isinstance(document, dict) or not isinstance(document.get("results"), list):
        raise InputError(Problem("is not a file of results: it has no list `results`", file, 1, advice=_ADVICE))
    results = [
        _result(result, file, positions[index] if index < len(positions) else None, f"results[{index}]")
        for index, result in enumerate(document["results"])
    ]
    return _run_of(file, document, results)


def _document(text: str, file: str) -> tuple[Any, list[int | None]]:
    """Return the JSON, and the line of each result where each stands on a line of its own, as fepflow writes them."""
    document = _parsed(text, file, 1)
    lines = [number for number, line in enumerate(text.split("\n"), 1) if line.startswith('{"status":')]
    results = document.get("results") if isinstance(document, dict) else None
    return document, list(lines) if isinstance(results, list) and len(lines) == len(results) else []


def _parsed(text: str, file: str, line: int) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        message = str(error)
        if within := re.search(r" at line (\d+), ", message):
            line += int(within[1]) - 1
            message = message.replace(within[0], " at ")
        raise InputError(Problem(f"is not JSON: {message}", file, line, advice=_ADVICE)) from None


def _lines(text: str, file: str) -> Iterator[TestCaseResult]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield _result(_parsed(line, file, number), file, number, None)


def _result(data: Any, file: str, line: int | None, path: str | None) -> TestCaseResult:
    try:
        result = TestCaseResult.model_validate_json(json.dumps(data))
    except ValidationError as error:
        first = next(iter(validation_messages(data, error)))
        where = ".".join(filter(None, (path, dotted(first.path))))
        raise InputError(
            Problem(f"is not a result of a test case: {first.message}", file, line, where, _ADVICE)
        ) from None
    if not all(is_unicode(check.check_type) for check in result.check_results):
        raise InputError(Problem("a check's type has half of a surrogate pair", file, line, path, _ADVICE))
    return result


def _run_of(file: str, document: Mapping[str, Any], results: Sequence[TestCaseResult]) -> FileRun:
    if not results:
        raise InputError(Problem("has no results", file, advice=_ADVICE))
    cases_by_id, units = _collect(file, results)
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    repeats = max(repeat for _, repeat in units) + 1
    indices = {case_id: index for index, case_id in enumerate(cases_by_id)}
    outputs, checks = [], []
    by_check: dict[str, dict[str, list[CheckResult]]] = defaultdict(lambda: defaultdict(list))
    run_id = _id(document, results)
    for (case_id, repeat), result in units.items():
        unit = indices[case_id], repeat
        output = result.execution_context.output
        output_hash = content_hash(run_id, *unit)
        outputs.append(NewOutput(*unit, output_hash, output))
        for check_id, check in _named(result.check_results):
            by_check[check_id][case_id].append(check)
            checks.append(NewCheckResult(*unit, check_id, content_hash(output_hash, check_id), check, check.passed))
    suite, cases, notes = _suite(file, document, metadata, cases_by_id, by_check)
    suite["repeats"] = repeats
    outcome = metadata.get("outcome")
    metrics = metadata.get("metrics")
    suite_hash = metadata.get("suite_hash")
    is_hash = isinstance(suite_hash, str) and re.fullmatch(r"[0-9A-Za-z_.-]{1,64}", suite_hash)
    version, verdict = metadata.get("version"), metadata.get("verdict")
    record = RunRecord(
        id=run_id,
        name=str(suite["name"]),
        suite=suite,
        repeats=repeats,
        cause="evaluate",
        outcome=outcome if outcome in ("pass", "fail", "inconclusive") else None,
        metrics=metrics if isinstance(metrics, list) else [],
        verdict=verdict if isinstance(verdict, dict) else {},
        suite_hash=suite_hash if is_hash else None,
        version=version if isinstance(version, str) else None,
        options=_options(metadata.get("options")),
    )
    return FileRun(file, record, cases, outputs, checks, notes)


def _options(stored: Any) -> dict[str, Any]:
    """Return which part of its suite's cases the run has, if that is well-formed."""
    options = stored if isinstance(stored, dict) else {}
    known: dict[str, Any] = {}
    filters = options.get(FILTERS)
    if isinstance(filters, list) and isinstance(options.get("suite_cases"), int):
        known = {FILTERS: [str(text) for text in filters], "suite_cases": options["suite_cases"]}
    sample = options.get("sample")
    if isinstance(sample, dict) and all(isinstance(sample.get(name), int) for name in ("of", "seed")):
        known["sample"] = {name: sample[name] for name in ("of", "seed")}
    return known


def _id(document: Mapping[str, Any], results: Sequence[TestCaseResult]) -> str:
    """Return the id of the evaluation if it can be that of a run, else a hash: other ids are names of baselines."""
    own = document.get("evaluation_id")
    if isinstance(own, str) and re.fullmatch("[0-9a-f]{32,64}", own):
        return own
    return content_hash(own, [result.model_dump_json() for result in results])


def _collect(
    file: str, results: Sequence[TestCaseResult]
) -> tuple[dict[str, TestCase], dict[tuple[str, int], TestCaseResult]]:
    """Return the cases by id, and the results by case and repeat.

    The same case again is a repeat, unless its number differs.
    """
    cases: dict[str, TestCase] = {}
    by_unit: dict[tuple[str, int], TestCaseResult] = {}
    seen: Counter[str] = Counter()
    for number, result in enumerate(results):
        case = result.execution_context.test_case
        known = cases.setdefault(case.id, case)
        if known is not case and content_hash(known.model_dump()) != content_hash(case.model_dump()):
            message = f"the test case {case.id!r} is there twice with different contents"
            raise InputError(Problem(message, file, path=f"results[{number}]", advice="ids are unique"))
        repeat = (result.metadata or {}).get("repeat")
        unit = case.id, repeat - 1 if isinstance(repeat, int) and repeat > 0 else seen[case.id]
        seen[case.id] += 1
        if unit in by_unit:
            message = f"repeat {unit[1] + 1} of the test case {case.id!r} is there twice"
            raise InputError(Problem(message, file, path=f"results[{number}]"))
        if unit[1] >= _MOST_REPEATS:
            message = f"repeat {unit[1] + 1} of the test case {case.id!r} is too many"
            raise InputError(Problem(message, file, path=f"results[{number}]", advice=f"{_MOST_REPEATS} at most"))
        by_unit[unit] = result
    return cases, by_unit


_MOST_REPEATS = 1_000


def _named(checks: Sequence[CheckResult]) -> Iterator[tuple[str, CheckResult]]:
    """Yield each check's result with its id; a second one of the same type is numbered, as in suites."""
    ids = check_ids([Check(type=check.check_type, id=_own_id(check)) for check in checks])
    for check_id, check in zip(ids, checks, strict=True):
        if check.check_id == check_id:
            yield check_id, check
        else:
            yield check_id, check.model_copy(update={"metadata": {**(check.metadata or {}), "check_id": check_id}})


def _own_id(check: CheckResult) -> str | None:
    own = (check.metadata or {}).get("check_id")
    return own if isinstance(own, str) and re.fullmatch(CHECK_ID, own) and own != check.check_type else None


def _suite(
    file: str,
    document: Mapping[str, Any],
    metadata: Mapping[str, Any],
    cases: Mapping[str, TestCase],
    by_check: Mapping[str, Mapping[str, Sequence[CheckResult]]],
) -> tuple[dict[str, Any], list[TestCase], list[str]]:
    """Return the suite of the file, or one as its results show it, the cases with their own checks, and notes."""
    experiment = document.get("experiment")
    name = experiment.get("name") if isinstance(experiment, dict) else None
    name = name if isinstance(name, str) and name else "results"
    suite = metadata.get("suite")
    if isinstance(suite, dict) and isinstance(suite.get("target"), dict):
        suite = {"name": name, **suite, "test_cases": []}
        _require_readable(file, suite)
        return suite, list(cases.values()), []
    shared: list[dict[str, Any]] = []
    metrics: list[dict[str, Any]] = []
    notes = [
        f"{file} does not have its suite: a metric of each check is compared, cases are taken to be independent, and "
        "a change of a check is seen only in its type, version and arguments."
    ]
    own = {case_id: set(check_ids([to_check(check) for check in case.checks or ()])) for case_id, case in cases.items()}
    completed = dict(cases)
    for check_id, of_cases in by_check.items():
        results = [result for of_case in of_cases.values() for result in of_case]
        metrics.append(_metric(check_id, results))
        if all(check_id in own[case_id] for case_id in of_cases):
            continue
        declared = _declared(check_id, results)
        is_shared = 2 * len(of_cases) > len(cases)
        if len(of_cases) < len(cases):
            notes.append(
                f"{file}: {check_id} has results in {len(of_cases)} of {len(cases)} test cases; "
                + ("it is missing in the others." if is_shared else "the others are taken not to have this check.")
            )
        if is_shared:
            shared.append(declared)
            continue
        for case_id in of_cases:
            case = completed[case_id]
            added = Check(**declared)
            completed[case_id] = case.model_copy(update={"checks": [*(case.checks or ()), added]})
    document_of_suite = {"name": name, "target": {"evaluate": name}, "test_cases": [], "checks": shared}
    if any("value" in metric for metric in metrics):
        document_of_suite["metrics"] = metrics
    return document_of_suite, list(completed.values()), notes


def _require_readable(file: str, suite: dict[str, Any]) -> None:
    """Raise InputError if a section of the suite, with which results are compared, is not valid."""
    for problem in read_snapshot(suite, None, str(suite["name"])).problems:
        section = re.split(r"[.\[]", problem.path or "")[0]
        if problem.severity == "error" and section in _COMPARED_SECTIONS:
            path = f"metadata.suite.{problem.path}"
            raise InputError(Problem(problem.message, file, path=path, advice=problem.advice))


def _metric(check_id: str, results: Sequence[CheckResult]) -> dict[str, Any]:
    """Return the metric of a check: the share that passed, or the mean of its scores if it has no passes."""
    judged = any(result.passed is not None for result in results)
    scored = [result for result in results if score_of(result) is not None]
    if judged or not scored:
        return {"id": check_id, "check": check_id}
    first = scored[0].results
    inside = not any(name in first for name in ("score", "value"))
    holder = first["response"] if inside else first
    member = "score" if "score" in holder else "value"
    return {"id": check_id, "check": check_id, "value": f"$.response.{member}" if inside else f"$.{member}"}


def _declared(check_id: str, results: Sequence[CheckResult]) -> dict[str, Any]:
    """Return the parts of a check's declaration that are the same in all its results."""
    versions = {result.check_version for result in results if result.status == "completed"}
    arguments: dict[str, Any] | None = None
    for result in results:
        if result.resolved_arguments is None or result.status != "completed":
            continue
        here = {name: _argument(value) for name, value in result.resolved_arguments.items()}
        arguments = here if arguments is None else {n: v for n, v in arguments.items() if here.get(n) == v}
    declared: dict[str, Any] = {"type": results[0].check_type, "id": check_id, "arguments": arguments or {}}
    if len(versions) == 1 and (version := versions.pop()) is not None:
        declared["arguments"] = {**declared["arguments"], "check_version": version}
    return declared


def _argument(resolved: Any) -> Any:
    if not isinstance(resolved, dict):
        return None
    if "jsonpath" in resolved:
        return resolved["jsonpath"]
    value = resolved.get("value", resolved)
    return value if len(json.dumps(value)) <= _MAX_ARGUMENT else content_hash(value)
