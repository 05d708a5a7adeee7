"""`fepflow list` and `fepflow show`: what the store knows."""

from __future__ import annotations

import sys

import click


@click.command("list")
@click.option("-n", "--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many runs.")
@click.option("--name", help="Only runs of this suite.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one run a line.")
def list_runs(limit: int, name: str | None, as_json: bool) -> None:
    """List runs, newest first."""
    from surfaces import service
    from surfaces.cli.console import Console
    from surfaces.reports.fep import dumps, run_summary

    with service.open_store() as store:
        runs = store.runs(limit, name)
    if as_json:
        for record in runs:
            click.echo(dumps(run_summary(record)))
    else:
        Console().runs(runs)


@click.command()
@click.argument("run", metavar="[RUN]", default="latest")
@click.option("--failed", is_flag=True, help="Show the cases that did not pass, with input, output and every check.")
@click.option("--case", "case_id", help="Show this case, with input, output and every check.")
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="How many cases at most.")
@click.option("--json", "as_json", is_flag=True, help="Print the FEP result with metrics and verdict.")
def show(run: str, failed: bool, case_id: str | None, limit: int, as_json: bool) -> None:
    """Show a run, also one that is under way: its verdict, metrics and cases.

    RUN is an id, its beginning, or latest.
    """
    from surfaces import service
    from surfaces.cli.console import Console
    from surfaces.reports.fep import write_run

    with service.open_store() as store:
        record = service.with_metrics_so_far(store, store.run(run))
        if as_json:
            write_run(store, record, sys.stdout)
            return
        console = Console()
        console.run(store, record)
        if failed or case_id:
            console.cases(store, record, failed_only=failed, case_id=case_id, limit=limit)
