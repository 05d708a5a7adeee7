"""`fepflow export`: a stored run in the form that another tool reads."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

TARGETS = ("evalhub", "langfuse", "csv")


@click.command()
@click.argument("run", metavar="[RUN]", default="latest")
@click.option(
    "--to", "target", type=click.Choice(TARGETS), required=True, help="The tool, or a table with a row a case."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="The file (default: print it).")
@click.option("--dataset", metavar="NAME", help="langfuse: create this dataset of the test cases, and link the traces.")
@click.option("--overwrite", is_flag=True, help="Let -o replace a file that is there.")
def export(run: str, target: str, output: Path | None, dataset: str | None, overwrite: bool) -> None:
    """Write a run for Eval Hub, Langfuse or a spreadsheet. Nothing is sent anywhere.

    RUN is an id, its beginning, or latest. An error stays an error, and is never a fail or a zero.
    """
    from fepflow.cli.report_files import Writer, require_place, write_file
    from fepflow.reports.evalhub import write_evalhub
    from fepflow.reports.langfuse import write_langfuse
    from fepflow.reports.wide_csv import write_wide_csv
    from fepflow.services import run_service

    if dataset is not None and target != "langfuse":
        raise click.UsageError("--dataset is of --to langfuse")
    writers: dict[str, Writer] = {
        "evalhub": write_evalhub,
        "langfuse": partial(write_langfuse, dataset=dataset),
        "csv": write_wide_csv,
    }
    if output is not None:
        require_place(output, overwrite=overwrite)
    with run_service.open_store() as store:
        record = run_service.with_current_metrics(store, store.runs.get(run))
        if output is None:
            writers[target](store, record, sys.stdout)
            return
        write_file(writers[target], store, record, output, f"the run is in the store: fepflow export {record.id[:8]}")
    click.echo(f"Wrote {output}: run {record.id[:8]} for {target}.", err=True)
