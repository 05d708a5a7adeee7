"""`fepflow list` and `fepflow show`: what the store knows."""

from __future__ import annotations

import sys

import click

from fepflow.cli.report_options import Reports, report_options


@click.command("list")
@click.option("-n", "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many runs.")
@click.option("--name", help="Only runs of this suite.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one run a line.")
def list_runs(limit: int, name: str | None, as_json: bool) -> None:
    """List runs, newest first."""
    from fepflow.cli.console import Console
    from fepflow.services import run_service

    with run_service.open_store() as store:
        runs = store.runs(limit, name)
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
        record = run_service.with_current_metrics(store, store.run(run))
        console = Console(to_stderr=as_json)
        written = reports.write(store, record, console.report_error)
        if as_json:
            from fepflow.reports.fep import write_run

            write_run(store, record, sys.stdout)
        elif trend is not None:
            from fepflow.cli.trends import trend_view
            from fepflow.services.baselines import trend_up_to

            console.print(trend_view(record.name, [trend_up_to(store, record, trend)]))
        elif wants_cases:
            from fepflow.services.failed_results import Selection

            selection = Selection(failures, case_id, check_id, errors)
            console.cases(store, record, selection, limit, use_pager=not no_pager)
        else:
            console.run(store, record)
    return 0 if len(written) == len(reports.paths) else InfrastructureError.exit_code
