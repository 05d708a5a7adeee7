"""From a suite's target section to the target itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fepflow.errors import InputError, Problem
from fepflow.suite import target
from fepflow.suite.reader import resolve_inside
from fepflow.targets.asgi import open_app
from fepflow.targets.base import Target
from fepflow.targets.http import HttpTarget
from fepflow.targets.python.target import PythonTarget
from fepflow.targets.recorded import open_recorded


def open_target(
    config: target.Target,
    *,
    folder: Path,
    case_ids: Callable[[], Sequence[str]],
    roots: Sequence[Path] = (),
    secrets: frozenset[str] = frozenset(),
) -> Target:
    """The system under test that `config` describes. Nothing is called yet; recorded outputs are read, and
    Python code is loaded.

    `folder` is the suite's, `roots` where else it may read, `secrets` what must never be shown. `case_ids` gives the
    ids of the whole dataset in its order, also of cases that a limit or a shard leaves out; only recorded outputs that
    are matched by order ask for them. Raises InputError, or JSONPathError for an invalid path.
    """
    if config.http is not None:
        app = config.http.app
        return HttpTarget(config, secrets, open_app(app, folder, roots, config.http.max_bytes) if app else None)
    if config.python is not None:
        return PythonTarget(config, folder, roots, secrets)
    assert config.recorded is not None  # exactly one is
    try:
        file = resolve_inside(folder, config.recorded.path, roots)
    except ValueError as error:
        raise InputError(Problem(str(error), config.recorded.path, path="target.recorded.path")) from None
    return open_recorded(config.recorded, file, case_ids)
