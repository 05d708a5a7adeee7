"""What every door calls: start runs, go on with them, read them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from fepflow.env_file import ENV_FILE, read_env_file
from fepflow.errors import FepflowError, InfrastructureError, UserError
from fepflow.security.redaction import words_of
from fepflow.settings import OPERATORS_VARIABLES, settings

if TYPE_CHECKING:
    from checks.models.judge_spec import JudgeSpec
    from fepflow.store.integrity import StoreReport
    from fepflow.store.records import Calibration, LabelDraw, RunRecord
    from fepflow.store.store import Store
    from tasks.analysis.labels import LabelSet
    from tasks.run.handover import Listener, LocalRun
    from tasks.run.options import RunOptions
    from tasks.validation.suite_validation import SuiteValidation

Note = Callable[[str], None]

EXIT_CODES = {"pass": 0, "fail": 1, "inconclusive": 4}
"""Of an outcome that stops a release; an inconclusive one that the gate allows has 0."""
STOP_SECONDS = 8.0
"""How long who cancels a run waits for its end."""
STOPPED = 130
"""The exit code of a run that Ctrl-C or SIGTERM ended, as shells have it."""


@dataclass(frozen=True)
class Finished:
    """A run that this process executed, and where to look at it.

    `prefect_informed` is false when Prefect's API was gone at the end, `stopped` true after Ctrl-C or SIGTERM.
    """

    run: RunRecord
    flow_run_url: str | None
    prefect_informed: bool = True
    stopped: bool = False

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 4 inconclusive unless the gate allows it; without a verdict 3, or 130 when it was stopped."""
        if self.run.outcome is not None:
            blocks = (self.run.verdict or {}).get("blocks", True)  # verdicts of older versions do not say
            return EXIT_CODES[self.run.outcome] if blocks else 0
        return STOPPED if self.stopped or self.run.status == "cancelled" else InfrastructureError.exit_code


@contextmanager
def open_store() -> Iterator[Store]:
    """The store, with the runs of dead executors marked as interrupted."""
    from fepflow.store.store import Store

    with Store.open(settings().store_address) as store:
        store.reap()
        yield store


def migrate_store(revision: str | None, *, back: bool) -> tuple[str, str | None, str]:
    """Bring the store's schema to a revision, or the newest: where the store is, the revision before, and after."""
    from fepflow.store.database import Database

    database = Database(settings().store_address)
    try:
        return database.location, *database.migrate(revision, back=back)
    finally:
        database.close()


def check_integrity() -> StoreReport:
    """Everything that is wrong with the store."""
    from fepflow.store.integrity import check_integrity

    return check_integrity(settings().store_address)


def back_up_store(target: Path) -> str:
    """Write the store to a new file, and say where the store is."""
    from fepflow.store.backup import back_up

    return back_up(settings().store_address, target)


def clear_cache(model: str | None, older_than: float | None) -> int:
    """Delete answers of models that are kept: of one model or of all, older than so many seconds or all; how many."""
    from fepflow.protocol.model import utc_now

    before = None if older_than is None else utc_now() - timedelta(seconds=older_than)
    with open_store() as store:
        return store.delete_cached_responses(model, before)


def with_current_metrics(store: Store, run: RunRecord) -> RunRecord:
    """The run, with the metrics of what is there if it has no verdict yet, else corrected by what is known by now."""
    from tasks.analysis.metrics import metrics_corrected_now, metrics_so_far

    if run.outcome is not None:
        return replace(run, metrics=metrics_corrected_now(store, run))
    return run if run.metrics else replace(run, metrics=metrics_so_far(store, run))


def validate(path: Path, limit: float | None = None) -> SuiteValidation:
    """Static validation of a suite. Raises InputError if it is no document.

    `limit` is how many of its cases are to be called, or which fraction.
    """
    from tasks.validation.validate_suite import validate_suite

    return validate_suite(path, limit=limit)


@contextmanager
def start(path: Path, options: RunOptions, note: Note, *, show_logs: bool = False) -> Iterator[LocalRun]:
    """Create a run of the suite; `note` hears of what it can live with, and of what takes a while.

    Raises InputError with all errors of the suite before anything is started or called.
    """
    validation = validate(path, options.limit)
    validation.require()
    for warning in validation.warnings:
        note(f"warning: {warning}")
    connect(note, show_logs=show_logs)
    from fepflow.store.store import Store
    from tasks.plan_run import create_run
    from tasks.run.handover import LocalRun

    # Dead runs are left to the flow, which reports to Prefect those that it marks itself.
    with Store.open(settings().store_address) as store:
        yield LocalRun(store.run(create_run(store, validation, options)), store)


@contextmanager
def resume(run_id: str, note: Note, *, show_logs: bool = False) -> Iterator[LocalRun]:
    """The run to go on with, by its id, a prefix of it, or `latest`; raises NotFoundError."""
    with open_store() as store:
        run = store.run(run_id)
        if "pytest" in run.suite.get("target", {}):
            raise UserError(f"Run {run.id} was a test: run pytest again instead.")
        connect(note, show_logs=show_logs)
        from tasks.run.handover import LocalRun

        store.withdraw_cancel(run.id)
        yield LocalRun(run, store)


def cancel(run_id: str) -> RunRecord:
    """Stop a run, wherever it is executed, and wait a little for its end; the run as it is then.

    Raises NotFoundError, UserError if the run is over.
    """
    with open_store() as store:
        run = store.request_cancel(store.run(run_id).id)
        deadline = time.monotonic() + STOP_SECONDS
        while run.status == "running" and time.monotonic() < deadline:
            time.sleep(0.1)
            run = store.run(run.id)
        return run


def labels_of_suite(path: Path, labels: Path, check: str | None, field: str | None) -> LabelSet:
    """People's labels of a suite's test cases, and the judge that they are for; raises UserError."""
    from checks.models.judge_spec import judges_of_suite
    from tasks.analysis.labels import read_labels

    validation = validate(path)
    validation.require()
    judges = judges_of_suite(validation.loaded)
    return read_labels(labels, judges, {case.id for case in validation.cases}, check, field)


def labels_of_run(
    path: Path, run_id: str, labels: Path, check: str | None, field: str | None, note: Note
) -> tuple[RunRecord, LabelSet]:
    """A run of the suite, with people's labels of its test cases and the judge, as it was then; raises UserError.

    `note` hears of a judge that the suite has no more.
    """
    from tasks.analysis.labels import read_labels

    run, judges = _judges_of_run(path, run_id)
    with open_store() as store:
        cases = {case.id for case in store.cases(run.id)}
    labelled = read_labels(labels, judges, cases, check, field)
    _note_change(path, run, labelled.judge, note)
    return run, labelled


def _judges_of_run(path: Path, run_id: str) -> tuple[RunRecord, list[JudgeSpec]]:
    from fepflow.suite.reader import load_suite
    from tasks.analysis.judge_reliability import judges_of_run

    suite = load_suite(path)
    with open_store() as store:
        run = store.run(run_id)
    if run.name != suite.section("name"):
        raise UserError(f"Run {run.id[:8]} is one of the suite {run.name}, and not of {path}.")
    return run, judges_of_run(run)


def _note_change(path: Path, run: RunRecord, judge: JudgeSpec, note: Note) -> None:
    from checks.models.judge_spec import judges_of_suite
    from fepflow.suite.reader import load_suite

    now = judges_of_suite(load_suite(path))
    if (judge.judge, judge.rubric) not in {(each.judge, each.rubric) for each in now}:
        note(f"{judge.check_id} has changed since run {run.id[:8]}: as it is in {path} now, it is not calibrated")


def draw_for_labels(
    path: Path, run_id: str, file: Path, check: str | None, size: int, seed: int, note: Note
) -> tuple[RunRecord, LabelDraw]:
    """Draw outputs of a run at random and write them to a file to be labelled, which must not be there yet.

    `note` hears of a judge that the suite has no more. Raises UserError.
    """
    from surfaces.reports.label_sheet import write_label_sheet
    from tasks.analysis.label_draws import draw_for_labels, outputs_to_label
    from tasks.analysis.labels import judge_named

    if file.exists():
        raise UserError(f"{file} is there already: name another file, or move it (--labels).")
    run, judges = _judges_of_run(path, run_id)
    judge = judge_named(judges, check)
    _note_change(path, run, judge, note)
    with open_store() as store:
        drawn = draw_for_labels(store, run, judge, size, seed)
        write_label_sheet(outputs_to_label(store, drawn), file)
    return run, drawn


def calibrate(run: RunRecord, labelled: LabelSet) -> Calibration:
    """Compare a judge's verdicts in a run with labels, and store what comes out; see `tasks.analysis.calibration`."""
    from tasks.analysis.calibration import calibrate

    with open_store() as store:
        return calibrate(store, run, labelled)


def connect(note: Note, *, show_logs: bool = False) -> None:
    """Find Prefect's API, or start the local server; from here on this process uses it."""
    from surfaces import prefect_api  # what only reads the store has no use for it

    if prefect_api.starts_server():
        note("starting a local Prefect server; this takes a moment, once")
    prefect_api.use(prefect_api.usable_api(), show_logs=show_logs)


def execute(begun: LocalRun, listener: Listener | None = None, *, handle_sigterm: bool = True) -> Finished:
    """Execute a run, here and now, as a Prefect flow run; a run that has begun is gone on with.

    Returns when it has ended, however it has. Ctrl-C stops it, and SIGTERM too if that is to be handled.
    Raises FepflowError when it could not be executed.
    """
    from surfaces.local_run import Execution

    run, store = begun.run, begun.store
    execution = Execution(replace(begun, listener=listener))
    prefect_informed = execution.wait(lambda: _is_over(begun), handle_sigterm=handle_sigterm)
    error = execution.error
    if isinstance(error, FepflowError):
        raise error
    store.reap()
    after = store.run(run.id)
    if execution.stopped and after.status == "pending":
        after = store.request_cancel(run.id)
    if error is not None and after.outcome is None and not execution.stopped:
        raise InfrastructureError(f"run {run.id} did not end: {type(error).__name__}: {words_of(error)}")
    return Finished(after, execution.flow_run_url, prefect_informed, execution.stopped)


def _is_over(begun: LocalRun) -> bool:
    begun.store.reap()
    return begun.store.run(begun.run.id).status not in ("pending", "running")


def load_env_file(path: Path | None, note: Note) -> None:
    """Add the variables of an env file to the environment; those that are set already stay.

    The `.env` of the working directory may come with a repository, so it does not set what the operator alone decides;
    a file that is named does. `note` hears of what is left out.
    """
    if path is not None and not path.exists():
        raise UserError(f"{path}: there is no such file (--env-file)")
    for name, value in read_env_file(path or Path(ENV_FILE)).items():
        if path is None and name.upper() in OPERATORS_VARIABLES:
            note(f"{ENV_FILE}: {name} is left out: only the operator sets it (export it, or name the file: --env-file)")
        else:
            os.environ.setdefault(name, value)
