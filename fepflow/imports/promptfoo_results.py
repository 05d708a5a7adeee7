"""promptfoo: results of `promptfoo eval -o`, as JSON, YAML or JSONL; each prompt with each provider is a run."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from fepflow.errors import InputError, Problem
from fepflow.imports.imported import (
    Imported,
    ImportedOutput,
    ImportedRun,
    Notes,
    Score,
    finite_number,
    known,
    mapping,
    moment,
    text_or_none,
    unique_names,
)
from fepflow.imports.source import Source
from fepflow.protocol.content_hash import content_hash
from fepflow.text import cut

VERSIONS = (2, 3)
OVERALL = "overall"
"""Scorer of promptfoo's own: whether the test passed, by its assertions, weights and threshold together."""

_ERROR = 2
"""`failureReason` of a row that could not be evaluated."""


def looks_like(source: Source) -> bool:
    """Return whether the file holds results of promptfoo: rows with the indices of prompt and test."""
    first = source.first_record
    if first is not None:
        return _is_row(first) or _is_table(first)
    results = _results(source.data)
    rows = results.get("results") if results is not None else None
    return isinstance(rows, list) and ("version" in (results or {}) or (bool(rows) and _is_row(rows[0])))


def read(source: Source) -> Imported:
    """Read results. Raises InputError for a version that is not known."""
    notes = Notes(source.name)
    if _is_table(source.first_record):
        message = "is a table of results, which lacks what each assertion said"
        advice = "write them as JSON: promptfoo export eval latest -o results.json"
        raise InputError(Problem(message, source.name, advice=advice))
    if source.is_document:
        document = source.data
        results = _results(document)
        if results is None or not isinstance(results.get("results"), list):
            raise InputError(Problem("holds no results of promptfoo: results.results is no list", source.name))
        version = results.get("version")
        if version not in VERSIONS:
            known = " and ".join(map(str, VERSIONS))
            message = f"are results of promptfoo in version {version!r}, which is not known"
            raise InputError(Problem(message, source.name, advice=f"known are {known}"))
        rows = list(enumerate(results["results"]))
        config = mapping(document.get("config"))
        heads = results.get("prompts") or (results.get("table") or {}).get("head", {}).get("prompts") or []
        at = results.get("timestamp")
    else:
        rows, version, config, heads, at = list(source.records()), 3, {}, [], None
    reader = _Reader(notes, heads if isinstance(heads, list) else [])
    for line, row in rows:
        reader.add(row, None if source.is_document else line)
    if not reader.rows:
        raise InputError(Problem("holds no results", source.name))
    runs = reader.runs()
    name = text_or_none(config.get("description")) or source.stem
    notes.came(test_case=len(reader.cases), output=len(reader.rows), run=len(runs))
    started = moment(at)
    runs = [ImportedRun(run.outputs, run.repeats, run.cases, run.variant, started, started) for run in runs]
    return Imported("promptfoo", f"results {version}", cut(" ".join(name.split()), 150), notes, reader.cases, {}, runs)


def _results(data: Any) -> dict[str, Any] | None:
    if not isinstance(data, dict):
        return None
    inner = data.get("results")
    return inner if isinstance(inner, dict) else data if isinstance(inner, list) else None


def _is_row(row: Any) -> bool:
    return isinstance(row, dict) and "promptIdx" in row and "testIdx" in row and ("success" in row or "vars" in row)


def _is_table(record: Any) -> bool:
    """Return whether this is a row of `promptfoo eval -o results.csv`: answers begin with the outcome."""
    return isinstance(record, dict) and any(re.match(r"\[(PASS|FAIL|ERROR)\]", str(cell)) for cell in record.values())


@dataclass(slots=True)
class _Row:
    test: str
    column: tuple[int, str, str]
    value: Any
    error: str | None
    metadata: dict[str, Any]
    parts: dict[str, Score]
    overall: Score | None
    is_conjunction: bool


class _Reader:
    """A reader of rows, which become cases and runs."""

    def __init__(self, notes: Notes, heads: Sequence[Any]) -> None:
        self._notes = notes
        self._heads = heads
        self.rows: list[_Row] = []
        self.cases: list[dict[str, Any]] = []
        self._tests: dict[str, dict[str, Any]] = {}

    def add(self, row: Any, line: int | None) -> None:
        """Take a row in; one that is none is noted."""
        if not _is_row(row):
            self._notes.by_hand("a row that is no result is left out", line, f"results[{len(self.rows)}]")
            return
        test = mapping(row.get("testCase"))
        case = _case(row, test)
        key = content_hash(case, _asserts(test))
        self._tests.setdefault(key, case)
        response = mapping(row.get("response"))
        error = _error_of(row, response)
        parts, overall, is_conjunction = _scores(row)
        if error is not None:  # a score of 0 that stands beside an error is none
            parts, overall = {name: Score(error=error) for name in _declared(test)}, Score(error=error)
        elif overall is None:
            self._notes.by_hand("a test asserts nothing, so no check judges its output", line, f"test {row['testIdx']}")
        column = self._column(row)
        self.rows.append(
            _Row(key, column, response.get("output"), error, _metadata(row, response), parts, overall, is_conjunction)
        )

    def _column(self, row: Mapping[str, Any]) -> tuple[int, str, str]:
        index = row["promptIdx"] if isinstance(row["promptIdx"], int) else 0
        head = self._heads[index] if 0 <= index < len(self._heads) and isinstance(self._heads[index], dict) else {}
        provider = row.get("provider")
        if isinstance(provider, dict):
            provider = provider.get("label") or provider.get("id")
        provider = provider or head.get("provider") or "unknown"
        prompt = mapping(row.get("prompt"))
        label = head.get("label") or head.get("raw") or prompt.get("label") or prompt.get("raw") or ""
        return index, str(provider), str(label)

    def runs(self) -> list[ImportedRun]:
        """Return a run for each column, and set the cases: the same test in every column is one case."""
        by_parts = all(row.is_conjunction for row in self.rows)
        if not by_parts:
            what = "tests pass by a threshold, weights or a scoring function: the test's own result decides"
            self._notes.by_hand(f"{what} (check {OVERALL}), and single assertions are scores that are not judged")
        columns: dict[tuple[int, str, str], dict[str, list[_Row]]] = defaultdict(lambda: defaultdict(list))
        for row in self.rows:
            columns[row.column][row.test].append(row)
        # Files do not tell repeats from tests that stand twice: what all tests have in common is repeats.
        counts = [len(rows) for tests in columns.values() for rows in tests.values()]
        repeats = gcd(*counts)
        copies = max(counts) // repeats
        indices: dict[tuple[str, int], int] = {}
        for copy in range(copies):
            for key, case in self._tests.items():
                if any(len(tests.get(key, ())) > copy * repeats for tests in columns.values()):
                    indices[key, copy] = len(self.cases)
                    self.cases.append(case)
        variants = _variants(sorted(columns))
        runs = []
        for column, variant in zip(sorted(columns), variants, strict=True):
            outputs = [
                _output(row, indices[key, number // repeats], number % repeats, by_parts)
                for key, rows in columns[column].items()
                for number, row in enumerate(rows)
            ]
            cases = sorted({output.case for output in outputs})
            runs.append(ImportedRun(outputs, repeats, None if len(cases) == len(self.cases) else cases, variant))
        return runs


def _output(row: _Row, case: int, repeat: int, by_parts: bool) -> ImportedOutput:
    scores = dict(row.parts)
    if not by_parts:
        scores = {name: Score(None, part.score, part.reason, part.error) for name, part in scores.items()}
    if row.overall is not None and (not by_parts or not scores):
        scores[OVERALL] = row.overall
    return ImportedOutput(case, row.value, repeat, row.error, row.metadata, scores, row.overall is None)


def _case(row: Mapping[str, Any], test: Mapping[str, Any]) -> dict[str, Any]:
    rendered = mapping(row.get("vars"))
    declared = mapping(test.get("vars")) or rendered
    values = {
        name: rendered.get(name, value) if isinstance(value, str) and value.startswith("file://") else value
        for name, value in declared.items()
    }
    metadata = dict(mapping(test.get("metadata")))
    if description := text_or_none(test.get("description") or row.get("description")):
        metadata["description"] = description
    prompt = mapping(row.get("prompt"))
    case = {"input": values or metadata.get("description") or prompt.get("raw") or ""}
    return {**case, "metadata": metadata} if metadata else case


def _asserts(test: Mapping[str, Any]) -> Any:
    return test.get("assert") if isinstance(test.get("assert"), list) else None


def _declared(test: Mapping[str, Any]) -> list[str]:
    """Return the names that the results of a test's assertions would have."""
    names = []
    for assertion in _asserts(test) or ():
        if isinstance(assertion, dict):
            is_set = assertion.get("type") == "assert-set"
            names.append(_name({} if is_set else {"assertion": assertion}))
            inner = assertion.get("assert") if is_set else None
            names += [_name({"assertion": part}) for part in _list(inner) if isinstance(part, dict)]
    return unique_names(names)


def _error_of(row: Mapping[str, Any], response: Mapping[str, Any]) -> str | None:
    """Return why the row could not be evaluated; None if assertions, or nothing, made it fail.

    Of results without `failureReason` an error without a grading is one.
    """
    reason, error = row.get("failureReason"), text_or_none(row.get("error") or response.get("error"))
    if reason == _ERROR:
        return error or "promptfoo could not evaluate it"
    grading = row.get("gradingResult")
    if error and not (isinstance(grading, dict) and isinstance(grading.get("pass"), bool)):
        return error
    if response.get("error"):
        return text_or_none(response["error"]) or "the provider gave an error"
    return None


def _metadata(row: Mapping[str, Any], response: Mapping[str, Any]) -> dict[str, Any]:
    usage = mapping(response.get("tokenUsage"))
    prompt = mapping(row.get("prompt"))
    return known(
        latency_ms=finite_number(row.get("latencyMs")),
        usd=finite_number(row.get("cost", response.get("cost"))),
        tokens=finite_number(usage.get("total")),
        cached=response.get("cached") if isinstance(response.get("cached"), bool) else None,
        prompt=text_or_none(prompt.get("raw")),
    )


def _scores(row: Mapping[str, Any]) -> tuple[dict[str, Score], Score | None, bool]:
    """Return the scores of the assertions by name, that of the test as a whole (None if nothing was asserted), and
    whether the test passed exactly if each of its assertions did."""
    grading = row.get("gradingResult")
    if not isinstance(grading, dict):
        asserted = bool(_asserts(row.get("testCase") or {})) or row.get("success") is False
        return {}, (_score(row, "success") if asserted else None), True
    components = [part for part in _list(grading.get("componentResults")) if isinstance(part, dict)]
    names = unique_names([_name(part) for part in components])
    parts = {name: _score(part, "pass") for name, part in zip(names, components, strict=True)}
    passed = row.get("success") if isinstance(row.get("success"), bool) else grading.get("pass")
    overall = _score({**grading, "pass": passed}, "pass")
    if not components:
        asserts_nothing = grading.get("reason") == "No assertions" and passed is True
        return {}, (None if asserts_nothing else overall), True
    in_all = all(part.get("pass") is True for part in components)
    assertions = [mapping(part.get("assertion")) for part in components]
    metric_only = any(each.get("metricOnly") is True or each.get("weight") == 0 for each in assertions)
    is_error = row.get("failureReason") == _ERROR
    return parts, overall, is_error or (passed is in_all and not metric_only)


def _score(grading: Mapping[str, Any], name: str) -> Score:
    if mapping(grading.get("metadata")).get("graderError") is True:
        return Score(error=text_or_none(grading.get("reason")) or "the grader failed")
    return Score.of(grading.get(name), grading.get("score"), grading.get("reason"))


def _name(part: Mapping[str, Any]) -> str:
    assertion = part.get("assertion")
    if not isinstance(assertion, dict):
        return "assert-set"
    return text_or_none(assertion.get("metric")) or text_or_none(assertion.get("type")) or "assertion"


def _variants(columns: Sequence[tuple[int, str, str]]) -> Iterator[dict[str, str] | None]:
    """Yield what tells each column from the others: provider, prompt, or both; a number where both are the same."""
    providers, prompts = {column[1] for column in columns}, {column[2] for column in columns}
    seen: set[tuple[str, str]] = set()
    for number, provider, prompt in columns:
        variant: dict[str, str] = {}
        if len(providers) > 1:
            variant["provider"] = provider
        if len(prompts) > 1:
            variant["prompt"] = cut(" ".join(prompt.split()), 80)
        key = (variant.get("provider", ""), variant.get("prompt", ""))
        if key in seen:
            variant["column"] = str(number + 1)
        seen.add(key)
        yield (variant or None) if len(columns) > 1 else None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
