"""`fepflow init`: a first suite to change."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

STARTER = ("suite.yaml", "cases.jsonl")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path())
def init(folder: Path) -> None:
    """Write a commented suite and some test cases into FOLDER (default: here)."""
    from fepflow.errors import UserError

    taken = [name for name in STARTER if (folder / name).exists()]
    if taken:
        raise UserError(f"{folder / taken[0]} is there already: choose another folder, or remove it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in STARTER:
            text = files("surfaces.cli").joinpath("starter", name).read_text(encoding="utf-8")
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from None
    click.echo(f"Wrote {folder / 'suite.yaml'} and {folder / 'cases.jsonl'}.")
    click.echo(f"Next: set the target's url, then fepflow validate {folder / 'suite.yaml'}")
