"""Validation of EvalGuard's documents: all errors and warnings of all files at once (EvalGuard 1.3, 5 and 7).

A MUST that is violated is an error, a SHOULD a warning; so is whatever is allowed, and likely not meant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from fepflow.documents.loader import Document, parse_document, read_text
from fepflow.errors import InputError, Problem
from fepflow.evalguard.catalogue_rules import Entry, check_catalogue, problem_at
from fepflow.evalguard.documents import FOLDERS, MODELS, Kind, find_documents, is_lm_eval, kind_of
from fepflow.evalguard.policy_metrics import PolicyMetrics
from fepflow.evalguard.report import flattened
from fepflow.evalguard.schema_errors import SchemaError, validated, without_unknown
from fepflow.json.decoder import loads_with_nan

_RULES = {"task": "5.2", "metric": "5.3", "threshold": "5.4", "policy": "5.4", "report": "4.4.2"}
_KINDS = "a task, metric, threshold, policy or report"


@dataclass
class CatalogueValidation:
    """What was looked at, and what is wrong with it, by file and line; `ignored` are documents of other kinds."""

    files: int = 0
    ignored: list[Path] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def errors(self) -> list[Problem]:
        """What is not valid."""
        return [problem for problem in self.problems if problem.severity == "error"]

    @property
    def warnings(self) -> list[Problem]:
        """What is valid, and likely not meant."""
        return [problem for problem in self.problems if problem.severity == "warning"]


@dataclass
class _Reading:
    """Documents that are being read; `is_context` is true for those that only others' references lead to."""

    is_lenient: bool
    result: CatalogueValidation
    metrics: PolicyMetrics = field(default_factory=PolicyMetrics)
    entries: list[Entry] = field(default_factory=list)

    def read(self, path: Path, *, is_named: bool, is_context: bool = False) -> None:
        """Read a document and hold it against its schema; `is_named` if the user has named this very file."""
        problems: list[Problem] = []
        text = None
        try:
            text = read_text(path, str(path))
            document = parse_document(text, str(path))
        except InputError as error:
            if is_named and text is None:
                raise
            if results := _lm_eval_results(path, text or ""):
                problems += self._pass_over(results, path, "lm-eval results", is_named=is_named)
            else:
                problems += (replace(problem, rule="5.1.1") for problem in error.problems)
        else:
            problems += self._take(document, path, is_named=is_named, is_context=is_context)
        if not is_context:
            self.result.problems += problems

    def _take(self, document: Document, path: Path, *, is_named: bool, is_context: bool) -> list[Problem]:
        kind = kind_of(document.data, path)
        if kind is None or kind == "lm-eval results":
            return self._pass_over(document, path, kind, is_named=is_named)
        self.result.files += not is_context
        data = flattened(document.data) if kind == "report" else document.data
        if kind == "task":
            data = self.metrics.completed(data, path)
        definition, errors = validated(MODELS[kind], data)
        if self.is_lenient and definition is None and any(error.is_unknown for error in errors):
            definition, _ = validated(MODELS[kind], without_unknown(data, errors))
        self.entries.append(Entry(kind, document, data, definition, is_context))
        return [self._problem(document, kind, error) for error in errors]

    def _pass_over(self, document: Document, path: Path, kind: Kind | None, *, is_named: bool) -> list[Problem]:
        self.result.ignored.append(path)
        if not is_named:
            return []
        if kind is None:
            return [problem_at(document, (), f"is not {_KINDS} of EvalGuard", "5.1.1")]
        advice = "fepflow evalguard import reads it"
        return [problem_at(document, (), f"is not {_KINDS}, but results of lm-evaluation-harness", "5.1.1", advice)]

    def _problem(self, document: Document, kind: Kind, error: SchemaError) -> Problem:
        rule = "5.1.1" if error.is_unknown else _RULES[kind]
        severity: Literal["error", "warning"] = "warning" if error.is_unknown and self.is_lenient else "error"
        return problem_at(document, error.path, error.message, rule, error.advice, severity)


def _lm_eval_results(path: Path, text: str) -> Document | None:
    """Return the document of lm-evaluation-harness in a text that is no JSON because of NaN, which it writes."""
    try:
        data = loads_with_nan(text) if path.suffix == ".json" else None
    except (ValueError, RecursionError):
        return None
    return Document(data, str(path), text) if is_lm_eval(data) else None


def validate_catalogue(paths: Sequence[Path], *, is_lenient: bool = False) -> CatalogueValidation:
    """Find everything that is wrong with files and folders; with `is_lenient` unknown fields are only warnings (3.3).

    A file in one of a catalogue's folders (`tasks`, `metrics`, `thresholds`, `policies`) is held against the rest of
    that catalogue. Raises InputError for a path that cannot be read, and for a folder without documents.
    """
    result = CatalogueValidation()
    reading = _Reading(is_lenient, result)
    named = [path for path in paths if not path.is_dir()]
    inside = [path for folder in paths if folder.is_dir() for path in _below(folder, result)]
    for group, path in _distinct([named, inside, _context(named)]):
        reading.read(path, is_named=group == 0, is_context=group == 2)
    context_first = sorted(reading.entries, key=lambda entry: not entry.is_context)
    result.problems += check_catalogue(context_first)
    result.problems.sort(key=lambda problem: (problem.file or "", problem.line or 0, problem.column or 0))
    return result


def _below(folder: Path, result: CatalogueValidation) -> list[Path]:
    found = find_documents(folder)
    if not (found.files or found.problems or found.ignored):
        advice = "name a folder with .yaml, .yml or .json files, or a file"
        raise InputError(Problem("there are no documents in this folder", str(folder), advice=advice))
    result.problems += found.problems
    result.ignored += found.ignored
    return found.files


def _context(named: Sequence[Path]) -> list[Path]:
    """The definitions of the catalogues that files are part of."""
    roots = dict.fromkeys(path.parent.parent for path in named if path.parent.name in FOLDERS)
    return [path for root in roots for path in find_documents(root).files if path.parent.name in FOLDERS]


def _distinct(groups: Sequence[Sequence[Path]]) -> Iterator[tuple[int, Path]]:
    """Each file once, with the first of the groups that it is in."""
    seen: set[Path] = set()
    for group, paths in enumerate(groups):
        for path in paths:
            if (where := path.resolve()) not in seen:
                seen.add(where)
                yield group, path
