"""Validation of EvalGuard's documents: all errors and warnings of all files at once (EvalGuard 1.3, 5 and 7).

A MUST that is violated is an error, a SHOULD a warning; so is whatever is allowed, and likely not meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from fepflow.documents.files import read_text
from fepflow.documents.loader import Document, parse_document
from fepflow.documents.messages import did_you_mean
from fepflow.errors import DocumentPath, InputError, Problem, ValidationMessage, dotted
from fepflow.evalguard.documents import (
    FOLDERS,
    MODELS,
    Kind,
    PolicyMetrics,
    find_documents,
    is_unknown,
    kind_of,
    load_metrics,
    load_tasks,
    validated,
    without_unknown,
)
from fepflow.evalguard.models import (
    Definition,
    Metric,
    Policy,
    Range,
    Report,
    Task,
    Thresholds,
    check_ranges,
    flattened,
)

_RULES = {"task": "5.2", "metric": "5.3", "threshold": "5.4", "policy": "5.4", "report": "4.4.2"}
_KINDS = "a task, metric, threshold, policy or report"


@dataclass
class CatalogueValidation:
    """The files that were validated, and their problems by file and line; `ignored` are documents of other kinds."""

    files: int = 0
    ignored: list[Path] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def errors(self) -> list[Problem]:
        """The problems that are errors."""
        return [problem for problem in self.problems if problem.severity == "error"]

    @property
    def warnings(self) -> list[Problem]:
        """The problems that are warnings: valid, but probably not meant."""
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
        text = None
        try:
            text = read_text(path, str(path))
            document = parse_document(text, str(path), nan=True)
        except InputError as error:
            if is_named and text is None:
                raise
            problems = [replace(problem, rule="5.1.1") for problem in error.problems]
        else:
            problems = self._take(document, path, is_named=is_named, is_context=is_context)
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
        if self.is_lenient and definition is None:
            definition, _ = validated(MODELS[kind], without_unknown(MODELS[kind], data, errors))
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

    def _problem(self, document: Document, kind: Kind, error: ValidationMessage) -> Problem:
        unknown = is_unknown(MODELS[kind], error.path)
        severity: Literal["error", "warning"] = "warning" if unknown and self.is_lenient else "error"
        return problem_at(
            document, error.path, error.message, "5.1.1" if unknown else _RULES[kind], error.advice, severity
        )


def validate_catalogue(paths: Sequence[Path], *, is_lenient: bool = False) -> CatalogueValidation:
    """Find everything that is wrong with files and folders; with `is_lenient` unknown fields are only warnings (3.3).

    A file in one of a catalogue's folders (`tasks`, `metrics`, `thresholds`, `policies`) is held against the rest of
    that catalogue. Raises InputError for a path that cannot be read, and for a folder without documents.
    """
    result = CatalogueValidation()
    reading = _Reading(is_lenient, result)
    files = [path for path in paths if not path.is_dir()]
    inside = [path for folder in paths if folder.is_dir() for path in _below(folder, result)]
    for group, path in _distinct([files, inside, _context(files)]):
        reading.read(path, is_named=group == 0, is_context=group == 2)
    context_first = sorted(reading.entries, key=lambda entry: not entry.is_context)
    result.problems += check_catalogue(context_first)
    result.problems.sort(key=lambda problem: (problem.file or "", problem.line or 0, problem.column or 0))
    return result


def _below(folder: Path, result: CatalogueValidation) -> list[Path]:
    documents = find_documents(folder)
    if not (documents.files or documents.problems or documents.ignored):
        advice = "name a folder with .yaml, .yml or .json files, or a file"
        raise InputError(Problem("there are no documents in this folder", str(folder), advice=advice))
    result.problems += documents.problems
    result.ignored += documents.ignored
    return documents.files


def _context(files: Sequence[Path]) -> list[Path]:
    """Return the definitions of the catalogues that files are part of."""
    roots = dict.fromkeys(path.parent.parent for path in files if path.parent.name in FOLDERS)
    return [path for root in roots for path in find_documents(root).files if path.parent.name in FOLDERS]


def _distinct(groups: Sequence[Sequence[Path]]) -> Iterator[tuple[int, Path]]:
    """Yield each file once, with the first of the groups that it is in."""
    seen: set[Path] = set()
    for group, paths in enumerate(groups):
        for path in paths:
            if (where := path.resolve()) not in seen:
                seen.add(where)
                yield group, path


STANDARD_CATEGORIES = (
    "bias_evaluation",
    "coreference_resolution",
    "ethical_reasoning",
    "language_modeling",
    "question_answering",
    "toxicity_detection",
)
"""Names in EvalGuard's specification and in its own tasks: it has no other list of them."""


@dataclass(frozen=True)
class Entry:
    """A document that was read: its content, None as `definition` if it is not valid; of `is_context` nothing is said.

    `data` of a report by name is that of the specification's form, in which places are then approximate.
    """

    kind: Kind
    document: Document
    data: Any
    definition: Definition | None
    is_context: bool = False

    def id(self, name: str = "id") -> str | None:
        """Return the id that the document claims, also where it is not valid: others may refer to it."""
        value = self.data.get(name) if isinstance(self.data, Mapping) else None
        return value if isinstance(value, str) else None

    def error(self, path: DocumentPath, message: str, rule: str, advice: str | None = None) -> Problem:
        """Return the violation of a MUST."""
        return problem_at(self.document, path, message, rule, advice)

    def warning(self, path: DocumentPath, message: str, rule: str, advice: str | None = None) -> Problem:
        """Return the violation of a SHOULD, or something that is probably not meant."""
        return problem_at(self.document, path, message, rule, advice, "warning")


def problem_at(
    document: Document,
    path: DocumentPath,
    message: str,
    rule: str,
    advice: str | None = None,
    severity: Literal["error", "warning"] = "error",
) -> Problem:
    """Return a problem with line and column."""
    line, column = document.position_of(path) or (None, None)
    return Problem(message, document.file, line, dotted(path) or None, advice, severity, column, rule)


@dataclass(frozen=True)
class Catalogue:
    """Definitions by id, None for one that is not valid; `kinds` are those that there are documents of."""

    kinds: frozenset[Kind] = frozenset()
    tasks: Mapping[str, Definition | None] = field(default_factory=dict)
    metrics: Mapping[str, Definition | None] = field(default_factory=dict)

    def lacks(self, kind: Literal["task", "metric"], name: str) -> tuple[str, str] | None:
        """Return message and advice for the name of a task or a metric if such are defined, and this one is not."""
        known = self.tasks if kind == "task" else self.metrics
        if kind not in self.kinds or name in known:
            return None
        return f"there is no definition of the {kind} {name}", did_you_mean(name, list(known))

    def task(self, name: str) -> Task | None:
        """Return a valid task."""
        definition = self.tasks.get(name)
        return definition if isinstance(definition, Task) else None

    def metric(self, name: str) -> Metric | None:
        """Return a valid metric."""
        definition = self.metrics.get(name)
        return definition if isinstance(definition, Metric) else None


def catalogue_near(thresholds: Path) -> Catalogue:
    """Load the `tasks` and `metrics` folders beside the `thresholds` (or `policies`) folder that a path leads to or
    into.

    Raises InputError for definitions that are not valid.
    """
    if any((thresholds / name).is_dir() for name in ("thresholds", "policies")):
        root = thresholds
    else:
        root = thresholds.parent if thresholds.is_dir() else thresholds.parent.parent
    tasks = load_tasks(root) if (root / "tasks").is_dir() else {}
    metrics = load_metrics(root) if (root / "metrics").is_dir() else {}
    kinds: list[tuple[Kind, bool]] = [("task", bool(tasks)), ("metric", bool(metrics))]
    return Catalogue(frozenset(kind for kind, is_defined in kinds if is_defined), tasks, metrics)


def remarks(thresholds: Thresholds, catalogue: Catalogue) -> list[Problem]:
    """Return warnings about a suite's thresholds: ranges that surprise, and references that lead nowhere (5.1)."""
    document = Document({"task": thresholds.task}, "", "")
    entry = Entry("threshold", document, document.data, thresholds)
    problems = _checks_of(entry, catalogue)
    return [replace(problem, file=None, line=None, column=None, severity="warning") for problem in problems]


def check_catalogue(entries: Sequence[Entry]) -> list[Problem]:
    """Return all problems between the documents of a catalogue, except of entries that are only context."""
    problems: list[Problem] = []
    tasks = _unique(entries, "task", "4.1.2", problems)
    metrics = _unique(entries, "metric", "4.2.2", problems)
    _unique(entries, "report", "4.4.2", problems)
    _unique(entries, "policy", "5.1", problems)
    _unique(entries, "threshold", "5.1.5", problems)
    catalogue = Catalogue(frozenset(entry.kind for entry in entries), tasks, metrics)
    for entry in entries:
        if not entry.is_context:
            problems += _checks_of(entry, catalogue)
    problems += _without_definitions(entries, catalogue)
    problems += _of_newer_layout(entries)
    return problems


def _unique(entries: Iterable[Entry], kind: Kind, rule: str, problems: list[Problem]) -> dict[str, Definition | None]:
    """Return the documents of a kind by their ids; the second one of an id is an error."""
    name = "task" if kind == "threshold" else "id"
    by_id: dict[str, Entry] = {}
    for entry in entries:
        identity = entry.id(name) if entry.kind == kind else None
        if identity is None:
            continue
        first = by_id.setdefault(identity, entry)
        if first is not entry and not entry.is_context:
            what = "thresholds of the task" if kind == "threshold" else f"the {kind}"
            message = f"{what} {identity} {'are' if kind == 'threshold' else 'is'} defined already, in"
            advice = "keep all metrics of a task in one file" if kind == "threshold" else "give it another id"
            problems.append(entry.error((name,), f"{message} {first.document.file}", rule, advice))
    return {identity: entry.definition for identity, entry in by_id.items()}


def _checks_of(entry: Entry, catalogue: Catalogue) -> Iterator[Problem]:
    if entry.kind == "task":
        yield from _check_task(entry, catalogue)
    elif entry.kind == "threshold":
        task = entry.id("task")
        if task is not None and (lacking := catalogue.lacks("task", task)):
            yield entry.error(("task",), lacking[0], "5.1.3", lacking[1])
        yield from _check_thresholds(entry, catalogue, task, ("thresholds",), entry.data)
    elif entry.kind == "policy":
        yield from _check_policy(entry, catalogue)
    elif entry.kind == "report":
        yield from _check_report(entry, catalogue)


def _check_task(entry: Entry, catalogue: Catalogue) -> Iterator[Problem]:
    data = entry.document.data  # without the metrics of policies, which are those documents' own
    metrics = data.get("metrics") if isinstance(data, Mapping) else None
    names = metrics if isinstance(metrics, list) else []
    for index, name in enumerate(names):
        if not isinstance(name, str):
            continue
        if lacking := catalogue.lacks("metric", name):
            yield entry.error(("metrics", index), lacking[0], "5.1.2", lacking[1])
        if name in names[:index]:
            yield entry.warning(("metrics", index), f"the metric {name} is listed twice", "4.1.2", "list it once")
    if metrics == []:
        yield entry.warning(("metrics",), "the task has no metric", "4.1.2", "list the metrics that apply to it")
    category = entry.id("category")
    if category is not None and category not in STANDARD_CATEGORIES:
        advice = did_you_mean(category, STANDARD_CATEGORIES)
        yield entry.warning(("category",), f"{category} is not a standard category", "5.2", advice)


def _check_policy(entry: Entry, catalogue: Catalogue) -> Iterator[Problem]:
    if not isinstance(entry.definition, Policy):
        return
    for task, metrics in entry.definition.thresholds.items():
        path = ("thresholds", task)
        if lacking := catalogue.lacks("task", task):
            yield entry.error(path, lacking[0], "5.1.3", lacking[1])
        yield from _check_metrics(entry, catalogue, task, path, metrics)


def _check_thresholds(
    entry: Entry, catalogue: Catalogue, task: str | None, path: DocumentPath, data: Any
) -> Iterator[Problem]:
    """Check the thresholds of a task as far as they are valid, whatever else is wrong with the document."""
    if isinstance(entry.definition, Thresholds):
        yield from _check_metrics(entry, catalogue, task, path, entry.definition.thresholds)
        return
    table = data.get("thresholds") if isinstance(data, Mapping) else None
    valid: dict[str, list[Range]] = {}
    for name, ranges in table.items() if isinstance(table, Mapping) else ():
        try:
            valid[name] = Thresholds.model_validate({"task": "any", "thresholds": {name: ranges}}).thresholds[name]
        except ValueError:
            valid[name] = []
    yield from _check_metrics(entry, catalogue, task, path, valid, skip_empty=True)


def _check_metrics(
    entry: Entry,
    catalogue: Catalogue,
    task: str | None,
    path: DocumentPath,
    metrics: Mapping[str, Sequence[Range]],
    *,
    skip_empty: bool = False,
) -> Iterator[Problem]:
    if not metrics:
        yield entry.warning(path, "there are no thresholds in it", "4.3.2", "give the ranges of at least one metric")
    definition = catalogue.task(task) if task is not None else None
    for name, ranges in metrics.items():
        here = (*path, name)
        if lacking := catalogue.lacks("metric", name):
            yield entry.error(here, lacking[0], "5.1.4", lacking[1])
        if definition is not None and name not in definition.metrics:
            advice = "add it to the task's metrics, or take its thresholds out"
            yield entry.warning(here, f"the task {definition.id} does not list the metric {name}", "4.1.2", advice)
        if ranges or not skip_empty:
            yield from _check_ranges(entry, path, name, ranges, catalogue.metric(name))


def _check_ranges(
    entry: Entry, path: DocumentPath, name: str, ranges: Sequence[Range], metric: Metric | None
) -> Iterator[Problem]:
    for warning in check_ranges(ranges, metric.direction if metric else None):
        place = (*path, name) if warning.place is None else (*path, name, warning.place)
        yield entry.warning(place, warning.message, warning.rule, warning.advice)
    bounds = [abs(bound) for item in ranges for bound in (item.min, item.max) if bound is not None]
    if metric is not None and metric.type == "percentage" and 0 < max(bounds, default=0) <= 1:
        message = f"{name} is a percentage, from 0 to 100, but its ranges lie within 0 and 1"
        advice = "values are taken as they are: give ranges on the metric's own scale, or the metric another type"
        yield entry.warning((*path, name), message, "4.2.3", advice)


def _check_report(entry: Entry, catalogue: Catalogue) -> Iterator[Problem]:
    report = entry.definition
    if not isinstance(report, Report):
        return
    if entry.data is not entry.document.data:
        yield entry.warning(
            (), "tasks or results are mappings by name", "4.4.2", "fepflow evalguard migrate turns them into lists"
        )
    try:
        list(report.pairs())
    except ValueError as error:
        advice = "give as many results as tasks, in the same order"
        yield entry.error(("results",), str(error), "4.4.2", advice)
    for index, task in enumerate(report.tasks or ()):
        name = task.task_ref
        if name is None:
            yield entry.warning(("tasks", index), "it is not said which task this is", "4.4.5", "add task_ref")
        elif lacking := catalogue.lacks("task", name):
            yield entry.warning(("tasks", index), lacking[0], "4.4.5", lacking[1])
    for index, results in enumerate(report.results or ()):
        for metric in results:
            if lacking := catalogue.lacks("metric", metric):
                yield entry.warning(("results", index, metric), lacking[0], "4.4.6", lacking[1])


def _is_of_newer_layout(entry: Entry) -> bool:
    """Return whether a task lists no metrics, and has those of the policies beside it."""
    return entry.kind == "task" and entry.data is not entry.document.data


def _of_newer_layout(entries: Sequence[Entry]) -> Iterator[Problem]:
    """Yield one warning for all tasks without metrics, which v1 requires."""
    tasks = [entry for entry in entries if not entry.is_context and _is_of_newer_layout(entry)]
    if tasks:
        which = f"this task and {len(tasks) - 1} more list" if len(tasks) > 1 else "this task lists"
        message = f"{which} no metrics: those that the policies have thresholds for count, as in the newer layout"
        yield tasks[0].warning((), message, "5.2", "fepflow evalguard migrate brings the catalogue to v1")


def _without_definitions(entries: Sequence[Entry], catalogue: Catalogue) -> Iterator[Problem]:
    """Yield one warning if references cannot be checked because all definitions they could lead to are absent."""
    for entry in entries:
        if entry.is_context or entry.kind not in ("task", "threshold", "policy"):
            continue
        missing = [] if "metric" in catalogue.kinds else ["metrics"]
        if entry.kind != "task" and "task" not in catalogue.kinds:
            missing = ["tasks", *missing]
        if missing:
            message = f"no {' and no '.join(missing)} are defined here, so references are not checked"
            yield entry.warning((), message, "5.1", "validate the folder with all definitions")
            return
