"""Imports: files of other tools, in whichever format, become a suite in a folder, or runs in the store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from fepflow.documents.files import replace_text
from fepflow.documents.messages import did_you_mean
from fepflow.errors import InputError, Problem, UserError
from fepflow.imports import (
    braintrust,
    deepeval,
    harbor,
    inspect_ai,
    langfuse,
    lm_eval,
    openai_evals,
    promptfoo_config,
    promptfoo_results,
    pydantic_evals,
)
from fepflow.imports.imported import Imported, ImportedRun
from fepflow.imports.prepared import PreparedRun, cases_of, prepare_run, suite_files
from fepflow.imports.source import Source

if TYPE_CHECKING:
    from fepflow.protocol.test_case import TestCase
    from fepflow.store.records import RunRecord
    from fepflow.store.store import Store


@dataclass(frozen=True)
class Format:
    """A format of another tool. `read` refuses unknown versions. `what` says in a few words which files are meant."""

    name: str
    what: str
    looks_like: Callable[[Source], bool]
    read: Callable[[Source], Imported]


_FORMATS = (
    Format("inspect_ai", "logs (.eval, .json), folders of logs", inspect_ai.looks_like, inspect_ai.read),
    Format("lm-eval", "samples_TASK_….jsonl", lm_eval.looks_like, lm_eval.read),
    Format("langfuse", "exports of datasets, traces, scores; folders", langfuse.looks_like, langfuse.read),
    Format("harbor", "folders of jobs, result.json", harbor.looks_like, harbor.read),
    Format("atif", "trajectories (.json, .jsonl)", harbor.looks_like_atif, harbor.read_atif),
    Format("braintrust", "exports of experiments and datasets", braintrust.looks_like, braintrust.read),
    Format(
        "promptfoo-results",
        "results of promptfoo eval -o (.json, .yaml, .jsonl)",
        promptfoo_results.looks_like,
        promptfoo_results.read,
    ),
    Format(
        "promptfoo",
        "configs, lists of tests, and CSV with __expected",
        promptfoo_config.looks_like,
        promptfoo_config.read,
    ),
    Format("pydantic-evals", "datasets and reports", pydantic_evals.looks_like, pydantic_evals.read),
    Format("openai-evals", "samples, items, logs, output items", openai_evals.looks_like, openai_evals.read),
    Format("deepeval", "goldens and datasets (.json, .jsonl, .csv), test runs", deepeval.looks_like, deepeval.read),
)
FORMATS = {format.name: format for format in _FORMATS}
"""The formats by name, in the order in which they are tried."""


def read_import(path: Path, name: str | None = None, format_name: str | None = None) -> ImportedFile:
    """Read a file or folder of another tool. Without `format_name`, the format is recognized by the content.

    Raises UserError for an unknown format name, InputError for a file in no format, or in an unknown version of one.
    """
    source = Source(path, name or str(path))
    if not path.exists():
        raise InputError(Problem("there is no such file", source.name, advice="check the path"))
    if format_name is not None:
        if format_name not in FORMATS:
            raise UserError(f"{format_name} is not a format ({did_you_mean(format_name, list(FORMATS))}).")
        return ImportedFile(source, FORMATS[format_name].read(source))
    if source.head.startswith(b"version https://git-lfs.github.com/spec/"):
        message = "is a pointer of Git LFS, and not the file that it stands for"
        raise InputError(Problem(message, source.name, advice="fetch that: git lfs pull"))
    _ = source.data, source.first_record  # an error of reading it comes before the question of its format
    for format in FORMATS.values():
        if format.looks_like(source):
            return ImportedFile(source, format.read(source))
    known = "; ".join(f"{format.name}: {format.what}" for format in FORMATS.values())
    advice = f"known are {known}; name one with --as, or, for test cases without checks, name the file in test_cases"
    raise InputError(Problem("is in no format that can be imported", source.name, advice=advice))


# --- suites and runs of what was read --------------------------------------------------------------------------------


@dataclass(frozen=True)
class ImportedFile:
    """A file that was read, and its content."""

    source: Source
    imported: Imported

    def write_suite(self, folder: Path, *, overwrite: bool = False) -> list[Path]:
        """Write the suite's files into a folder and return their paths, the suite's first.

        Raises UserError, before anything is written, if one already exists and `overwrite` is not set.
        """
        texts = suite_files(self.imported)
        paths = {name: folder / name for name in ["suite.yaml", *(name for name in texts if name != "suite.yaml")]}
        taken = [path for path in paths.values() if path.exists() or path.is_symlink()]
        if taken and not overwrite:
            raise UserError(f"{taken[0]} already exists: choose another folder (-o), or give --overwrite.")
        try:
            for name, path in paths.items():
                replace_text(path, texts[name])
        except OSError as error:
            raise UserError(f"cannot write to {folder}: {error.strerror}") from None
        return list(paths.values())

    def store_runs(self) -> list[RunRecord]:
        """Store the results as completed runs, one for each system under test, and return them.

        Raises UserError for a file without results.
        """
        imported = self.imported
        if not imported.runs:
            raise UserError(f"{self.source.name} has no results, so no run can be made of it: leave out --run.")
        from fepflow.services.run_service import open_store

        cases = cases_of(imported)
        together = {"variants": uuid4().hex} if len(imported.runs) > 1 else {}
        with open_store() as store:
            return [
                _store_run(store, self, cases, run, {**together, "variant_number": number} if together else {})
                for number, run in enumerate(imported.runs)
            ]


def _store_run(
    store: Store, file: ImportedFile, cases: list[TestCase], run: ImportedRun, of_variants: dict[str, Any]
) -> RunRecord:
    from fepflow.analysis.recorded_runs import record_import

    prepared = prepare_run(file.imported, cases, run)
    return record_import(store, _new_run(file, run, prepared, of_variants), prepared, run.completed_at)


def _new_run(file: ImportedFile, run: ImportedRun, prepared: PreparedRun, of_variants: Mapping[str, Any]) -> RunRecord:
    from fepflow.analysis.comparison import suite_hash
    from fepflow.protocol.model import utc_now
    from fepflow.store.records import RunRecord
    from fepflow.suite.variants import run_name, tags_of

    imported, now = file.imported, utc_now()
    origin = {
        "format": imported.format,
        "version": imported.version,
        "file": file.source.path.name,
        "sha256": file.source.digest,
        "imported_at": now.isoformat(timespec="seconds"),
    }
    known = {name: value for name, value in origin.items() if value is not None}
    suite: dict[str, Any] = {
        "name": imported.name,
        "target": {"imported": {"format": imported.format}},
        "test_cases": [],  # the store has them, row by row
        "repeats": run.repeats,
        "checks": [check.model_dump(exclude_none=True) for check in prepared.checks],
        **({} if prepared.metrics is None else {"metrics": prepared.metrics}),
        **{name: imported.suite[name] for name in ("metrics", "gate") if name in imported.suite},
        **({"variant": run.variant} if run.variant else {}),
    }
    return RunRecord(
        id=uuid4().hex,
        name=run_name(imported.name, run.variant),
        suite=suite,
        repeats=run.repeats,
        tags=list(dict.fromkeys(["import", imported.format, *tags_of(run.variant)])),
        started_at=_not_after(run.started_at, now),
        suite_hash=suite_hash(suite, run.repeats, Path()),
        cause="import",
        options={"import": known, **of_variants},
        created_at=_not_after(run.started_at, now),
    )


def _not_after(moment: datetime | None, now: datetime) -> datetime:
    return now if moment is None or moment > now else moment
