"""EvalGuard's definitions in a folder, as they are now: read again when a file has changed."""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from fepflow.errors import InfrastructureError, InputError, Problem
from fepflow.evalguard.documents import FOLDERS, SUFFIXES
from fepflow.evalguard.loader import load_all_thresholds, load_tasks
from fepflow.evalguard.models import Task, Thresholds
from fepflow.evalguard.validation import validate_catalogue

logger = logging.getLogger("fepflow.evalguard")
_SHOWN = 20

Fingerprint = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class CatalogueContent:
    """Tasks and thresholds by the task's id, in the order of the ids."""

    tasks: dict[str, Task] = field(default_factory=dict)
    thresholds: dict[str, Thresholds] = field(default_factory=dict)


class Catalogue:
    """The folders `tasks`, `metrics`, `thresholds` and `policies` of a folder; without one there are no definitions.

    Thread-safe. While something is wrong with a file, what was read before holds, and the log says what it is.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._fingerprint: Fingerprint | None = None
        self._content: CatalogueContent | None = CatalogueContent() if folder is None else None

    def current(self) -> CatalogueContent:
        """What the files say. Raises InfrastructureError if they cannot be read, and never could."""
        if self._folder is not None:
            with self._lock:
                self._refresh(self._folder)
        if self._content is None:
            raise InfrastructureError("EvalGuard's definitions cannot be read: the log of the server says why.")
        return self._content

    def _refresh(self, folder: Path) -> None:
        fingerprint = _fingerprint(folder)
        if fingerprint == self._fingerprint:
            return
        self._fingerprint = fingerprint
        try:
            self._content = _load(folder)
        except InputError as error:
            effect = "none are served" if self._content is None else "those read before are served"
            found = "\n".join(str(problem) for problem in error.problems[:_SHOWN])
            logger.error("EvalGuard's definitions in %s cannot be read, %s:\n%s", folder, effect, found)


def _fingerprint(folder: Path) -> Fingerprint:
    """The documents with the times of their last changes and their sizes."""
    found = []
    for name in sorted(FOLDERS):
        for parent, folders, files in os.walk(folder / name):
            folders.sort()
            for path in (Path(parent, file) for file in sorted(files) if file.endswith(SUFFIXES)):
                try:
                    status = path.stat()
                except OSError:
                    found.append((str(path), 0, -1))
                else:
                    found.append((str(path), status.st_mtime_ns, status.st_size))
    return tuple(found)


def _load(folder: Path) -> CatalogueContent:
    there = [folder / name for name in FOLDERS if (folder / name).is_dir()]
    if not there:
        names = ", ".join(FOLDERS)
        raise InputError(Problem(f"has none of the folders {names}", str(folder), advice="FEPFLOW_EVALGUARD_FOLDER"))
    if errors := validate_catalogue(there).errors:
        raise InputError(errors)
    tasks = load_tasks(folder) if folder / "tasks" in there else {}
    has_thresholds = not {folder / "thresholds", folder / "policies"}.isdisjoint(there)
    thresholds = load_all_thresholds(folder) if has_thresholds else {}
    return CatalogueContent(dict(sorted(tasks.items())), dict(sorted(thresholds.items())))
