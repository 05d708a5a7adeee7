"""`fepflow baseline`: runs of suites under a name, to compare others with."""

from __future__ import annotations

import click


@click.group()
def baseline() -> None:
    """Name runs that others are compared with."""


@baseline.command("set")
@click.argument("name")
@click.argument("run")
def set_(name: str, run: str) -> None:
    """Make RUN (an id, its beginning, or latest) the baseline NAME of its suite."""
    from fepflow.services.baselines import set_baseline
    from fepflow.text import printable

    record, before = set_baseline(name, run)
    was = f" (was {before[:8]})" if before not in (None, record.id) else ""
    click.echo(
        f"{name} of {printable(record.name)} is run {record.id[:8]} now, with the verdict {record.outcome}{was}."
    )


@baseline.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one baseline a line.")
def list_baselines(as_json: bool) -> None:
    """List the baselines of all suites."""
    from fepflow.cli.console import Console
    from fepflow.services import run_service

    with run_service.open_store() as store:
        found = [(each, store.run(each.run_id)) for each in store.baselines()]
    if not as_json:
        Console().baselines(found)
        return
    from fepflow.reports.fep import dumps

    for each, run in found:
        fields = {"suite": each.suite, "name": each.name, "run_id": each.run_id, "set_at": each.set_at.isoformat()}
        click.echo(dumps({**fields, "outcome": run.outcome}))


@baseline.command()
@click.argument("name")
@click.option("--suite", metavar="NAME", help="The suite, where several have a baseline of that name.")
def remove(name: str, suite: str | None) -> None:
    """Remove the baseline NAME; its run stays."""
    from fepflow.services.baselines import remove_baseline
    from fepflow.text import printable

    click.echo(f"Removed the baseline {name} of {printable(remove_baseline(name, suite))}.")
