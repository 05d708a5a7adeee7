"""`fepflow import` and `export`: suites and results from other evaluation tools, and runs for them."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path

import click

from fepflow.text import printable


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--as", "format_name", metavar="FORMAT", help="Format of the file (default: recognized by its content).")
@click.option(
    "--output",
    "-o",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for suite and test cases (for a file without results, default: a new folder here, named as the file).",
)
@click.option("--overwrite", is_flag=True, help="Let -o replace existing files.")
@click.option(
    "--run/--no-run", "store", default=None, help="Store the results as a run (default: if the file has results)."
)
@click.option("--strict", is_flag=True, help="Exit with 1 if anything needs attention.")
def import_file(
    file: Path, format_name: str | None, folder: Path | None, overwrite: bool, store: bool | None, strict: bool
) -> None:
    """Import FILE, a suite or results of another evaluation tool, as a suite or a run.

    A report says what was imported, and what needs attention. Nothing in FILE is executed.
    """
    from fepflow.services.imports import read_import

    found = read_import(file, format_name=format_name)
    imported = found.imported
    store = bool(imported.runs) if store is None else store
    if store:
        from fepflow.extras import require

        require("run", "storing a run")
    written = []
    if folder is not None or not store:
        written = found.write_suite(folder or Path(_folder_name(imported.name)), overwrite=overwrite)
    runs = found.store_runs() if store else []
    version = f" {imported.version}" if imported.version else ""
    click.echo(
        printable(
            f"Imported {found.source.name} ({imported.format}{version}): {', '.join(imported.notes.what_came())}."
        )
    )
    for problem in imported.notes.problems():
        click.echo(f"needs attention: {problem}", err=True)
    if written:
        click.echo(f"Wrote {', '.join(map(str, written))}.")
    for run in runs:
        from fepflow.cli.console import Console, safe
        from fepflow.cli.run_view import verdict_view

        Console().print([f"Run {run.id[:8]}, {safe(run.name)}:", *verdict_view(run, brief=True)])
    if runs:
        together = runs[0].variants_id
        click.echo(f"Next: fepflow show {(together or runs[0].id)[:8]}{', a table of all' if together else ''}")
    elif written:
        click.echo(f"Next: fepflow validate {written[0]}")
    if strict and not imported.notes.is_complete:
        raise click.exceptions.Exit(1)


def _folder_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:80] or "imported"


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
