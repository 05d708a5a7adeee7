"""`fepflow run`, `rescore`, `list`, `show` and `cancel`."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from fepflow.cli.options import (
    LIMIT,
    Deadline,
    Reports,
    echo_json_lines,
    github_option,
    pair,
    read_from_environment,
    report_options,
    set_by_environment,
    suite_of_folder,
    unknown_variables,
)
from fepflow.errors import InfrastructureError, RunBusyError
from fepflow.output import outliving
from fepflow.text import plural

if TYPE_CHECKING:
    from fepflow.cli.console import Console
    from fepflow.services.github import GitHubReport
    from fepflow.services.run_service import Finished
    from fepflow.store.store import Store
    from fepflow.tasks.local_run import LocalRun, LocalVariants


@click.command()
@click.argument("suite", type=click.Path(path_type=Path), required=False)
@report_options
@github_option
@click.option("--json", "as_json", is_flag=True, help="Print the FEP result with metrics and verdict on stdout.")
@click.option(
    "-j", "--max-concurrency", "concurrency", type=click.IntRange(1, 1000), help="Maximum number of calls at once."
)
@click.option("--timeout", type=Deadline(), help="Deadline of a call, for example 2m; for an ECP agent, of each step.")
@click.option("--repeats", "--repeat", "--epochs", type=click.IntRange(1, 1000), help="Number of calls of each case.")
@LIMIT
@click.option("--seed", type=click.IntRange(0), help="Draw another sample for --limit. Default: 0.")
@click.option(
    "--filter-metadata",
    "metadata",
    multiple=True,
    type=pair("key=value"),
    metavar="KEY=VALUE",
    help="Run only cases with this metadata. Repeatable.",
)
@click.option("--filter-failing", "failing_in", metavar="RUN", help="Run only cases that did not pass in this run.")
@click.option("--errors", "errors_in", metavar="RUN", help="Run only cases that had an error in this run.")
@click.option(
    "--case",
    "case_patterns",
    multiple=True,
    metavar="ID",
    help="Run only this case, or those whose ids match, for example 'refund-*'. Repeatable.",
)
@click.option("--first", type=click.IntRange(1), help="Run only the first N cases of the suite.")
@click.option(
    "--set",
    "replacements",
    multiple=True,
    metavar="PATH=VALUE",
    help="Replace a value of the suite, for example target.http.url=http://localhost:8000. Repeatable.",
)
@click.option(
    "--no-cache",
    "cache",
    flag_value=False,
    type=bool,
    default=None,
    help="Ask judges and embedding models again, and store the new answers.",
)
@click.option(
    "--reuse-outputs",
    "reuse_outputs",
    is_flag=True,
    default=None,
    help="Reuse outputs of earlier runs that asked the same, instead of calling.",
)
@click.option("--tag", "tags", multiple=True, help="Tag of the run. Repeatable.")
@click.option(
    "--verdict",
    "verdict_mode",
    type=click.Choice(["interval", "point"]),
    help="Judge by intervals, or by values alone.",
)
@click.option("--version", metavar="NAME", help="Version of the target; fepflow counts the runs of a version.")
@click.option(
    "--variant",
    "variants",
    multiple=True,
    type=pair("name=value"),
    metavar="NAME=VALUE",
    help="Run only variants with this value. Repeatable.",
)
@click.option("--yes", is_flag=True, help="Allow more than 50 variants.")
@click.option(
    "--resume",
    metavar="[RUN]",
    is_flag=False,
    flag_value="latest",
    help="Continue a run or variants: an id or its beginning. Default: the latest.",
)
@click.option("--failed-exit-code", type=click.IntRange(1, 255), default=1, help="Exit code of a fail. Default: 1.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the verdict.")
@click.option("-v", "--verbose", is_flag=True, help="Show the log: retries, failures, task runs.")
def run(
    suite: Path | None,
    reports: Reports,
    as_json: bool,
    resume: str | None,
    failed_exit_code: int,
    quiet: bool,
    verbose: bool,
    yes: bool,
    github: GitHubReport | None,
    **options: Any,
) -> int:
    """Run SUITE: call its target for each test case, check the outputs, and give a verdict.

    Without SUITE, suite.yaml of this folder is run. If the suite has variants, each is run and compared with the first.
    Options can also be environment variables, for example FEPFLOW_RUN_MAX_CONCURRENCY=4.
    """
    from fepflow.cli.console import Console
    from fepflow.services import run_service

    if "FEPFLOW_LOG" in os.environ:
        from fepflow.observability import logs

        logs.set_up("run", stdout=False)
    options = {name: value for name, value in options.items() if value not in (None, ())}
    if suite is not None and resume is not None:
        raise click.UsageError("give a suite or --resume RUN, not both: a resumed run keeps its own suite")
    if "seed" in options and "limit" not in options:
        raise click.UsageError("--seed is the seed of the sample that --limit draws; give --limit, too")
    if "first" in options and "limit" in options:
        raise click.UsageError("--first takes the first cases, --limit a random sample of all: give one of the two")
    console = Console(quiet=quiet, to_stderr=as_json)
    # From here on: an agent may print while it is loaded for the validation.
    out = click.get_current_context().with_resource(stdout_for_json()) if as_json else None
    begin: AbstractContextManager[LocalRun | LocalVariants]
    from_environment = set_by_environment()
    if resume is None:
        from fepflow.suite.variants import parse_replacement
        from fepflow.tasks.create_run import RunOptions

        suite = suite or suite_of_folder()
        if from_environment:
            console.note(f"options by the environment: {', '.join(from_environment.values())}")
        for variable in unknown_variables("FEPFLOW_RUN"):
            console.note(f"warning: {variable} is not an option of this command: `fepflow run --help` lists them")
        options["metadata"] = dict(options.get("metadata", ()))
        options["replacements"] = [parse_replacement(text) for text in options.get("replacements", ())]
        run_options = RunOptions(**options)
        validation = run_service.require_valid(suite, run_options, console.note, show_logs=verbose)
        if validation.variants:
            from fepflow.services.variants import begin_variants, wanted_variants

            reports.require_writable_for(len(wanted_variants(validation, run_options, yes=yes)))
            begin = begin_variants(validation, run_options, console.note, show_logs=verbose)
        else:
            begin = run_service.begin(validation, run_options, console.note, show_logs=verbose)
    elif options.keys() - from_environment.keys():
        raise click.UsageError("--resume continues a run as it was started; leave the other options out")
    else:
        begin = _resumed(resume, reports, console, show_logs=verbose)
    with begin as begun:
        exit_code = run_to_end(begun, console, reports, out, github)
    return failed_exit_code if exit_code == run_service.EXIT_CODES["fail"] else exit_code


read_from_environment(run, "FEPFLOW_RUN")


@contextmanager
def _resumed(run_id: str, reports: Reports, console: Console, *, show_logs: bool) -> Iterator[LocalRun | LocalVariants]:
    from fepflow.services import run_service
    from fepflow.services.variants import resume_variants

    with resume_variants(run_id, console.note, show_logs=show_logs) as variants:
        if variants is not None:
            reports.require_writable_for(len(variants.runs))
            yield variants
            return
    with run_service.resume(run_id, console.note, show_logs=show_logs) as begun:
        yield begun


def run_to_end(
    begun: LocalRun | LocalVariants,
    console: Console,
    reports: Reports,
    json_to: TextIO | None,
    github: GitHubReport | None = None,
) -> int:
    """Execute what has begun, write, print and report its end; return the exit code."""
    from fepflow.services import run_service
    from fepflow.tasks.local_run import LocalVariants

    gc.freeze()  # what was loaded stays: else each collection in the run searches it
    if isinstance(begun, LocalVariants):
        from fepflow.cli.run_view import run_variants

        variants = run_variants(begun, console, reports, json_to)
        if github is not None:
            github.report(begun.store, variants.table.runs)
        return variants.exit_code
    try:
        with console.progress_of(begun.run) as listener:
            finished = run_service.execute(begun, listener)
    except RunBusyError:
        raise
    except InfrastructureError as error:
        raise InfrastructureError(
            f"{error}\nStored results are kept: `fepflow run --resume {begun.run.id[:8]}` goes on."
        ) from None
    for warning in begun.warnings:
        console.note(f"warning: {warning}")
    # The verdict stands, whatever becomes of them.
    written = reports.write(begun.store, finished.run, console.report_error)
    if json_to is not None:
        from fepflow.reports.fep import write_run

        write_run(begun.store, finished.run, json_to)
    print_end(console, begun.store, finished, written)
    if github is not None:
        github.report(begun.store, [finished.run])
    return finished.exit_code


@contextmanager
def stdout_for_json() -> Iterator[TextIO]:
    """Open the command's stdout; whatever else is written there, by agents in this process too, goes to stderr.

    For good, where stdout is a file descriptor: a call that was given up may print when all is over.
    """
    sys.stdout.flush()
    try:
        descriptor, others = sys.stdout.fileno(), sys.stderr.fileno()
    except (OSError, ValueError):  # a stream in memory
        own = sys.stdout
        with redirect_stdout(sys.stderr):
            yield own
        return
    with outliving(os.dup(descriptor), sys.stdout.encoding) as own:
        os.dup2(others, descriptor)
        with redirect_stdout(sys.stderr):
            yield own


def print_end(console: Console, store: Store, finished: Finished, reports: Sequence[Path]) -> None:
    """Print the end of a run: tables, verdict, and where to look."""
    from fepflow.cli.console import SHORT_ID, safe
    from fepflow.cli.run_view import first_inconclusive, run_view, verdict_view
    from fepflow.page_links import run_page
    from fepflow.services.prefect_api import store_location, ui_login

    run = finished.run
    if not finished.prefect_informed:
        console.note("warning: Prefect's API stopped answering; the verdict is in the store, but Prefect does not know")
    if console.quiet:
        console.print(verdict_view(run, brief=True))
        return
    login = ui_login()
    places = {
        "run": f"fepflow show {run.id[:SHORT_ID]} --failed",
        "page": run_page(run.id),
        "Prefect UI": finished.flow_run_url,
        "UI login": login and f"the line in {login}",
        "store": store_location(),
    }
    rows = [*((name, place) for name, place in places.items() if place), *(("report", str(path)) for path in reports)]
    console.print(run_view(store, run))
    console.print(first_inconclusive(store, run))
    console.print(f"  {name:<11}{safe(place)}" for name, place in rows)


@click.command()
@click.argument("run", metavar="RUN")
@click.argument("suite", type=click.Path(path_type=Path), required=False)
@click.option("--gate", "gate_only", is_flag=True, help="Keep all check results; compute only metrics and gate.")
@report_options
@click.option("--json", "as_json", is_flag=True, help="Print the FEP result with metrics and verdict on stdout.")
@click.option("--failed-exit-code", type=click.IntRange(1, 255), default=1, help="Exit code of a fail. Default: 1.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the verdict.")
@click.option("-v", "--verbose", is_flag=True, help="Show the log.")
def rescore(
    run: str,
    suite: Path | None,
    gate_only: bool,
    reports: Reports,
    as_json: bool,
    failed_exit_code: int,
    quiet: bool,
    verbose: bool,
) -> int:
    """Judge the outputs of RUN again, by the present checks, metrics and gate of its SUITE.

    The agent is not called. The result is a new run with its own verdict. RUN is an id, its beginning, or latest. SUITE
    is by default the file from which the run was made.
    """
    from fepflow.cli.console import Console
    from fepflow.services import run_service
    from fepflow.services.run_service import begin_rescore

    console = Console(quiet=quiet, to_stderr=as_json)
    begin = begin_rescore(run, suite, console.note, gate_only=gate_only, show_logs=verbose)
    with stdout_for_json() if as_json else nullcontext(sys.stdout) as out, begin as begun:
        exit_code = run_to_end(begun, console, reports, out if as_json else None)
    return failed_exit_code if exit_code == run_service.EXIT_CODES["fail"] else exit_code


@click.command("list")
@click.option(
    "-n", "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Maximum number of runs."
)
@click.option("--name", help="Only runs of this suite.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one run a line.")
def list_runs(limit: int, name: str | None, as_json: bool) -> None:
    """List runs, newest first."""
    from fepflow.services import run_service

    with run_service.open_store() as store:
        runs = store.runs.newest(limit, name, variants=True)
    if as_json:
        from fepflow.reports.fep import run_summary

        echo_json_lines(map(run_summary, runs))
        return
    from fepflow.cli.console import SHORT_ID, TO_THE_SECOND, Console, coloured, moment, safe

    rows = []
    for run in runs:
        started = moment(run.started_at or run.created_at, TO_THE_SECOND)
        cases = f"{run.n_cases} x {run.repeats}" if run.repeats > 1 else str(run.n_cases)
        rows.append((run.id[:SHORT_ID], safe(run.name), started, run.status, cases, coloured(run.outcome)))
    columns = ("run", "suite", "started", "status", "cases", "verdict")
    Console().table(columns, rows, empty="No runs yet: fepflow run suite.yaml")


@click.command()
@click.argument("run", metavar="[RUN]", default="latest")
@click.option(
    "--failed", is_flag=True, help="Show cases that did not pass, beginning with those that decided the verdict."
)
@click.option("--check", "check_id", metavar="ID", help="Only cases that did not pass this check.")
@click.option("--errors", is_flag=True, help="Only calls without an answer and checks that ended in an error.")
@click.option("--case", "case_id", metavar="ID", help="Show this case with all its checks.")
@click.option("--trend", metavar="METRIC", help="Show this metric over earlier runs like this one.")
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="Maximum number of cases.")
@report_options
@click.option("--no-pager", is_flag=True, help="Do not use a pager.")
@click.option("--json", "as_json", is_flag=True, help="Print the FEP result with metrics and verdict.")
def show(
    run: str,
    failed: bool,
    check_id: str | None,
    errors: bool,
    case_id: str | None,
    trend: str | None,
    limit: int,
    reports: Reports,
    no_pager: bool,
    as_json: bool,
) -> int:
    """Show the verdict, metrics and cases of a run, even while it is under way. For variants, show their table.

    RUN is an id, its beginning, or latest.
    """
    from fepflow.cli.console import Console
    from fepflow.services import run_service

    failures = failed or errors or (check_id is not None and case_id is None)
    wants_cases = failures or case_id is not None
    if as_json and wants_cases:
        raise click.UsageError("--json is the whole run: leave --failed, --errors, --check and --case out")
    if trend is not None and (as_json or wants_cases):
        raise click.UsageError("--trend is about runs: leave --failed, --errors, --check, --case and --json out")
    with run_service.open_store() as store:
        console = Console(to_stderr=as_json)
        if store.runs.of_variants(run):
            if wants_cases or trend is not None:
                raise click.UsageError(f"{run} is all variants of a suite: name one of their runs")
            from fepflow.cli.run_view import show_variants

            return show_variants(store, run, console, reports, sys.stdout if as_json else None)
        record = run_service.with_current_metrics(store, store.runs.get(run))
        written = reports.write(store, record, console.report_error)
        if as_json:
            from fepflow.reports.fep import write_run

            write_run(store, record, sys.stdout)
        elif trend is not None:
            from fepflow.cli.comparisons import trend_view
            from fepflow.services.comparisons import trend_up_to

            console.print(trend_view(record.name, [trend_up_to(store, record, trend)]))
        else:
            from fepflow.cli.run_view import cases_view, run_view
            from fepflow.services.failed_results import Selection

            console.print(
                cases_view(store, record, Selection(failures, case_id, check_id, errors), limit)
                if wants_cases
                else run_view(store, record),
                use_pager=wants_cases and not no_pager,
            )
    return 0 if len(written) == len(reports.paths) else InfrastructureError.exit_code


@click.command()
@click.argument("run", metavar="RUN")
def cancel(run: str) -> None:
    """Cancel a run, or all variants of a suite, on any machine. Stored results are kept.

    RUN is an id, its beginning, or latest.
    """
    from fepflow.services import run_service
    from fepflow.services.variants import cancel_variants

    if variants := cancel_variants(run):
        variants_id = variants[0].variants_id or run
        will_stop = f"{plural(len(variants), 'variant')} will stop"
        click.echo(f"{will_stop}. Continue them: fepflow run --resume {variants_id[:8]}")
        return
    record = run_service.cancel(run)
    if record.status == "running":
        click.echo(f"Run {record.id[:8]} will stop; its executor, {record.lease_owner}, has not confirmed it yet.")
    else:
        click.echo(f"Run {record.id[:8]} is {record.status}. Continue it: fepflow run --resume {record.id[:8]}")
