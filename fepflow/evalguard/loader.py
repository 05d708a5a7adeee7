"""Reading EvalGuard definitions from files and folders (EvalGuard 6; YAML 1.2).

Every function here raises InputError with all errors of all files at once, each with its file, line and advice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fepflow.documents.did_you_mean import closest, did_you_mean
from fepflow.documents.loader import Document, DocumentPath, read_document
from fepflow.errors import InputError, Problem
from fepflow.evalguard.models import Definition, Metric, Range, Task, Thresholds
from fepflow.suite.models import Impact

D = TypeVar("D", bound=Definition)

Kind = Literal["tasks", "metrics", "thresholds"]
_SUFFIXES = (".yaml", ".yml", ".json")


def load_thresholds(path: Path, task: str | None = None) -> Thresholds:
    """The thresholds of `task`: from their file, or from a folder of threshold files.

    Without a `task` there must be just one to choose from. All files of a folder are read: that a task has only one
    file (4.3.4) does not show otherwise.
    """
    by_task = _load(path, "thresholds", Thresholds, lambda definition: definition.task)
    if task is None and len(by_task) == 1:
        return next(iter(by_task.values()))
    if task in by_task:
        return by_task[task]
    found = f"there are thresholds for {', '.join(by_task)}"
    if task is None:
        raise InputError(Problem("which task's thresholds? none was named", str(path), advice=f"set task; {found}"))
    message = f"there are no thresholds for the task {task}"
    advice = f"did you mean {close}?" if (close := closest(task, list(by_task))) else found
    raise InputError(Problem(message, str(path), advice=advice))


def load_tasks(path: Path) -> dict[str, Task]:
    """Task definitions by id, from a file, a folder of files, or the `tasks` of an EvalGuard configuration folder."""
    return _load(path, "tasks", Task, lambda definition: definition.id)


def load_metrics(path: Path) -> dict[str, Metric]:
    """Metric definitions by id, from a file, a folder of files, or the `metrics` of a configuration folder."""
    return _load(path, "metrics", Metric, lambda definition: definition.id)


def read_definition(model: type[D], data: Any, document: Document, prefix: DocumentPath = ()) -> D:
    """`data`, which stands at `prefix` of `document`, as a definition. A field without a value is one left out."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InputError(_problems(document, prefix, error, model)) from None


def validated(model: type[D], data: Any, document: Document) -> tuple[D | None, list[Problem]]:
    """The same by the letter of the schemas, for which a field without a value is an error; all errors beside it."""
    empty = [document.problem(path, "has no value", "give it one, or leave it out") for path in _nulls(data)]
    try:
        return model.model_validate(data), empty
    except ValidationError as error:
        found = _problems(document, (), error, model)
    stated = {problem.path for problem in empty}
    problems = [*empty, *(problem for problem in found if problem.path not in stated)]
    return None, sorted(problems, key=lambda problem: problem.line or 0)


def _problems(
    document: Document, prefix: DocumentPath, error: ValidationError, model: type[Definition]
) -> list[Problem]:
    details = error.errors(include_url=False, include_input=False)
    problems = [_problem(document, prefix, detail, model) for detail in details]
    return sorted(problems, key=lambda problem: problem.line or 0)


_FREE = ("metadata", "tools")
"""Fields of reports that hold whatever their writer likes."""


def _nulls(data: Any, path: DocumentPath = ()) -> Iterator[DocumentPath]:
    """Where a field is null."""
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


def _load(path: Path, kind: Kind, model: type[D], identify: Callable[[D], str]) -> dict[str, D]:
    definitions: dict[str, D] = {}
    files: dict[str, str] = {}
    problems: list[Problem] = []
    for file in _files_of(path, kind):
        try:
            document = read_document(file)
            definition = read_definition(model, document.data, document)
        except InputError as error:
            problems += error.problems
            continue
        name = identify(definition)
        if name in definitions:
            field: DocumentPath = ("task",) if kind == "thresholds" else ("id",)
            message = f"{name} is defined already, in {files[name]}"
            advice = "keep all metrics of a task in one file" if kind == "thresholds" else "give it another id"
            problems.append(document.problem(field, message, advice))
        definitions.setdefault(name, definition)
        files.setdefault(name, document.file)
    if problems:
        raise InputError(problems)
    return definitions


def _files_of(path: Path, kind: Kind) -> list[Path]:
    if not path.is_dir():
        return [path]
    folder = path / kind if (path / kind).is_dir() else path
    files = sorted(file for file in folder.iterdir() if file.suffix in _SUFFIXES and file.is_file())
    if not files:
        advice = "name a folder with .yaml, .yml or .json files, or a file"
        raise InputError(Problem(f"there are no {kind} in this folder", str(folder), advice=advice))
    return files


_MESSAGES: Mapping[str, str] = {
    "missing": "is missing",
    "extra_forbidden": "is no field of EvalGuard",
    "string_type": "must be text",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "bool_type": "must be true or false",
    "string_pattern_mismatch": "is not an identifier",
}

_ADVICE: Mapping[str, str] = {
    "missing": "add it",
    "string_type": "if YAML takes it for something else, put it in quotes",
    "float_type": "for example 0.5, without quotes",
    "string_pattern_mismatch": "use letters, digits, _ and - only",
    "label": f"write impact: with one of {', '.join(get_args(Impact))}",
    "unbounded": "give min (inclusive), max (exclusive) or both",
}


def _problem(document: Document, prefix: DocumentPath, detail: ErrorDetails, model: type[Definition]) -> Problem:
    kind = detail["type"]
    # A bad key is reported below the key itself, at a step that the document does not have.
    location = tuple(step for step in detail["loc"] if step != "[key]")
    advice = _ADVICE.get(kind)
    if kind == "extra_forbidden":
        fields = list((model if len(location) == 1 else Range).model_fields)
        advice = did_you_mean(str(location[-1]), fields)
    if kind == "literal_error":
        return document.problem((*prefix, *location), f"must be one of {detail['ctx']['expected']}", advice)
    return document.problem((*prefix, *location), _MESSAGES.get(kind, detail["msg"]), advice)
