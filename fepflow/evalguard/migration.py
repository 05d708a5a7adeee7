"""EvalGuard's documents in older and newer layouts than v1, brought to v1 (EvalGuard 8).

- Thresholds whose ranges had a `label` get an `impact`, and keep the label in their interpretation.
- Thresholds of one task in several files, one for each metric, become one file (4.3.4).
- A policy, which has the thresholds of several tasks, becomes a threshold file for each of them.
- A task beside policies that lists no metrics gets those that they have thresholds for.
- Reports with tasks or results by name become lists.

Comments are kept where the text that they belong to is. Nothing is written before everything is valid.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.util import load_yaml_guess_indent

from fepflow.documents.files import read_text, reason, replace_text
from fepflow.documents.loader import Document, parse_document
from fepflow.errors import InputError, Problem
from fepflow.evalguard.documents import MODELS, Kind, PolicyMetrics, find_documents, kind_of, validated
from fepflow.evalguard.models import flattened
from fepflow.suite.models import IMPACTS

_LABELS = {**{impact: impact for impact in IMPACTS}, "very_high": "severe"}
"""The impacts of labels that EvalGuard's own threshold files had."""


@dataclass(frozen=True)
class MigratedFile:
    """A document of v1: where it belongs, its text, and the files that it takes the place of."""

    path: Path
    text: str
    sources: tuple[Path, ...]


@dataclass
class Migration:
    """The result of a migration: `files` to write, and the documents that were v1 already."""

    files: list[MigratedFile] = field(default_factory=list)
    unchanged: list[Path] = field(default_factory=list)

    @property
    def set_aside(self) -> list[Path]:
        """The files whose content is in another one now."""
        targets = {file.path for file in self.files}
        return [source for source in dict.fromkeys(path for file in self.files for path in file.sources)
                if source not in targets]  # fmt: skip


@dataclass
class _Source:
    """A document as it is edited: `data` keeps its comments, `is_changed` whether it still is what the file says."""

    path: Path
    kind: Kind
    data: Any
    document: Document
    indent: tuple[int, int]
    is_changed: bool = False


def plan_migration(path: Path, labels: Mapping[str, str] | None = None) -> Migration:
    """Migrate a file, or all files of a folder, to v1. `labels` are the impacts of labels that do not name an impact.

    Raises InputError with all problems: labels without an impact, documents that are not valid in their own layout.
    """
    problems: list[Problem] = []
    paths = [path]
    if path.is_dir():
        documents = find_documents(path)
        paths, problems = documents.files, [*documents.problems]
    impacts = {**_LABELS, **{_plain(label): impact for label, impact in (labels or {}).items()}}
    sources = []
    metrics = PolicyMetrics()
    for document_path in paths:
        try:
            source = _read(document_path)
        except InputError as error:
            problems += error.problems
            continue
        if source is None:
            continue
        if without_impact := _edit(source, impacts, metrics):
            problems += without_impact
        else:
            sources.append(source)
    migration = _arrange(sources, problems)
    if problems:
        raise InputError(problems)
    return migration


def _read(path: Path) -> _Source | None:
    """Read a document; return None for one that is not EvalGuard's own. Raises InputError."""
    text = read_text(path, str(path))
    document = parse_document(text, str(path))  # refuses bombs and duplicate keys, which the other parser would take
    kind = kind_of(document.data, path)
    if kind is None or kind == "lm-eval results":
        return None
    if path.suffix == ".json":
        return _Source(path, kind, document.data, document, (2, 0))
    data, indent, offset = load_yaml_guess_indent(text)
    return _Source(path, kind, data, document, (indent or 2, offset or 0))


def _edit(source: _Source, impacts: Mapping[str, str], metrics: PolicyMetrics) -> list[Problem]:
    """Bring a document to v1's fields, in place."""
    if source.kind == "task":
        completed = metrics.completed(source.data, source.path)
        if completed is not source.data:
            source.data["metrics"], source.is_changed = completed["metrics"], True
        return []
    if source.kind == "report":
        flat = flattened(source.data)
        source.is_changed, source.data = flat is not source.data, flat
        return []
    problems = []
    for location, item in _ranges(source):
        if "label" not in item:
            continue
        label = str(item["label"])
        impact = item.get("impact") or impacts.get(_plain(label))
        if impact is None:
            advice = f'say which: --impact "{label}=severe", or another one of {", ".join(IMPACTS)}'
            problems.append(
                source.document.problem((*location, "label"), f"the label {label} is not an impact", advice)
            )
            continue
        _replace_label(item, label, impact)
        source.is_changed = True
    return problems


def _ranges(source: _Source) -> Iterable[tuple[tuple[str | int, ...], Any]]:
    """Yield each range of thresholds or of a policy, with its path."""
    by_task = source.data.get("thresholds") if isinstance(source.data, Mapping) else None
    if source.kind not in ("threshold", "policy") or not isinstance(by_task, Mapping):
        return
    tables = by_task.items() if source.kind == "policy" else [(None, by_task)]
    for task, metrics in tables:
        for metric, items in metrics.items() if isinstance(metrics, Mapping) else ():
            for index, item in enumerate(items if isinstance(items, list) else ()):
                if isinstance(item, Mapping):
                    before = ("thresholds",) if task is None else ("thresholds", task)
                    yield (*before, metric, index), item


def _replace_label(item: Any, label: str, impact: str) -> None:
    position = list(item).index("label")
    if isinstance(item, CommentedMap):
        if "impact" not in item:
            item.insert(position, "impact", impact)
            if "label" in item.ca.items:
                item.ca.items["impact"] = item.ca.items.pop("label")
        del item["label"]
    else:
        fields = {("impact" if name == "label" else name): value for name, value in item.items()}
        item.clear()
        item.update({**fields, "impact": impact})
    if _plain(label) != impact:
        interpretation = item.get("interpretation")
        item["interpretation"] = f"{label}: {interpretation}" if interpretation else label


def _arrange(sources: list[_Source], problems: list[Problem]) -> Migration:
    """Decide which document goes into which file."""
    migration = Migration()
    thresholds: dict[str, list[tuple[_Source, Any]]] = {}
    for source in sources:
        if source_problems := _problems_of(source):
            problems += source_problems
        elif source.kind == "policy":
            for task, metrics in source.data.get("thresholds", {}).items():
                thresholds.setdefault(str(task), []).append((source, metrics))
        elif source.kind == "threshold":
            thresholds.setdefault(str(source.data["task"]), []).append((source, source.data["thresholds"]))
        else:
            _keep(source, migration)
    for task, parts in thresholds.items():
        if len(parts) == 1 and parts[0][0].kind == "threshold":
            _keep(parts[0][0], migration)
        else:
            _merge(task, parts, migration, problems)
    return migration


def _keep(source: _Source, migration: Migration) -> None:
    """Keep a document where it is."""
    if source.is_changed:
        migration.files.append(MigratedFile(source.path, _written(source, source.data), (source.path,)))
    else:
        migration.unchanged.append(source.path)


def _merge(task: str, parts: list[tuple[_Source, Any]], migration: Migration, problems: list[Problem]) -> None:
    """Merge all thresholds of a task into one file."""
    first = parts[0][0]
    merged = CommentedMap() if isinstance(first.data, CommentedMap) else {}
    owners: dict[str, Path] = {}
    for source, ranges in parts:
        for metric, items in ranges.items():
            if metric in merged:
                message = f"{metric} of the task {task} has thresholds in {owners[metric]}, too"
                problems.append(source.document.problem(("thresholds",), message, "migrate one of them"))
            merged[metric], owners[metric] = items, source.path
    whole = CommentedMap() if isinstance(first.data, CommentedMap) else {}
    whole["task"], whole["thresholds"] = task, merged
    path = _folder_of(first) / f"{task}{first.path.suffix}"
    migration.files.append(
        MigratedFile(path, _written(first, whole), tuple(dict.fromkeys(source.path for source, _ in parts)))
    )


def _folder_of(source: _Source) -> Path:
    """Return the folder for the threshold files of a document."""
    folder = source.path.parent
    if source.kind == "threshold":
        return folder
    return (folder.parent if folder.name == "policies" else folder) / "thresholds"


def _problems_of(source: _Source) -> list[Problem]:
    """Return the problems of a document as it is now, apart from its layout."""
    edited = parse_document(_written(source, source.data), source.document.file)
    _, errors = validated(MODELS[source.kind], edited.data)
    return [edited.problem(error.path, error.message, error.advice) for error in errors]


def _written(source: _Source, data: Any) -> str:
    if source.path.suffix == ".json":
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 10_000
    indent, offset = source.indent
    yaml.indent(mapping=2 if offset else indent, sequence=max(indent, offset + 2), offset=offset)
    stream = io.StringIO()
    yaml.dump(data, stream)
    return stream.getvalue()


def _plain(label: str) -> str:
    return re.sub(r"[^a-z]+", "_", label.lower()).strip("_")


def write_migration(migration: Migration) -> None:
    """Write the files, and set aside (`NAME.bak`) those whose content is in another one now.

    Raises InputError, before anything is written, if a file of somebody else's is in the way.
    """
    aside = {path: path.with_name(f"{path.name}.bak") for path in migration.set_aside}
    blocked = [file.path for file in migration.files if os.path.lexists(file.path) and file.path not in file.sources]
    blocked += [path for path in aside.values() if os.path.lexists(path)]
    if blocked:
        raise InputError([Problem("already exists", str(path), advice="move it away") for path in blocked])
    try:
        for file in migration.files:
            replace_text(file.path, file.text)
        for path, other in aside.items():
            path.rename(other)
    except OSError as error:
        raise InputError(Problem(f"cannot be written: {reason(error)}", str(error.filename))) from None
