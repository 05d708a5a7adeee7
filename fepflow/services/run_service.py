"""Service functions for runs, used by all interfaces: start, resume, execute and read them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from fepflow.errors import FepflowError, InfrastructureError, UserError
from fepflow.extras import is_installed
from fepflow.prefect_settings import ignored_files
from fepflow.security.redaction import words_of
from fepflow.settings import (
    PREFERENCES,
    PREFIX,
    SUITE_VARIABLES,
    current_file,
    settings,
    use_folder_file,
    use_named_file,
)
from fepflow.text import printable, shortened

if TYPE_CHECKING:
    from fepflow.analysis.planning import Plan
    from fepflow.diagnose.suite_validation import SuiteValidation
    from fepflow.store.records import RunRecord
    from fepflow.store.store import Store
    from fepflow.suite.variants import Replacement
    from fepflow.tasks.create_run import RunOptions
    from fepflow.tasks.local_run import Listener, LocalRun

Note = Callable[[str], None]

EXIT_CODES = {"pass": 0, "fail": 1, "inconclusive": 4}
"""Exit codes of outcomes that stop a release, by outcome; an inconclusive one that the gate allows has 0."""
STOP_SECONDS = 8.0
"""Time for which a caller who cancels a run waits for its end."""
MOST_NAMES = 30
"""Variables that a warning names."""
STOPPED = 130
"""The exit code of a run that Ctrl-C or SIGTERM ended, as shells have it."""


@dataclass(frozen=True)
class Finished:
    """A run that this process executed, and its addresses.

    `prefect_informed` is false if Prefect's API was not available at the end; `stopped` is true after Ctrl-C or
    SIGTERM.
    """

    run: RunRecord
    flow_run_url: str | None
    prefect_informed: bool = True
    stopped: bool = False

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 4 inconclusive unless the gate allows it; without a verdict 3, or 130 if it was stopped."""
        if self.run.outcome is not None:
            blocks = (self.run.verdict or {}).get("blocks", True)  # verdicts of older versions do not say
            return EXIT_CODES[self.run.outcome] if blocks else 0
        return STOPPED if self.stopped or self.run.status == "cancelled" else InfrastructureError.exit_code


@contextmanager
def open_store(wait_seconds: float = 0.0) -> Iterator[Store]:
    """Open the store, waiting while it is locked or away, and mark runs of dead executors as interrupted."""
    from fepflow.store.store import Store

    with Store.open(settings().store_address, wait_seconds) as store:
        store.leases.reap()
        yield store


def migrate_store(revision: str | None, *, back: bool) -> tuple[str, str | None, str]:
    """Migrate the store's schema to a revision, or the newest. Returns its place, and both revisions."""
    from fepflow.store.database import Database

    database = Database(settings().store_address)
    try:
        return database.location, *database.migrate(revision, back=back)
    finally:
        database.close()


def clear_cache(model: str | None, older_than: float | None) -> int:
    """Delete stored answers of a model or of all, older than some seconds or all. Returns their number."""
    from fepflow.protocol.model import utc_now

    before = None if older_than is None else utc_now() - timedelta(seconds=older_than)
    with open_store() as store:
        return store.results.delete_cached_responses(model, before)


def with_current_metrics(store: Store, run: RunRecord) -> RunRecord:
    """Return the run with its metrics so far, or, after a verdict, corrected by the present labels."""
    if run.outcome is not None:
        # Asked first, as reading a run without judges loads neither checks nor the parser of suites.
        if run.completed_at is not None and store.labels.has_calibrations(since=run.completed_at):
            from fepflow.analysis.judge_reliability import calibrated_since
            from fepflow.analysis.metrics import metrics_corrected_now

            if calibrated_since(store, run):
                return run.replaced(metrics=metrics_corrected_now(store, run))
        return run
    if run.metrics:
        return run
    from fepflow.analysis.metrics import metrics_so_far

    return run.replaced(metrics=metrics_so_far(store, run))


def seconds_of(run: RunRecord) -> float | None:
    """Return the duration of a run so far; None if it has not started, or if its end is unknown."""
    if run.started_at is None or (run.completed_at is None and run.status != "running"):
        return None
    from fepflow.protocol.model import utc_now

    return ((run.completed_at or utc_now()) - run.started_at).total_seconds()


def validate(
    path: Path,
    limit: float | None = None,
    version: str | None = None,
    use_api: Callable[[], None] | None = None,
    replacements: Sequence[Replacement] = (),
) -> SuiteValidation:
    """Validate a suite, with some of its values replaced. Raises InputError if the file cannot be read.

    `limit` is how many of its cases are to be called, or which fraction. `version` is the target's, if a run names it.
    `use_api` makes this process use Prefect's API if the suite refers to a block; default: the API that is known.
    """
    from fepflow.diagnose.validate_suite import validate_suite

    connect_once = cache(use_api or _use_known_api)

    def read(kind: str, name: str) -> str | None:
        connect_once()
        from fepflow.tasks.prefect_blocks import read_block  # loads Prefect, which most suites do not need to be read

        return read_block(kind, name)

    SUITE_VARIABLES.read_blocks_with(read)
    return validate_suite(path, limit=limit, version=version, replacements=replacements)


def _use_known_api() -> None:
    """Use the configured API, or the running local server. Raises InfrastructureError without one."""
    if not is_installed("run"):
        raise InfrastructureError('that needs Prefect: pip install "fepflow[run]"')
    from fepflow.services import prefect_api

    api = prefect_api.known_api()
    if api is None:
        raise InfrastructureError("no Prefect API is configured here, and the local server is not running")
    prefect_api.use(api, show_logs=False)


def plan(path: Path, minimum: float | None, expected: float, power: float, repeats: int | None) -> list[Plan]:
    """Return how many test cases show a minimum, or each minimum of the gate on a share that passed.

    Raises InputError for a suite that is not valid, and UserError if there is nothing to plan for.
    """
    from fepflow.analysis.accumulation import is_share_that_passed
    from fepflow.analysis.planning import PlanOptions, plan
    from fepflow.diagnose.checks import checks_by_id
    from fepflow.suite.models import Gate, Metric
    from fepflow.verdict.gate import at_look

    validation = validate(path)
    suite = validation.require()
    gate = at_look(suite.gate or Gate(), 1)
    metrics = suite.metrics or [Metric(id=check_id, check=check_id) for check_id in checks_by_id(validation)]
    shares = {share.id: share.check for share in metrics if share.check is not None and is_share_that_passed(share)}
    minima = {name: least for name, least in gate.min.items() if name in shares}
    if minimum is not None:
        minima = dict.fromkeys(minima or list(shares)[:1], minimum)
    if not minima:
        raise UserError(f"{path} has no minimum of a share that passed to plan for: name one (--min).")
    by_case, has = validation.clusters, len(validation.cases)
    with open_store() if is_installed("run") else nullcontext() as store:  # without it no earlier run can be there
        return [
            plan(
                store,
                suite,
                name,
                shares[name],
                gate,
                PlanOptions(least, expected, power, repeats or suite.repeats),
                has,
                None if by_case is None else by_case.sizes(range(has)),
            )
            for name, least in minima.items()
        ]


def require_valid(path: Path, options: RunOptions, note: Note, *, show_logs: bool = False) -> SuiteValidation:
    """Return the suite of a run. `note` is called with warnings.

    Raises InputError with all errors of the suite before anything is started or called.
    """
    connect_once = partial(connect, note, show_logs=show_logs)
    validation = validate(path, options.limit, options.version, connect_once, options.replacements)
    validation.require()
    if options.variants and not validation.variants:
        raise UserError(f"{path} has no variants to choose from: leave --variant out.")
    for problem in validation.notes:
        note(f"{problem.severity}: {problem}")
    note_untaken_variables(note)
    return validation


@contextmanager
def start(path: Path, options: RunOptions, note: Note, *, show_logs: bool = False) -> Iterator[LocalRun]:
    """Create a run of a suite without variants. `note` is called with warnings, and before steps that take a while.

    Raises InputError with all errors of the suite before anything is started or called.
    """
    validation = require_valid(path, options, note, show_logs=show_logs)
    if validation.variants:
        raise UserError(
            f"{path} has variants, each of which is a run: take fepflow.run_variants, or `fepflow run` on the command "
            "line."
        )
    with begin(validation, options, note, show_logs=show_logs) as begun:
        yield begun


@contextmanager
def begin(
    validation: SuiteValidation, options: RunOptions, note: Note, *, show_logs: bool = False
) -> Iterator[LocalRun]:
    """Create a run of a valid suite without variants."""
    from fepflow.store.store import Store
    from fepflow.tasks.create_run import create_run, require_options
    from fepflow.tasks.local_run import STORE_WAIT, LocalRun

    # Dead runs are left to the flow, which reports to Prefect those that it marks itself.
    with Store.open(settings().store_address, STORE_WAIT) as store:
        require_options(store, validation, options)  # a typing error is told before a server is started
        connect(note, show_logs=show_logs)
        planned = create_run(store, validation, options)
        yield LocalRun(planned.run, store, planned.loaded)


_NOT_RESUMED = {
    "pytest": "was a test: run pytest again",
    "evaluate": "was a request to evaluate outputs: send the request again",
    "imported": "was imported from another tool: import the file again",
}


@contextmanager
def resume(run_id: str, note: Note, *, show_logs: bool = False) -> Iterator[LocalRun]:
    """Return the run to continue, by its id, a prefix of it, or `latest`. Raises NotFoundError."""
    from fepflow.tasks.local_run import LEASE_SECONDS, STORE_WAIT

    with open_store(STORE_WAIT) as store:
        run = store.runs.get(run_id)
        for kind in run.suite.get("target", {}).keys() & _NOT_RESUMED.keys():
            raise UserError(f"Run {run.id} {_NOT_RESUMED[kind]} instead.")
        connect(note, show_logs=show_logs)
        from fepflow.store.leases import new_owner
        from fepflow.tasks.local_run import LocalRun

        store.runs.withdraw_cancel(run.id)
        store.leases.claim(run.id, new_owner(), LEASE_SECONDS)
        yield LocalRun(store.runs.get(run.id), store)


def cancel(run_id: str) -> RunRecord:
    """Stop a run on any machine, and wait a little for its end. Returns the run as it is then.

    Raises NotFoundError, UserError if the run is over.
    """
    with open_store() as store:
        run = store.runs.request_cancel(store.runs.get(run_id).id)
        deadline = time.monotonic() + STOP_SECONDS
        while run.status == "running" and time.monotonic() < deadline:
            time.sleep(0.1)
            run = store.runs.get(run.id)
        return run


def connect(note: Note, *, show_logs: bool = False) -> None:
    """Find Prefect's API, or start the local server. From then on, this process uses it."""
    from fepflow.services import prefect_api  # what only reads the store has no use for it

    for sentence in ignored_files():
        note(f"warning: {sentence}")
    if prefect_api.starts_server():
        note("starting a local Prefect server; this takes a moment, once")
    prefect_api.use(prefect_api.usable_api(), show_logs=show_logs)


def execute(begun: LocalRun, listener: Listener | None = None, *, handle_sigterm: bool = True) -> Finished:
    """Execute or continue a run in this process, as a Prefect flow run.

    Returns when it has ended, in any way. Ctrl-C stops it, and SIGTERM too if that is to be handled. Raises
    FepflowError if it could not be executed.
    """
    from fepflow.services.local_run import Execution

    run, store = begun.run, begun.store
    execution = Execution(replace(begun, listener=listener))
    prefect_informed = execution.wait(
        lambda: is_over(store, [run], stopped=execution.stopped), handle_sigterm=handle_sigterm
    )
    error = execution.error
    if isinstance(error, FepflowError):
        raise error
    store.leases.reap()
    after = store.runs.get(run.id)
    if execution.stopped and after.status == "pending":
        after = store.runs.request_cancel(run.id)
    # In the store, whatever Prefect has made of it; a run that was gone on with had ended before, too.
    has_ended = after.status in ("completed", "cancelled") and after.completed_at != run.completed_at
    if execution.prefect_error is not None:
        if not has_ended:
            raise execution.prefect_error
        prefect_informed = False
    if error is not None and not has_ended and not execution.stopped:
        raise InfrastructureError(f"run {run.id} did not end: {type(error).__name__}: {words_of(error)}")
    return Finished(after, execution.flow_run_url, prefect_informed, execution.stopped)


def is_over(store: Store, runs: Sequence[RunRecord], *, stopped: bool) -> bool:
    """Return whether the runs are over; a stopped run may not have started."""
    store.leases.reap()
    statuses = {store.runs.get(run.id).status for run in runs}
    return "running" not in statuses and (stopped or "pending" not in statuses)


def load_env_file(path: Path | None) -> None:
    """Use the variables of a file that the user has named, or else of the `.env` of the working directory."""
    if path is not None and not path.exists():
        raise UserError(f"{path}: there is no such file (--env-file)")
    if path is None:
        use_folder_file()
    else:
        use_named_file(path)
    current_file()  # what is wrong with it is said before anything is done


def note_untaken_variables(note: Note) -> None:
    """Call `note` once with the file's variables that neither a suite nor fepflow uses."""
    file = current_file()
    names = [name for name in file.not_taken() if name.lower().removeprefix(PREFIX) not in PREFERENCES]
    if not names:
        return
    file.taken.update(names)
    listed = ", ".join(printable(shortened(name, 60)) for name in names[:MOST_NAMES])
    listed += f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    if file.is_named:
        note(f"warning: {file.path}: {listed}: not taken, programs load code by such variables; export them instead")
        return
    preferences = ", ".join(f"{PREFIX}{name}".upper() for name in PREFERENCES)
    key = next((name for name in names if re.fullmatch(r"\w+_API_KEY", name)), None)
    as_key = f" (a model's key: provider_config: {{api_key: ${{{key}}}}})" if key else ""
    note(
        f"warning: {file.path}: {listed}: not taken. A {file.path} only fills in ${{NAME}} of suites{as_key}, and sets "
        f"{preferences}. To use the others, export them, or, if you trust the file, name it: --env-file {file.path}"
    )


@contextmanager
def begin_rescore(
    run_id: str, suite: Path | None, note: Note, *, gate_only: bool = False, show_logs: bool = False
) -> Iterator[LocalRun]:
    """Create the run that judges the outputs of an earlier one. `note` is called with its suite, and with warnings.

    Raises NotFoundError, UserError for outputs that cannot be judged, InputError for a suite that is not valid.
    """
    from fepflow.store.store import Store
    from fepflow.tasks.create_rescore import create_rescore, find_rescorable
    from fepflow.tasks.local_run import STORE_WAIT, LocalRun

    with Store.open(settings().store_address, STORE_WAIT) as store:
        store.leases.reap()
        store.runs.get(run_id)  # a mistake in the id is told before a server is started
        connect(note, show_logs=show_logs)
        from fepflow.tasks.prefect_blocks import read_block  # loads Prefect, whose API is known by now

        SUITE_VARIABLES.read_blocks_with(read_block)
        rescorable = find_rescorable(store, run_id, suite)
        for problem in rescorable.validation.notes:
            note(f"{problem.severity}: {problem}")
        note_untaken_variables(note)
        created = create_rescore(store, rescorable, gate_only=gate_only)
        note(f"run {rescorable.source.id[:8]} is judged {rescorable.told}; the agent is not asked")
        yield LocalRun(created.run, store, created.loaded)
