"""EvalGuard's documents in files and folders, their kinds, their validation, and the shipped JSON Schemas."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from pydantic import ValidationError

from fepflow.documents.files import reason
from fepflow.documents.messages import names_at, validation_messages
from fepflow.errors import DocumentPath, InputError, Problem, ValidationMessage
from fepflow.evalguard.models import Definition, Metric, Policy, Task, Thresholds
from fepflow.evalguard.report import Report

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


SchemaName = Literal["task", "metric", "threshold", "report", "api"]
SCHEMAS: tuple[str, ...] = get_args(SchemaName)

_FOLDER = Path(__file__).parent / "schemas" / "v1"


def schema_text(name: str) -> str:
    """Return a schema as YAML; `name` is one of SCHEMAS."""
    return schema_path(name).read_text(encoding="utf-8")


def schema_path(name: str) -> Path:
    """Return a schema's file, named as in 6.2."""
    return _FOLDER / f"{name}.schema.yaml"
