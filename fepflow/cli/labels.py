"""`fepflow labels`: what people say of outputs."""

from __future__ import annotations

from pathlib import Path

import click


@click.group()
def labels() -> None:
    """Look after what people say of a run's outputs; `fepflow calibrate` compares judges with it."""


@labels.command()
@click.argument("run_id", metavar="RUN")
@click.option("--check", metavar="ID", help="Labels for this judge only.")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="FILE",
              help="The file to write, .csv or .jsonl; it must not be there yet.")  # fmt: skip
def export(run_id: str, check: str | None, output: Path) -> None:
    """Write the labels of RUN (an id, its beginning, or latest) to a file that `calibrate --labels` reads.

    One row for each output and field, with the label that counts, and who said what, when, and why.
    """
    from fepflow.evalguard.formatting import plural
    from fepflow.services.labels import export_labels

    run, count = export_labels(run_id, check, output)
    click.echo(f"{output}: labels of run {run.id[:8]}, {plural(count, 'row')}.")
