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
    "--to",
    "target",
    type=click.Choice(TARGETS),
    required=True,
    help="Tool that will read the file; csv: a table with a row for each case.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="File to write (default: print).")
@click.option(
    "--dataset", metavar="NAME", help="langfuse: create this dataset from the test cases, and link the traces."
)
@click.option("--overwrite", is_flag=True, help="Let -o replace an existing file.")
def export(run: str, target: str, output: Path | None, dataset: str | None, overwrite: bool) -> None:
    """Write a run for Eval Hub, Langfuse or a spreadsheet. Nothing is sent.

    RUN is an id, its beginning, or latest. An error stays an error, and never becomes a fail or a zero.
    """
    from fepflow.cli.report_files import Writer, require_place, write_file
    from fepflow.reports.evalguard import write_evalhub
    from fepflow.reports.langfuse import write_langfuse
    from fepflow.reports.tables import write_wide_csv
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
