"""Reading EvalGuard definitions from files and folders (EvalGuard 6; YAML 1.2).

Every function here raises InputError with all errors of all files at once, each with its file, line and advice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

from pydantic import ValidationError

from fepflow.documents.loader import Document, read_document
from fepflow.documents.messages import closest, validation_messages
from fepflow.errors import DocumentPath, InputError, Problem
from fepflow.evalguard.documents import SUFFIXES, is_policy, leads_outside
from fepflow.evalguard.models import Definition, Metric, Policy, Task, Thresholds

D = TypeVar("D", bound=Definition)

Kind = Literal["tasks", "metrics", "thresholds"]


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
    return _load(path, "thresholds", Thresholds, lambda definition: definition.task)


def load_tasks(path: Path) -> dict[str, Task]:
    """Load task definitions by id, from a file, a folder of files, or the `tasks` of an EvalGuard configuration folder.

    One without metrics, as newer catalogues have them, gets those of the policies beside it.
    """
    return _load(path, "tasks", Task, lambda definition: definition.id)


def load_metrics(path: Path) -> dict[str, Metric]:
    """Load metric definitions by id, from a file, a folder of files, or the `metrics` of a configuration folder."""
    return _load(path, "metrics", Metric, lambda definition: definition.id)


def read_definition(model: type[D], data: Any, document: Document, prefix: DocumentPath = ()) -> D:
    """Return `data`, from `prefix` of `document`, as a definition. A field without a value counts as left out."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        messages = validation_messages(data, error, model)
        problems = [document.problem((*prefix, *message.path), message.message, message.advice) for message in messages]
        raise InputError(sorted(problems, key=lambda problem: problem.line or 0)) from None


def _load(path: Path, kind: Kind, model: type[D], identify: Callable[[D], str]) -> dict[str, D]:
    definitions: dict[str, D] = {}
    files: dict[str, str] = {}
    problems: list[Problem] = []
    metrics = PolicyMetrics()
    for file in _files_of(path, kind, problems):
        try:
            document = read_document(file)
            definitions_in_file = _definitions_in(document, model, metrics)
        except InputError as error:
            problems += error.problems
            continue
        for definition in definitions_in_file:
            name = identify(definition)
            if name in definitions:
                field: DocumentPath = ("task",) if kind == "thresholds" else ("id",)
                message = f"{name} is defined already, in {files[name]}"
                advice = "keep all metrics of a task in one file" if kind == "thresholds" else "give it another id"
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


def _files_of(path: Path, kind: Kind, problems: list[Problem]) -> list[Path]:
    if not path.is_dir():
        return [path]
    folder = path / kind if (path / kind).is_dir() else path
    if kind == "thresholds" and folder is path and (path / "policies").is_dir():
        folder = path / "policies"
    files = _documents_in(folder, problems)
    if not files and not problems:
        advice = "name a folder with .yaml, .yml or .json files, or a file"
        raise InputError(Problem(f"there are no {kind} in this folder", str(folder), advice=advice))
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


METRICS = "metrics"


@dataclass
class PolicyMetrics:
    """The metrics that the policies of catalogues have thresholds for; each catalogue's are read once."""

    _by_catalogue: dict[Path, dict[str, list[str]]] = field(default_factory=dict)

    def completed(self, data: Any, path: Path) -> Any:
        """Return the document of a task in `path`, with the metrics of the policies beside it if it lists none.

        Without policies it is returned as it is: v1 requires the list.
        """
        policies = path.parent.parent / "policies"
        if path.parent.name != "tasks" or not isinstance(data, Mapping) or METRICS in data or not policies.is_dir():
            return data
        if policies not in self._by_catalogue:
            self._by_catalogue[policies] = _metrics_by_task(policies)
        task = data.get("id")
        metrics = self._by_catalogue[policies].get(task, []) if isinstance(task, str) else []
        return {**data, METRICS: metrics}


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
