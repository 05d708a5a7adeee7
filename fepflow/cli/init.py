"""`fepflow init`: a first suite to change."""

from __future__ import annotations

from pathlib import Path

import click

STARTER = ("suite.yaml", "cases.jsonl", "agent.py")


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path())
def init(folder: Path) -> None:
    """Write a commented suite, some test cases and a small agent, which passes, into FOLDER (default: here)."""
    from importlib.resources import files

    from fepflow.errors import UserError

    taken = [name for name in STARTER if (folder / name).exists()]
    if taken:
        raise UserError(f"{folder / taken[0]} is there already: choose another folder, or remove it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in STARTER:
            text = files("fepflow.cli").joinpath("starter", name).read_text(encoding="utf-8")
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write to {folder}: {error.strerror}") from None
    click.echo(f"Wrote {', '.join(str(folder / name) for name in STARTER)}.")
    click.echo(f"Next: fepflow run {folder / 'suite.yaml'}, which passes; then put your own agent into agent.py.")
