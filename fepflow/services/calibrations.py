"""Service functions for labels and judge calibration, used by CLI, REST and pages."""

from __future__ import annotations

from pathlib import Path

from fepflow.access.caller import Caller, name_of_user
from fepflow.analysis.calibration import exported_labels, stored_labels
from fepflow.analysis.judge_reliability import judges_of_run
from fepflow.analysis.labels import LabelSet, read_labels
from fepflow.checks.models.judge_spec import JudgeSpec, judges_of_suite
from fepflow.errors import UserError
from fepflow.reports.tables import write_label_sheet
from fepflow.services.run_service import Note, open_store, validate
from fepflow.store.records import Calibration, LabelDraw, RunRecord
from fepflow.suite.reader import load_suite


def labels_of_suite(path: Path, labels: Path, check: str | None, field: str | None) -> LabelSet:
    """Return people's labels of a suite's test cases, and their judge. Raises UserError."""
    validation = validate(path)
    validation.require()
    judges = judges_of_suite(validation.loaded)
    return read_labels(labels, judges, {case.id for case in validation.cases}, check, field)


def labels_of_run(
    path: Path | None, run_id: str, labels: Path | None, check: str | None, field: str | None, note: Note
) -> tuple[RunRecord, LabelSet]:
    """Return a run of the suite, with people's labels of its test cases and the judge at that time. Raises UserError.

    Without a file, the labels are those in the store. `note` is called if the suite no longer has that judge. A run
    without a suite file, for example an imported one, has no judge that could have changed.
    """
    run, judges = _judges_of_run(path, run_id)
    with open_store() as store:
        if labels is None:
            labelled = stored_labels(store, run, judges, check, field)
        else:
            labelled = read_labels(labels, judges, set(store.runs.ids_of_cases(run.id)), check, field)
    _note_change(path, run, labelled.judge, note)
    return run, labelled


def _judges_of_run(path: Path | None, run_id: str) -> tuple[RunRecord, list[JudgeSpec]]:
    with open_store() as store:
        run = store.runs.get(run_id)
    if run.suite_path is not None:
        if path is None:
            raise UserError(f"Run {run.id[:8]} is one of the suite {run.name}: name its file before --run.")
        if run.name != load_suite(path).section("name"):
            raise UserError(f"Run {run.id[:8]} is one of the suite {run.name}, and not of {path}.")
    return run, judges_of_run(run)


def _note_change(path: Path | None, run: RunRecord, judge: JudgeSpec, note: Note) -> None:
    if path is None or run.suite_path is None:
        return
    now = judges_of_suite(load_suite(path))
    if (judge.judge, judge.rubric) not in {(present.judge, present.rubric) for present in now}:
        note(f"{judge.check_id} has changed since run {run.id[:8]}: as it is in {path} now, it is not calibrated")


def draw_for_labels(
    path: Path | None, run_id: str, file: Path, check: str | None, size: int, seed: int, note: Note
) -> tuple[RunRecord, LabelDraw]:
    """Draw outputs of a run at random and write them to a new file for labelling.

    `note` is called if the suite no longer has that judge. Raises UserError.
    """
    from fepflow.analysis.labels import draw_for_labels, judge_named, outputs_to_label

    if file.exists():
        raise UserError(f"{file} already exists: name another file, or move it (--labels).")
    run, judges = _judges_of_run(path, run_id)
    judge = judge_named(judges, check)
    _note_change(path, run, judge, note)
    with open_store() as store:
        drawn = draw_for_labels(store, run, judge, size, seed)
        write_label_sheet(outputs_to_label(store, drawn), file)
    return run, drawn


def calibrate(run: RunRecord, labelled: LabelSet) -> Calibration:
    """Compare a judge's verdicts in a run with labels, and store the result; see `fepflow.analysis.calibration`."""
    from fepflow.analysis.calibration import calibrate

    with open_store() as store:
        return calibrate(store, run, labelled)


def person_of(caller: Caller) -> str:
    """Return the name under which a caller's labels are stored; without a key, it is that of the process's user."""
    return caller.name or name_of_user()


def export_labels(run_id: str, check: str | None, path: Path) -> tuple[RunRecord, int]:
    """Write the labels of a run's outputs (of one check, or all) to a new file. Returns the run and the number of rows.

    Raises NotFoundError, and UserError if there is no label, or the file cannot be written.
    """
    if path.exists():
        raise UserError(f"{path} already exists: name another file, or move it (--output).")
    with open_store() as store:
        run = store.runs.get(run_id)
        rows = exported_labels(store, run, check)
    write_label_sheet(rows, path)
    return run, len(rows)
