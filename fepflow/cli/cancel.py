"""`fepflow cancel`: stop a run."""

from __future__ import annotations

import click


@click.command()
@click.argument("run", metavar="RUN")
def cancel(run: str) -> None:
    """Stop a run, on whatever machine it is executed; what it has stored is kept.

    RUN is an id, its beginning, or latest.
    """
    from fepflow.services import run_service

    record = run_service.cancel(run)
    if record.status == "running":
        click.echo(f"Run {record.id[:8]} will stop; its executor, {record.lease_owner}, has not said so yet.")
    else:
        click.echo(f"Run {record.id[:8]} is {record.status}. Go on with it: fepflow run --resume {record.id[:8]}")
