"""`fepflow store`: the database that keeps results."""

from __future__ import annotations

from pathlib import Path

import click

_TABLES = {"run": "runs", "run_case": "test cases", "output": "outputs", "check_result": "check results"}


@click.group()
def store() -> None:
    """Look after the database that keeps results."""


@store.command()
@click.option("--to", "revision", metavar="REVISION", help="The schema to go to (default: the newest).")
@click.option("--yes", is_flag=True, help="Do go back to an older schema.")
def migrate(revision: str | None, yes: bool) -> None:
    """Bring the store to the newest schema, or back to that of an older fepflow.

    Whatever opens the store upgrades it, too: going back is for who goes on with an older fepflow.
    """
    from fepflow.services import run_service

    location, before, after = run_service.migrate_store(revision, back=yes)
    if before == after:
        click.echo(f"{location} has schema {after} already.")
    else:
        click.echo(f"{location}: schema {before or 'none'} -> {after}.")


@store.command()
def check() -> None:
    """Read everything in the store, and say what is wrong with it. Changes nothing."""
    from fepflow.settings import settings
    from fepflow.store.integrity import check_integrity

    report = check_integrity(settings().store_address)
    click.echo(f"{report.location} ({report.version}), schema {report.revision or 'none'}")
    if report.rows:
        click.echo("  " + ", ".join(f"{words}: {report.rows[table]:,}" for table, words in _TABLES.items()))
    for problem in report.problems:
        click.echo(f"error: {problem}", err=True)
    if report.problems:
        raise click.exceptions.Exit(3)
    click.echo("  everything can be read")


@store.command()
@click.argument("file", type=click.Path(path_type=Path))
def backup(file: Path) -> None:
    """Write the store to FILE, as it is at this moment; runs may go on meanwhile. Overwrites nothing.

    A SQLite store becomes a SQLite file; one on PostgreSQL an archive for pg_restore, made by pg_dump.
    """
    from fepflow.settings import settings
    from fepflow.store.backup import back_up

    location = back_up(settings().store_address, file)
    click.echo(f"{location}: backed up to {file} ({file.stat().st_size:,} bytes).")
