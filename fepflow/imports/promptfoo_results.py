"""promptfoo: results of `promptfoo eval -o`, as JSON, YAML or JSONL; each prompt with each provider is a run."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
    listed,
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
"""The scorer for a test's own result, which depends on its assertions, weights and threshold together."""

_ERROR = 2
"""`failureReason` of a row that could not be evaluated."""


def looks_like(source: Source) -> bool:
    """Return whether the file holds results of promptfoo: rows with the indices of prompt and test."""
    first = source.first_record
    if first is not None:
        return _is_row(first) or _is_table(first)
    results = _results(source.data)
    rows = results.get("results")
    return isinstance(rows, list) and ("version" in results or (bool(rows) and _is_row(rows[0])))


def read(source: Source) -> Imported:
    """Read results. Raises InputError for an unknown version."""
    if _is_table(source.first_record):
        message = "is a table of results, which lacks the results of single assertions"
        advice = "write them as JSON: promptfoo export eval latest -o results.json"
        raise InputError(Problem(message, source.name, advice=advice))
    document = mapping(source.data)
    results: dict[str, Any] = _results(document) if source.is_document else {"version": 3}
    version = results.get("version")
    if source.is_document and not isinstance(results.get("results"), list):
        raise InputError(Problem("holds no results of promptfoo: results.results is not a list", source.name))
    if version not in VERSIONS:
        message = f"are results of promptfoo in version {version!r}, which is not known"
        raise InputError(Problem(message, source.name, advice=f"known are {' and '.join(map(str, VERSIONS))}"))
    heads = results.get("prompts") or mapping(mapping(results.get("table")).get("head")).get("prompts")
    reader = _Reader(Notes(source.name), listed(heads))
    rows = ((None, row) for row in results["results"]) if source.is_document else source.records()
    for line, row in rows:
        reader.add(row, line)
    if not reader.rows:
        raise InputError(Problem("holds no results", source.name))
    runs = reader.runs()
    for run in runs:
        run.times = [moment(results.get("timestamp"))]
    reader.notes.came(test_case=len(reader.cases), output=len(reader.rows), run=len(runs))
    name = text_or_none(mapping(document.get("config")).get("description")) or source.stem
    name = cut(" ".join(name.split()), 150)
    return Imported("promptfoo", f"results {version}", name, reader.notes, reader.cases, runs=runs)


def _results(data: Any) -> dict[str, Any]:
    inner = mapping(data).get("results")
    return data if isinstance(inner, list) else mapping(inner)


def _is_row(row: Any) -> bool:
    return isinstance(row, dict) and "promptIdx" in row and "testIdx" in row and ("success" in row or "vars" in row)


def _is_table(record: Any) -> bool:
    """Return whether this is a row of `promptfoo eval -o results.csv`: answers begin with the outcome."""
    return isinstance(record, dict) and any(re.match(r"\[(PASS|FAIL|ERROR)\]", str(cell)) for cell in record.values())


@dataclass(slots=True)
class _Row:
    """A result of a test. `output` has the scores of its assertions; its case and repeat are not set yet."""

    test: str
    column: tuple[int, str, str]
    output: ImportedOutput
    overall: Score | None
    is_conjunction: bool


class _Reader:
    """A reader of rows, which become cases and runs."""

    def __init__(self, notes: Notes, heads: Sequence[Any]) -> None:
        self.notes = notes
        self._heads = heads
        self.rows: list[_Row] = []
        self.cases: list[dict[str, Any]] = []
        self._tests: dict[str, dict[str, Any]] = {}

    def add(self, row: Any, line: int | None) -> None:
        """Add a row, or note what is not a row."""
        if not _is_row(row):
            self.notes.by_hand("a row that is not a result is left out", line, f"results[{len(self.rows)}]")
            return
        test = mapping(row.get("testCase"))
        case = _case(row, test)
        key = content_hash(case, _asserts(test))
        self._tests.setdefault(key, case)
        response = mapping(row.get("response"))
        error = _error_of(row, response)
        parts, overall, is_conjunction = _scores(row)
        if error is not None:  # a score of 0 beside an error is not a score
            parts, overall = {name: Score(error=error) for name in _declared(test)}, Score(error=error)
        elif overall is None:
            self.notes.by_hand("a test asserts nothing, so no check judges its output", line, f"test {row['testIdx']}")
        value, metadata = response.get("output"), _metadata(row, response)
        output = ImportedOutput(0, value, 0, error, metadata, parts, asserts_nothing=overall is None)
        self.rows.append(_Row(key, self._column(row), output, overall, is_conjunction))

    def _column(self, row: Mapping[str, Any]) -> tuple[int, str, str]:
        index = row["promptIdx"] if isinstance(row["promptIdx"], int) else 0
        head = mapping(self._heads[index]) if 0 <= index < len(self._heads) else {}
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
            self.notes.by_hand(f"{what} (check {OVERALL}), and single assertions are scores that are not judged")
        columns: dict[tuple[int, str, str], dict[str, list[_Row]]] = defaultdict(lambda: defaultdict(list))
        for row in self.rows:
            columns[row.column][row.test].append(row)
        # Files do not tell repeats from tests that stand twice: what all tests have in common is repeats.
        counts = [len(rows) for tests in columns.values() for rows in tests.values()]
        repeats = gcd(*counts)
        indices: dict[tuple[str, int], int] = {}
        for copy in range(max(counts) // repeats):
            for key, case in self._tests.items():
                if any(len(tests.get(key, ())) > copy * repeats for tests in columns.values()):
                    indices[key, copy] = len(self.cases)
                    self.cases.append(case)
        runs = []
        for column, variant in zip(sorted(columns), _variants(sorted(columns)), strict=True):
            outputs = [
                _output(row, indices[key, number // repeats], number % repeats, by_parts)
                for key, rows in columns[column].items()
                for number, row in enumerate(rows)
            ]
            cases = sorted({output.case for output in outputs})
            runs.append(ImportedRun(outputs, repeats, None if len(cases) == len(self.cases) else cases, variant))
        return runs


def _output(row: _Row, case: int, repeat: int, by_parts: bool) -> ImportedOutput:
    scores = row.output.scores
    if not by_parts:
        scores = {name: replace(score, passed=None) for name, score in scores.items()}
    if row.overall is not None and (not by_parts or not scores):
        scores = {**scores, OVERALL: row.overall}
    return replace(row.output, case=case, repeat=repeat, scores=scores)


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


def _asserts(test: Mapping[str, Any]) -> list[Any] | None:
    return test["assert"] if isinstance(test.get("assert"), list) else None


def _declared(test: Mapping[str, Any]) -> list[str]:
    """Return the names that the results of a test's assertions would have."""
    names = []
    for assertion in map(mapping, _asserts(test) or ()):
        is_set = assertion.get("type") == "assert-set"
        names.append(_name({} if is_set else {"assertion": assertion}))
        names += [_name({"assertion": mapping(part)}) for part in listed(assertion.get("assert")) if is_set]
    return unique_names(names)


def _error_of(row: Mapping[str, Any], response: Mapping[str, Any]) -> str | None:
    """Return why the row could not be evaluated; None if assertions, or nothing, made it fail.

    Results without `failureReason` have an error and no grading then.
    """
    reason, error = row.get("failureReason"), text_or_none(row.get("error") or response.get("error"))
    if reason == _ERROR:
        return error or "promptfoo could not evaluate it"
    if error and not isinstance(mapping(row.get("gradingResult")).get("pass"), bool):
        return error
    if response.get("error"):
        return text_or_none(response["error"]) or "the provider returned an error"
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
    """Return the results of a row.

    Returns:
        The scores of the assertions by name, the score of the test as a whole (None if nothing was asserted), and
        True if the test passed exactly if each of its assertions did.
    """
    grading = row.get("gradingResult")
    if not isinstance(grading, dict):
        asserted = bool(_asserts(mapping(row.get("testCase")))) or row.get("success") is False
        return {}, (_score(row, "success") if asserted else None), True
    components = [part for part in listed(grading.get("componentResults")) if isinstance(part, dict)]
    names = unique_names([_name(part) for part in components])
    parts = {name: _score(part, "pass") for name, part in zip(names, components, strict=True)}
    passed = row.get("success") if isinstance(row.get("success"), bool) else grading.get("pass")
    overall = _score({**grading, "pass": passed}, "pass")
    if not components:
        asserts_nothing = grading.get("reason") == "No assertions" and passed is True
        return {}, (None if asserts_nothing else overall), True
    in_all = all(part.get("pass") is True for part in components)
    assertions = [mapping(part.get("assertion")) for part in components]
    metric_only = any(part.get("metricOnly") is True or part.get("weight") == 0 for part in assertions)
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
    """Yield the variant of each column: its provider, its prompt, or both; a number if both are the same as before."""
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
