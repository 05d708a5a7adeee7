"""Baselines in a file, for machines without a lasting store, for example temporary CI runners.

The file is a zip archive. Each run is in it as the report that `-o results.json` writes, so `fepflow compare` can read
a member. `baselines.json` has the names, and what identifies the runs beyond their reports.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any
from zipfile import ZIP_DEFLATED, ZipFile

from pydantic import AfterValidator, AwareDatetime, BaseModel, Field, ValidationError
from pydantic_core import PydanticCustomError

from fepflow.analysis.result_files import FileRun, run_of_document
from fepflow.documents.files import part_of, reason
from fepflow.errors import InfrastructureError, InputError, NotFoundError, Problem, UserError, dotted
from fepflow.imports.source import MAX_MEMBER_BYTES, Archive, MemberError, Source, open_archive
from fepflow.json.values import parse
from fepflow.protocol.model import utc_now
from fepflow.protocol.test_case import ERASED
from fepflow.reports.fep import run_parts
from fepflow.services.run_service import open_store
from fepflow.settings import settings
from fepflow.store.records import RESCORING, REUSE_OUTPUTS, Baseline, Cause, RunRecord
from fepflow.store.runs import cases_hash_of
from fepflow.store.store import Store
from fepflow.suite.values import is_baseline_name
from fepflow.text import one_line
from fepflow.verdict.verdict import Verdict

FORMAT = 1
"""The newest form of the file that this version reads, and the one that it writes."""

_NAMES = "baselines.json"
_CASES_AT_ONCE = 1_000
_ADVICE = "write it again: fepflow baseline export FILE"

_Id = Annotated[str, Field(pattern="^[0-9a-f]{32,64}$")]
_Word = Annotated[str, Field(max_length=64, pattern="^[0-9A-Za-z_.-]*$")]
"""A text of a column of this length: a hash, whose form is the concern of who made it."""


class _Run(BaseModel):
    """Identity of a run beyond its report. `outputs` are the content hashes of its outputs, in the report's order.

    `outputs_of` is the id of the run that was asked for the outputs, if this one is rescored.
    """

    id: _Id
    cases_hash: _Word | None = None
    target_hash: _Word | None = None
    cause: Cause | None = None
    created_at: AwareDatetime
    completed_at: AwareDatetime | None = None
    reuses_outputs: bool = False
    rescored_from: _Word | None = None
    outputs_of: _Word | None = None
    outputs: list[_Word]


def _require_name(name: str) -> str:
    if not is_baseline_name(name):
        raise PydanticCustomError("name", "{name} cannot name a baseline", {"name": repr(one_line(name, 60))})
    return name


class _Named(BaseModel):
    suite: str
    name: Annotated[str, AfterValidator(_require_name)]
    run_id: _Id
    others: list[str] = []


class _File(BaseModel):
    fepflow_baselines: int
    baselines: list[_Named]
    runs: list[_Run]


@dataclass(frozen=True, slots=True)
class ImportedBaseline:
    """A baseline from a file; `before` is the id of the run that had its name, or None."""

    suite: str
    name: str
    run: RunRecord
    others: Sequence[str]
    before: str | None


def export_baselines(path: Path, suite: str | None) -> list[Baseline]:
    """Write the baselines of all suites, or of one, to a file, and return them.

    Raises NotFoundError if there are none, UserError for one that does not fit into a file, InfrastructureError.
    """
    with open_store() as store:
        baselines = [baseline for baseline in store.runs.baselines() if suite in (None, baseline.suite)]
        if not baselines:
            of = "" if suite is None else f" of the suite {suite}"
            raise NotFoundError(f"There is no baseline{of} to export: `fepflow baseline set main latest` makes one.")
        ids = dict.fromkeys(run_id for baseline in baselines for run_id in (baseline.run_id, *baseline.others))
        runs = [store.runs.get(run_id) for run_id in ids]
        try:
            _write(path, store, baselines, runs)
        except OSError as error:
            raise InfrastructureError(f"{path} cannot be written: {reason(error)}") from None
        return baselines


def _write(path: Path, store: Store, baselines: Sequence[Baseline], runs: Sequence[RunRecord]) -> None:
    with part_of(path) as part:
        with ZipFile(part, "w", ZIP_DEFLATED) as zipped:
            named = [{name: getattr(baseline, name) for name in _Named.model_fields} for baseline in baselines]
            known = [_identity(store, run).model_dump(mode="json") for run in runs]
            zipped.writestr(_NAMES, json.dumps({"fepflow_baselines": FORMAT, "baselines": named, "runs": known}))
            for run in runs:
                with zipped.open(_member(run.id), "w", force_zip64=True) as member:
                    member.writelines(_report(store, run))
        part.replace(path)


def _member(run_id: str) -> str:
    return f"{run_id}.json"


def _identity(store: Store, run: RunRecord) -> _Run:
    outputs: list[str] = []
    for start in range(0, run.n_cases, _CASES_AT_ONCE):
        stored = store.results.outputs(run.id, start, start + _CASES_AT_ONCE)
        outputs += [stored[unit].content_hash for unit in sorted(stored)]
    if len(outputs) < run.calls:
        raise UserError(
            f"Run {run.id[:8]} of {run.name} has outputs for {len(outputs)} of {run.calls} calls: a file of results "
            "cannot tell of the others. Make a complete run the baseline, or share the store (FEPFLOW_STORE_URL)."
        )
    outputs_of = run.asked_in if run.rescored_from is not None else None
    identity = {name: getattr(run, name) for name in _Run.model_fields if name not in ("outputs", "outputs_of")}
    return _Run.model_construct(**identity, outputs_of=outputs_of, outputs=outputs)


def _report(store: Store, run: RunRecord) -> Iterator[bytes]:
    size = 0
    for part in run_parts(store, run):
        text = part.encode()
        size += len(text)
        if size > MAX_MEMBER_BYTES:
            raise UserError(
                f"Run {run.id[:8]} of {run.name} has more than {MAX_MEMBER_BYTES:,} bytes of results, too many for a "
                "file of baselines: share the store (FEPFLOW_STORE_URL)."
            )
        yield text


def import_baselines(path: Path) -> list[ImportedBaseline]:
    """Store the runs of a file and set their names. If any part of the file is invalid, nothing is stored.

    An existing run does not change. Raises InputError, and UserError if another run has the same id.
    """
    settings()  # a mistake in them is told before the file is read
    source = Source(path, str(path))
    with open_archive(source) as archive:
        described = _described(archive)
        read = [(known, _file_run(archive, known)) for known in described.runs]
    names = {file_run.record.id: file_run.record.name for _, file_run in read}
    for named in described.baselines:
        for run_id in (named.run_id, *named.others):
            if names.get(run_id) != named.suite:
                message = f"the run {one_line(run_id, 64)} of a baseline is not there, or of another suite"
                raise InputError(Problem(message, source.name, path=_NAMES, advice=_ADVICE))
    with open_store() as store:
        for known, run in read:
            _require_free(store, known, run)
        for known, run in read:
            _store(store, known, run, source)
        return [_named(store, named) for named in described.baselines]


def _described(archive: Archive) -> _File:
    data = _json(archive, _NAMES)
    version = data.get("fepflow_baselines") if isinstance(data, dict) else None
    if isinstance(version, int) and version > FORMAT:
        message = f"was written by a newer version of fepflow (form {version}, this one reads {FORMAT})"
        advice = 'pip install --upgrade "fepflow[run]", or export with the version that is to read it'
        raise InputError(Problem(message, archive.name, advice=advice))
    try:
        return _File.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(filter(None, (_NAMES, dotted(first["loc"]))))
        raise InputError(Problem(first["msg"], archive.name, path=place, advice=_ADVICE)) from None


def _json(archive: Archive, name: str) -> Any:
    if name not in archive:
        raise InputError(Problem(f"is not a file of baselines: it has no {name}", archive.name, advice=_ADVICE))
    try:
        return parse(archive.read(name).decode())
    except MemberError as error:
        message = str(error)
    except ValueError as error:
        message = f"is not JSON in UTF-8: {error}"
    raise InputError(Problem(f"{name} {message}", archive.name, advice=_ADVICE))


def _file_run(archive: Archive, known: _Run) -> FileRun:
    """Return a run of the archive. Raises InputError if its report does not fit its entry in `baselines.json`."""
    member = _member(known.id)
    where = f"{archive.name}: {member}"
    run = run_of_document(where, _json(archive, member))
    is_erased = any(ERASED in (case.metadata or {}) for case in run.cases)
    try:
        verdict = Verdict.stored(run.record.outcome, run.record.metrics, run.record.verdict)
    except ValidationError:
        verdict = None
    message = None
    if run.record.id != known.id:
        message = "is the report of another run"
    elif run.record.outcome is None or not run.has_suite:
        message = "has no suite or no verdict"
    elif len(run.outputs) != len(known.outputs):
        message = f"has {len(run.outputs)} results, and {len(known.outputs)} were exported"
    elif cases_hash_of(run.cases) != known.cases_hash and not is_erased:
        message = "has other test cases than were exported"
    elif verdict is None:
        message = "has a verdict that cannot be read"
    if message is not None:
        raise InputError(Problem(message, where, advice=_ADVICE))
    return run


def _require_free(store: Store, known: _Run, run: FileRun) -> None:
    """Raise UserError if the store has another run with this id."""
    with suppress(NotFoundError):
        stored = store.runs.get(known.id)
        new = run.record
        if (stored.name, stored.suite_hash, stored.cases_hash) != (new.name, new.suite_hash, known.cases_hash):
            raise UserError(f"There is another run {known.id} here already, of {stored.name}: nothing was imported.")


def _store(store: Store, known: _Run, run: FileRun, source: Source) -> None:
    with suppress(NotFoundError):
        store.runs.get(known.id)
        return
    outputs = [
        output._replace(content_hash=content_hash)
        for output, content_hash in zip(run.outputs, known.outputs, strict=True)
    ]
    new = _new_run(known, run, source)
    store.runs.add_completed(
        new,
        run.cases,
        outputs,
        run.checks,
        outcome=new.outcome,
        metrics=new.metrics,
        verdict=new.verdict,
        completed_at=known.completed_at,
        cases_hash=known.cases_hash,
    )


def _new_run(known: _Run, run: FileRun, source: Source) -> RunRecord:
    imported_at = utc_now().isoformat(timespec="seconds")
    origin = {"format": "baseline", "file": source.path.name, "sha256": source.digest, "imported_at": imported_at}
    new = run.record
    new.options = {**new.options, "import": origin}
    if known.reuses_outputs:
        new.options[REUSE_OUTPUTS] = True
    if known.outputs_of is not None:
        new.options[RESCORING] = {"outputs_of": known.outputs_of}
    new.created_at = new.started_at = min(known.created_at, utc_now())
    new.tags, new.cause = ["baseline"], known.cause
    new.rescored_from, new.target_hash = known.rescored_from, known.target_hash
    return new


def _named(store: Store, named: _Named) -> ImportedBaseline:
    run = store.runs.get(named.run_id)
    present = next((baseline for baseline in store.runs.baselines(named.name) if baseline.suite == named.suite), None)
    before = present.run_id if present is not None else None
    # One that is the same keeps its time: runs that ended since are not among those that it was chosen from.
    if present is None or (present.run_id, list(present.others)) != (named.run_id, named.others):
        store.runs.set_baseline(named.suite, named.name, named.run_id, named.others)
    return ImportedBaseline(named.suite, named.name, run, named.others, before)
