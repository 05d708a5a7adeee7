"""Folders for suites of deployments, and for the files that suites read.

Everyone who may create runs in Prefect can name a suite, and a suite runs code. So a suite that a deployment
evaluates must be in a folder that the operator has named: in FEPFLOW_SUITE_ROOTS, by `fepflow serve` (the working
directory, and what its prefect.yaml deploys), or by `fepflow schedule`. Both note their folders in a file of the home
folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from fepflow.documents.files import reason
from fepflow.errors import UserError
from fepflow.settings import settings

_SHIPPED = (Path(__file__).parents[1] / "deployments" / "suites").resolve()
"""The suites that come with fepflow: the operator who installed it has named them."""


def allow_below(folders: Iterable[Path]) -> None:
    """Note folders in which deployments of this machine may evaluate suites, for good."""
    from filelock import FileLock  # loaded only where a folder is added

    config = settings()
    config.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(config.home / "suite-roots.lock", timeout=10, mode=0o600):
        noted = _noted()
        new = [folder for folder in dict.fromkeys(folder.resolve() for folder in folders) if folder not in noted]
        descriptor = os.open(config.suite_roots_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.writelines(f"{folder}\n" for folder in new)


def require_allowed(suite: Path) -> None:
    """Raise UserError for a suite outside of these folders. Symbolic links are followed first."""
    location = suite.resolve()
    if not any(location.is_relative_to(root) for root in [_SHIPPED, *settings().allowed_suite_roots, *_noted()]):
        raise UserError(
            f"{suite}: a deployment evaluates suites below folders that the operator has named, and this one is not: "
            "list its folder in FEPFLOW_SUITE_ROOTS where the worker runs, or schedule it there with `fepflow schedule`"
        )


def _noted() -> list[Path]:
    try:
        return [Path(line) for line in settings().suite_roots_file.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return []


def resolve_inside(loaded_folder: Path, path: str, roots: Sequence[Path]) -> Path:
    """Return `path` in a suite in `loaded_folder`, with links resolved. Raises ValueError if it leads elsewhere.

    A suite may read in its own folder and in `roots` (the operator's FEPFLOW_DATA_ROOTS).
    """
    folder = loaded_folder.resolve()
    try:
        resolved = (folder / path).resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: a link that leads to itself
        raise ValueError(f"is a path that cannot be followed: {reason(error)}") from None
    if not any(resolved.is_relative_to(root) for root in (folder, *roots)):
        raise ValueError("leads out of the suite's folder; move the file, or list its folder in FEPFLOW_DATA_ROOTS")
    return resolved
