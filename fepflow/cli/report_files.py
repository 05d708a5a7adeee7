"""Reports of a run as files. The ending sets the format: .json, .jsonl, .csv, .parquet, .xml (JUnit), .html,
.evalguard.yaml."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fepflow.documents.files import part_of
from fepflow.errors import FepflowError, InfrastructureError, UserError
from fepflow.extras import require
from fepflow.reports.evalguard import write_evalguard_json, write_evalguard_yaml
from fepflow.reports.fep import write_lines, write_run
from fepflow.reports.junit import JunitFailures, write_junit
from fepflow.reports.tables import require_pyarrow, write_csv, write_parquet
from fepflow.store.records import RunRecord
from fepflow.store.store import Store


def _write_html(store: Store, run: RunRecord, file: Any) -> None:
    from fepflow.pages.run_page import write_html  # of the extra `serve`

    write_html(store, run, file)


Writer = Callable[[Store, RunRecord, Any], None]
"""Writes a report to a file that is open for text; Parquet to one for bytes."""

FORMATS: dict[str, Writer] = {
    ".json": write_run,
    ".jsonl": write_lines,
    ".csv": write_csv,
    ".parquet": write_parquet,
    ".xml": write_junit,
    ".html": _write_html,
    ".evalguard.yaml": write_evalguard_yaml,
    ".evalguard.yml": write_evalguard_yaml,
    ".evalguard.json": write_evalguard_json,
}


def require_writable(paths: Sequence[Path], *, overwrite: bool) -> None:
    """Raise UserError, before anything is run, if a report cannot be written or would overwrite a file."""
    for number, path in enumerate(paths):
        writer = _writer_of(path)
        if writer is None:
            raise UserError(f"{path}: no report ends in {path.suffix or 'nothing'}; use {', '.join(FORMATS)}")
        if writer is write_parquet:
            require_pyarrow(str(path))
        if writer is _write_html:
            require("serve", str(path), "jinja2", "markupsafe", "vl_convert")
        if path.absolute() in [other.absolute() for other in paths[:number]]:
            raise UserError(f"{path} is named twice: one report would overwrite the other")
        require_place(path, overwrite=overwrite)


def _writer_of(path: Path) -> Writer | None:
    """Return the writer of the format that a path's last two endings name, or its last one."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return FORMATS.get("".join(suffixes[-2:])) or FORMATS.get("".join(suffixes[-1:]))


def _require_location(path: Path, *, overwrite: bool) -> None:
    if path.is_dir():
        raise UserError(f"{path} is a folder: name a file in it")
    if os.path.lexists(path) and not overwrite:
        raise UserError(f"{path} already exists: remove it, name another, or give --overwrite")
    if os.path.lexists(path) and not path.is_file() and not path.is_symlink():
        raise UserError(f"{path} is not a regular file: name another")
    if not path.parent.is_dir():
        raise UserError(f"{path.parent} is not a folder: create it, or name another")


def require_place(path: Path, *, overwrite: bool) -> None:
    """Raise UserError if no file can be written there, or one would be overwritten."""
    try:
        _require_location(path, overwrite=overwrite)
        with part_of(path):
            pass
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(f"{path} cannot be written: {_why(error)}") from None


def write_report(store: Store, run: RunRecord, path: Path, junit_failures: JunitFailures = "gate") -> None:
    """Write a report in the format that its ending names; see `write_file`."""
    writer = _writer_of(path)
    assert writer is not None
    if writer is write_junit:
        writer = partial(write_junit, failures=junit_failures)
    again = f"the run is in the store: fepflow show {run.id[:8]} -o FILE"
    write_file(writer, store, run, path, again)


def write_file(writer: Writer, store: Store, run: RunRecord, path: Path, advice: str) -> None:
    """Write a file, whole or not at all. Raises InfrastructureError, with the advice, if it cannot be written.

    It replaces what is there, a symbolic link itself and not what it leads to. A file that is replaced keeps its mode.
    """
    try:
        with part_of(path) as part:
            text: dict[str, Any] = {"mode": "w", "encoding": "utf-8", "newline": ""}
            with part.open(**({"mode": "wb"} if writer is write_parquet else text)) as file:
                writer(store, run, file)
            if path.is_file() and not path.is_symlink():
                part.chmod(path.stat().st_mode & 0o777)
            part.replace(path)
    except UserError:
        raise
    except Exception as error:
        if os.environ.get("FEPFLOW_DEBUG"):
            raise
        raise InfrastructureError(f"{path} cannot be written: {_why(error)}; {advice}") from None


def _why(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    if isinstance(error, FepflowError):
        return str(error).removesuffix(".")
    return f"{type(error).__name__}: {error}"
