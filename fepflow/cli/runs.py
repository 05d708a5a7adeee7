"""`fepflow run`, `list`, `show` and `cancel`."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from fepflow.cli.options import Reports, Seconds, report_options


class Limit(click.ParamType[float]):
    """A count of cases, or a fraction of them below 1."""

    name = "count or fraction"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """A positive number; a whole one from 1 on."""
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{value} is no number", param, ctx)
        if number <= 0 or (number >= 1 and number != int(number)):
            self.fail("a count such as 20, or a fraction such as 0.1", param, ctx)
        return number


class Pair(click.ParamType[tuple[str, str]]):
    """`key=value`; `name` is how help and errors call it."""

    def __init__(self, name: str = "key=value") -> None:
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Split at the first equals sign."""
        if isinstance(value, tuple):
            return value
        key, equals, text = str(value).partition("=")
        if not key or not equals:
            self.fail(f"{value} is not of the form {self.name}", param, ctx)
        return key, text


@click.command()
@click.argument("suite", type=click.Path(path_type=Path), required=False)
@report_options
@click.option("--json", "as_json", is_flag=True, help="Print the FEP result with metrics and verdict on stdout.")
@click.option("-j", "--max-concurrency", type=click.IntRange(1, 1000), help="Calls at once.")
@click.option("--timeout", type=Seconds(), help="Deadline of a call, such as 2m; of an ECP agent, of each step.")
@click.option("--repeats", "--epochs", type=click.IntRange(1, 1000), help="How often each case is called.")
@click.option("--limit", type=Limit(), help="Only a random sample of so many cases; below 1 a fraction.")
@click.option("--seed", type=click.IntRange(0), help="Draw another sample for --limit. Default: 0.")
@click.option("--filter-metadata", multiple=True, type=Pair(), help="Only cases with this metadata. Repeatable.")
@click.option("--filter-failing", metavar="RUN", help="Only cases that did not pass in this run.")
@click.option("--no-cache", is_flag=True, help="Ask judges and embedding models anew, and keep what they answer.")
@click.option("--tag", "tags", multiple=True, help="Tag of the run. Repeatable.")
@click.option("--verdict", type=click.Choice(["interval", "point"]), help="Judge by intervals, or by values alone.")
@click.option("--resume", metavar="RUN", help="Go on with this run (an id, its beginning, or latest).")
@click.option("--failed-exit-code", type=click.IntRange(1, 255), default=1, help="Exit code of a fail. Default: 1.")
@click.option("-q", "--quiet", is_flag=True, help="Print the verdict only.")
@click.option("-v", "--verbose", is_flag=True, help="Show the log: retries, failures, task runs.")
def run(suite: Path | None, reports: Reports, as_json: bool, resume: str | None, failed_exit_code: int, quiet: bool,
        verbose: bool, **options: Any) -> int:  # fmt: skip
    """Run a SUITE: call its target for each test case, check the outputs, give a verdict."""
    from fepflow.cli.console import Console
    from fepflow.cli.options import stdout_for_us_alone
    from fepflow.errors import InfrastructureError, RunBusyError
    from fepflow.services import run_service

    if suite is not None and resume is not None:
        raise click.UsageError("give a suite or --resume RUN, not both: a run goes on with the suite that it has")
    if suite is None and resume is None:
        raise click.UsageError("give a suite, or --resume RUN")
    console = Console(quiet=quiet, to_stderr=as_json)
    with (
        stdout_for_us_alone() if as_json else nullcontext(sys.stdout) as out,
        _begin(suite, resume, options, console.note, show_logs=verbose) as begun,
    ):
        try:
            with console.progress(begun.run) as listener:
                finished = run_service.execute(begun, listener)
        except InfrastructureError as error:
            if isinstance(error, RunBusyError):
                raise
            raise InfrastructureError(
                f"{error}\nWhat was stored is kept: `fepflow run --resume {begun.run.id[:8]}` goes on."
            ) from None
        # The verdict stands, whatever becomes of them.
        written = reports.write(begun.store, finished.run, console.report_error)
        if as_json:
            from fepflow.reports.fep import write_run

            write_run(begun.store, finished.run, out)
        console.finished(begun.store, finished, written)
        return failed_exit_code if finished.exit_code == run_service.EXIT_CODES["fail"] else finished.exit_code


def _begin(suite: Path | None, resume: str | None, options: dict[str, Any], note: Any, *, show_logs: bool) -> Any:
    from fepflow.services import run_service

    if options["seed"] is not None and options["limit"] is None:
        raise click.UsageError("--seed is that of the sample which --limit draws; give --limit, too")
    given = {name: value for name, value in options.items() if value not in (None, (), False)}
    if suite is None:
        if given:
            raise click.UsageError("--resume goes on with a run as it was begun; leave the other options out")
        assert resume is not None
        return run_service.resume(resume, note, show_logs=show_logs)
    from fepflow.analysis.sampling import DEFAULT_SEED
    from fepflow.tasks.run.options import RunOptions

    return run_service.start(
        suite,
        RunOptions(
            limit=given.get("limit"),
            seed=options["seed"] or DEFAULT_SEED,
            repeats=given.get("repeats"),
            concurrency=given.get("max_concurrency"),
            timeout=given.get("timeout"),
            tags=given.get("tags", ()),
            metadata=dict(given.get("filter_metadata", ())),
            failing_in=given.get("filter_failing"),
            verdict_mode=given.get("verdict"),
            cache=False if "no_cache" in given else None,
        ),
        note,
        show_logs=show_logs,
    )


@click.command("list")
@click.option("-n", "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many runs.")
@click.option("--name", help="Only runs of this suite.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one run a line.")
def list_runs(limit: int, name: str | None, as_json: bool) -> None:
    """List runs, newest first."""
    from fepflow.cli.console import Console
    from fepflow.services import run_service

    with run_service.open_store() as store:
        runs = store.runs.newest(limit, name)
    if as_json:
        from fepflow.reports.fep import dumps, run_summary

        for record in runs:
            click.echo(dumps(run_summary(record)))
    else:
        Console().runs(runs)


@click.command()
@click.argument("run", metavar="[RUN]", default="latest")
@click.option("--failed", is_flag=True, help="Show the cases that did not pass, what decided the verdict first.")
@click.option("--check", "check_id", metavar="ID", help="Only cases that did not pass this check.")
@click.option("--errors", is_flag=True, help="Only calls without an answer and checks that ended in an error.")
@click.option("--case", "case_id", metavar="ID", help="Show this case with all its checks.")
@click.option("--trend", metavar="METRIC", help="Show this metric over the runs like this one, up to it.")
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="How many cases at most.")
@report_options
@click.option("--no-pager", is_flag=True, help="Do not hand cases to PAGER on a terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print the FEP result with metrics and verdict.")
def show(run: str, failed: bool, check_id: str | None, errors: bool, case_id: str | None, trend: str | None, limit: int,
         reports: Reports, no_pager: bool, as_json: bool) -> int:  # fmt: skip
    """Show a run, also one that is under way: its verdict, metrics and cases.

    RUN is an id, its beginning, or latest.
    """
    from fepflow.cli.console import Console
    from fepflow.errors import InfrastructureError
    from fepflow.services import run_service

    failures = failed or errors or (check_id is not None and case_id is None)
    wants_cases = failures or case_id is not None
    if as_json and wants_cases:
        raise click.UsageError("--json is the whole run: leave --failed, --errors, --check and --case out")
    if trend is not None and (as_json or wants_cases):
        raise click.UsageError("--trend is about runs: leave --failed, --errors, --check, --case and --json out")
    with run_service.open_store() as store:
        record = run_service.with_current_metrics(store, store.runs.get(run))
        console = Console(to_stderr=as_json)
        written = reports.write(store, record, console.report_error)
        if as_json:
            from fepflow.reports.fep import write_run

            write_run(store, record, sys.stdout)
        elif trend is not None:
            from fepflow.cli.comparisons import trend_view
            from fepflow.services.baselines import trend_up_to

            console.print(trend_view(record.name, [trend_up_to(store, record, trend)]))
        elif wants_cases:
            from fepflow.services.failed_results import Selection

            selection = Selection(failures, case_id, check_id, errors)
            console.cases(store, record, selection, limit, use_pager=not no_pager)
        else:
            console.run(store, record)
    return 0 if len(written) == len(reports.paths) else InfrastructureError.exit_code


@click.command()
@click.argument("run", metavar="RUN")
def cancel(run: str) -> None:
    """Stop a run, on whatever machine it is executed; what it has stored is kept.

    RUN is an id, its beginning, or latest.
    """
    from fepflow.services import run_service

    record = run_service.cancel(run)
    if record.status == "running":
        click.echo(f"Run {record.id[:8]} will stop; its executor, {record.lease_owner}, has not said so yet.")
    else:
        click.echo(f"Run {record.id[:8]} is {record.status}. Go on with it: fepflow run --resume {record.id[:8]}")
