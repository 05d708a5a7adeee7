"""Runs to compare, from the store or from files of results."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fepflow.analysis.result_files import FileRun, is_result_file, read_result_file, run_of_document
from fepflow.errors import NotFoundError, UserError
from fepflow.reports.fep import run_parts
from fepflow.services.run_service import open_store
from fepflow.store.store import Store
from fepflow.suite.values import is_baseline_name


@dataclass(frozen=True, slots=True)
class RunsToCompare:
    """A store with all runs, the names by which they are found in it, and what files do not tell about them."""

    store: Store
    names: Sequence[str]
    notes: Sequence[str] = ()


Source = str | dict[str, Any]
"""A run: its id, a baseline's name, a file of results, or the JSON data of an EvaluationRunResult."""


@contextmanager
def runs_to_compare(sources: Sequence[Source]) -> Iterator[RunsToCompare]:
    """Yield the user's store, or, if some runs are in files, a temporary store with all of them.

    Raises InputError for a file without results, NotFoundError.
    """
    if all(isinstance(source, str) and not is_result_file(source) for source in sources):
        with open_store() as store:
            yield RunsToCompare(store, [str(source) for source in sources])
        return
    read = [_read(source, number) for number, source in enumerate(sources, 1)]
    with (
        TemporaryDirectory(prefix="fepflow-compare-") as folder,
        Store.open(f"sqlite:///{Path(folder) / 'runs.db'}", with_blobs=False) as store,
    ):
        names = [run.add_to(store) for run in read]
        yield RunsToCompare(store, names, [note for run in read for note in run.notes])


def _read(source: Source, number: int) -> FileRun:
    if not isinstance(source, str):
        return run_of_document(f"results {number}", source)
    return read_result_file(Path(source)) if is_result_file(source) else _exported(source)


def _exported(name: str) -> FileRun:
    """Return a run of the user's store in the form of its report."""
    with open_store() as store:
        if is_baseline_name(name):
            baselines = store.runs.baselines(name)
            if not baselines:
                raise NotFoundError(f"There is no file and no baseline {name!r}: give a file, or the id of a run.")
            if len(baselines) > 1:
                raise UserError(f"{name} names {len(baselines)} baselines: beside a file, give the id of a run.")
            name = baselines[0].run_id
        run = store.runs.get(name)
        if run.outcome is None:
            raise UserError(f"Run {run.id[:8]} has no verdict to compare: it is {run.status}.")
        return run_of_document(run.id[:8], json.loads("".join(run_parts(store, run))))
