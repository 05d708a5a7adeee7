"""EvalGuard's documents in files and folders (EvalGuard 6; YAML 1.2): kinds, validation, loading, and JSON Schemas.

Functions that load definitions raise InputError with all errors of all files at once, each with its file, line and
advice.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from pydantic import ValidationError

from fepflow.documents.files import reason
from fepflow.documents.loader import Document, read_document
from fepflow.documents.messages import closest, names_at, validation_messages
from fepflow.errors import DocumentPath, InputError, Problem, ValidationMessage
from fepflow.evalguard.models import Definition, Metric, Policy, Report, Task, Thresholds

D = TypeVar("D", bound=Definition)

Kind = Literal["task", "metric", "threshold", "policy", "report", "lm-eval results"]

MODELS: Mapping[Kind, type[Definition]] = {
    "task": Task,
    "metric": Metric,
    "threshold": Thresholds,
    "policy": Policy,
    "report": Report,
}

SUFFIXES = (".yaml", ".yml", ".json")

FOLDERS: Mapping[str, Kind] = {"tasks": "task", "metrics": "metric", "thresholds": "threshold", "policies": "policy"}
REPORTS = "reports"
"""Folder whose documents are reports, also those that only have what any document may have."""
_OTHERS = ("guardrails", "models", "model_cards", "schemas")
"""Folders of newer catalogues whose documents v1 does not know."""


@dataclass
class DocumentFiles:
    """The documents of a folder in alphabetical order; `ignored` are of kinds that v1 does not know."""

    files: list[Path] = field(default_factory=list)
    ignored: list[Path] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def find_documents(root: Path) -> DocumentFiles:
    """Find all documents of a folder and of the folders below it. A link that leads out of it is an error, and is not
    read (9.1).

    Raises InputError if the folder cannot be read.
    """
    documents = DocumentFiles()
    inside = root.resolve()

    def refuse(error: OSError) -> None:
        raise InputError(Problem(f"cannot be read: {reason(error)}", str(error.filename or root)))

    for folder, folders, names in os.walk(root, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        documents.problems += filter(None, (leads_outside(Path(folder, name), inside) for name in folders))
        for name in sorted(names):
            path = Path(folder, name)
            if path.suffix not in SUFFIXES or name.startswith("."):
                continue
            if problem := leads_outside(path, inside):
                documents.problems.append(problem)
            else:
                is_other = not set(_OTHERS).isdisjoint(path.relative_to(root).parts)
                (documents.ignored if is_other else documents.files).append(path)
    return documents


def leads_outside(path: Path, folder: Path) -> Problem | None:
    """Return an error if a symbolic link leads out of a folder (which is given without links), or nowhere."""
    if not path.is_symlink():
        return None
    try:
        if path.resolve(strict=True).is_relative_to(folder):
            return None
        message = "is a symbolic link that leads out of the folder"
    except (OSError, RuntimeError) as error:
        message = f"is a symbolic link that leads nowhere: {reason(error)}"
    return Problem(message, str(path), advice="put the file itself there", rule="9.1")


def kind_of(data: Any, path: Path) -> Kind | None:
    """Return the kind of a document by its folder, else by its fields; None if neither tells."""
    if path.parent.name in FOLDERS:
        kind = FOLDERS[path.parent.name]
        return "policy" if kind == "threshold" and is_policy(data) else kind
    if path.parent.name == REPORTS and not is_lm_eval(data):
        return "report"
    if not isinstance(data, Mapping):
        return None
    if "thresholds" in data:
        return "policy" if is_policy(data) else "threshold"
    if "direction" in data:
        return "metric"
    if is_lm_eval(data):
        return "lm-eval results"
    if any(name in data for name in ("results", "context", "tasks")):
        return "report"
    if REPORTS in path.parts[:-1] and is_bare_report(data):
        return "report"
    return "task" if "metrics" in data else None


def is_bare_report(data: Any) -> bool:
    """Return whether a document has fields of reports only, which may be few: all of them are optional."""
    return isinstance(data, Mapping) and data.keys() <= Report.model_fields.keys()


def is_lm_eval(data: Any) -> bool:
    """Return whether a document is a result file of the lm-evaluation-harness."""
    return (
        isinstance(data, Mapping)
        and isinstance(data.get("results"), Mapping)
        and any(name in data for name in ("configs", "config", "versions", "lm_eval_version"))
    )


def is_policy(data: Any) -> bool:
    """Return whether a document has thresholds of several tasks, as newer catalogues have them."""
    return isinstance(data, Mapping) and "thresholds" in data and "task" not in data and "id" in data


def validated(model: type[D], data: Any) -> tuple[D | None, list[ValidationMessage]]:
    """Validate a document by the letter of its schema, where a field without a value is an error; return all its
    errors."""
    empty = [ValidationMessage(path, "has no value", "give it one, or leave it out") for path in _nulls(data)]
    try:
        return model.model_validate(data), empty
    except ValidationError as error:
        errors = validation_messages(data, error, model)
    stated = {message.path for message in empty}
    return None, [*empty, *(message for message in errors if message.path not in stated)]


def is_unknown(model: type[Definition], path: DocumentPath) -> bool:
    """Return whether EvalGuard does not define the field at a path."""
    names = names_at(model, path[:-1])
    return bool(path and names) and path[-1] not in names


def without_unknown(model: type[Definition], data: Any, errors: Sequence[ValidationMessage]) -> Any:
    """Return a copy of a document without the fields that EvalGuard does not define."""
    data = copy.deepcopy(data)
    for error in errors:
        if is_unknown(model, error.path):
            parent = data
            for step in error.path[:-1]:
                parent = parent[step]
            parent.pop(error.path[-1], None)
    return data


_FREE = ("metadata", "tools")
"""Fields of reports that hold whatever their writer likes."""


def _nulls(data: Any, path: DocumentPath = ()) -> Iterator[DocumentPath]:
    """Yield the paths of fields that are null."""
    items: Iterable[tuple[str | int, Any]] = ()
    if isinstance(data, dict):
        items = ((key, value) for key, value in data.items() if key not in _FREE or value is None)
    elif isinstance(data, list):
        items = enumerate(data)
    for step, value in items:
        if value is None:
            yield (*path, step)
        else:
            yield from _nulls(value, (*path, step))


SCHEMAS = ("task", "metric", "threshold", "report", "api")

_FOLDER = Path(__file__).parent / "schemas" / "v1"


def schema_text(name: str) -> str:
    """Return a schema as YAML; `name` is one of SCHEMAS."""
    return schema_path(name).read_text(encoding="utf-8")


def schema_path(name: str) -> Path:
    """Return a schema's file, named as in 6.2."""
    return _FOLDER / f"{name}.schema.yaml"


def load_thresholds(path: Path, task: str | None = None) -> Thresholds:
    """Load the thresholds of `task` from their file, or from a folder of threshold files.

    Without a `task` there must be just one to choose from. All files of a folder are read: that a task has only one
    file (4.3.4) does not show otherwise.
    """
    by_task = load_all_thresholds(path)
    if task is None and len(by_task) == 1:
        return next(iter(by_task.values()))
    if task in by_task:
        return by_task[task]
    known_tasks = f"there are thresholds for {', '.join(by_task)}"
    if task is None:
        raise InputError(Problem("no task is named for the thresholds", str(path), advice=f"set task; {known_tasks}"))
    message = f"there are no thresholds for the task {task}"
    advice = f"did you mean {close}?" if (close := closest(task, list(by_task))) else known_tasks
    raise InputError(Problem(message, str(path), advice=advice))


def load_all_thresholds(path: Path) -> dict[str, Thresholds]:
    """Load the thresholds of a file or a folder by task."""
    return _load(path, Thresholds, lambda definition: definition.task)


def load_tasks(path: Path) -> dict[str, Task]:
    """Load task definitions by id, from a file, a folder of files, or the `tasks` of an EvalGuard configuration folder.

    One without metrics, as newer catalogues have them, gets those of the policies beside it.
    """
    return _load(path, Task, lambda definition: definition.id)


def load_metrics(path: Path) -> dict[str, Metric]:
    """Load metric definitions by id, from a file, a folder of files, or the `metrics` of a configuration folder."""
    return _load(path, Metric, lambda definition: definition.id)


def read_definition(model: type[D], data: Any, document: Document, prefix: DocumentPath = ()) -> D:
    """Return `data`, from `prefix` of `document`, as a definition. A field without a value counts as left out."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        messages = validation_messages(data, error, model)
        problems = [document.problem((*prefix, *message.path), message.message, message.advice) for message in messages]
        raise InputError(sorted(problems, key=lambda problem: problem.line or 0)) from None


def _load(path: Path, model: type[D], identify: Callable[[D], str]) -> dict[str, D]:
    definitions: dict[str, D] = {}
    files: dict[str, str] = {}
    problems: list[Problem] = []
    metrics = PolicyMetrics()
    for file in _files_of(path, model, problems):
        try:
            document = read_document(file)
            definitions_in_file = _definitions_in(document, model, metrics)
        except InputError as error:
            problems += error.problems
            continue
        for definition in definitions_in_file:
            name = identify(definition)
            if name in definitions:
                field: DocumentPath = ("task",) if model is Thresholds else ("id",)
                message = f"{name} is defined already, in {files[name]}"
                advice = "keep all metrics of a task in one file" if model is Thresholds else "give it another id"
                if is_policy(document.data):
                    field, advice = ("thresholds", name), "policies are alternatives: name the file of one"
                problems.append(document.problem(field, message, advice))
            definitions.setdefault(name, definition)
            files.setdefault(name, document.file)
    if problems:
        raise InputError(problems)
    return definitions


def _definitions_in(document: Document, model: type[D], metrics: PolicyMetrics) -> Sequence[D]:
    if model is Thresholds and is_policy(document.data):
        policy = read_definition(Policy, document.data, document)
        return cast("list[D]", policy.by_task())
    data = metrics.completed(document.data, Path(document.file)) if model is Task else document.data
    return [read_definition(model, data, document)]


def _files_of(path: Path, model: type[Definition], problems: list[Problem]) -> list[Path]:
    if not path.is_dir():
        return [path]
    name = next(name for name, kind in FOLDERS.items() if MODELS[kind] is model)
    folder = path / name if (path / name).is_dir() else path
    if model is Thresholds and folder is path and (path / "policies").is_dir():
        folder = path / "policies"
    files = _documents_in(folder, problems)
    if not files and not problems:
        advice = "name a folder with .yaml, .yml or .json files, or a file"
        raise InputError(Problem(f"there are no {name} in this folder", str(folder), advice=advice))
    return files


def _documents_in(folder: Path, problems: list[Problem]) -> list[Path]:
    """Return the files of a folder; links that lead out of it are problems."""
    files = []
    for file in sorted(folder.iterdir()):
        if file.suffix in SUFFIXES and file.is_file():
            if (problem := leads_outside(file, folder.resolve())) is not None:
                problems.append(problem)
            else:
                files.append(file)
    return files


@dataclass
class PolicyMetrics:
    """The metrics that the policies of catalogues have thresholds for; each catalogue's are read once."""

    _by_catalogue: dict[Path, dict[str, list[str]]] = field(default_factory=dict)

    def completed(self, data: Any, path: Path) -> Any:
        """Return the document of a task in `path`, with the metrics of the policies beside it if it lists none.

        Without policies it is returned as it is: v1 requires the list.
        """
        policies = path.parent.parent / "policies"
        if path.parent.name != "tasks" or not isinstance(data, Mapping) or "metrics" in data or not policies.is_dir():
            return data
        if policies not in self._by_catalogue:
            self._by_catalogue[policies] = _metrics_by_task(policies)
        task = data.get("id")
        metrics = self._by_catalogue[policies].get(task, []) if isinstance(task, str) else []
        return {**data, "metrics": metrics}


def _metrics_by_task(policies: Path) -> dict[str, list[str]]:
    """Return the metrics of each task. What is wrong with a policy is told where policies are validated."""
    by_task: dict[str, list[str]] = {}
    for path in _documents_in(policies, []):
        try:
            data = read_document(path).data
        except InputError:
            continue
        tasks = data.get("thresholds") if isinstance(data, Mapping) else None
        for task, metrics in tasks.items() if isinstance(tasks, Mapping) else ():
            names = list(metrics) if isinstance(metrics, Mapping) else []
            by_task[str(task)] = list(dict.fromkeys([*by_task.get(str(task), []), *names]))
    return by_task
