"""`fepflow limits`: what runs and machines may ask of a target together, as Prefect's global limits."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

import click

T = TypeVar("T")


@click.group(invoke_without_command=True)
@click.pass_context
def limits(context: click.Context) -> None:
    """Show the global limits that suites may name in target.limits; set and remove them."""
    if context.invoked_subcommand is None:
        _show()


@limits.command("set")
@click.argument("name")
@click.option("--concurrency", type=click.IntRange(1, 100_000), help="Calls under way at once, of all runs together.")
@click.option("--per-minute", type=click.FloatRange(0, 1_000_000, min_open=True), help="Calls a minute.")
def set_one(name: str, concurrency: int | None, per_minute: float | None) -> None:
    """Create the limit NAME, or change it."""
    _connect()
    from fepflow.tasks.run.global_limits import set_limit

    if (concurrency is None) == (per_minute is None):
        raise click.UsageError("give --concurrency or --per-minute; who needs both makes two limits")
    _ask(set_limit(name, concurrency, per_minute))
    _show()


@limits.command("remove")
@click.argument("name")
def remove_one(name: str) -> None:
    """Delete the limit NAME."""
    _connect()
    from fepflow.tasks.run.global_limits import remove_limit

    _ask(remove_limit(name))
    click.echo(f"Removed {name}.")


def _show() -> None:
    from fepflow.cli.console import Console

    _connect()
    from fepflow.tasks.run.global_limits import read_limits

    Console().limits(_ask(read_limits()))


def _connect() -> None:
    from fepflow.cli.console import Console
    from fepflow.services import run_service

    run_service.connect(Console(to_stderr=True).note)


def _ask(question: Coroutine[Any, Any, T]) -> T:
    import asyncio

    return asyncio.run(question)
