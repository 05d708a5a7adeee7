"""`fepflow schedule`: run a suite by the clock."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from fepflow.cli.run import Limit

SHORTEST_SECONDS = 1.0


@click.command()
@click.argument("suite", required=False)
@click.option("--cron", metavar="EXPRESSION", help='When: minute, hour, day, month, weekday, such as "0 2 * * *".')
@click.option("--every", metavar="DURATION", help="Or how often: 30m, 6h, 1d.")
@click.option("--timezone", default="UTC", show_default=True, help="Timezone of --cron, such as Europe/Berlin.")
@click.option("--limit", type=Limit(), help="Only so many cases; below 1 a fraction of them.")
@click.option("--repeats", type=click.IntRange(1, 1000), help="How often each case is called.")
@click.option("--name", help="Name of the deployment (default: the suite's name).")
@click.option("--list", "as_list", is_flag=True, help="Show all schedules and their next runs.")
@click.option("--pause", "action", flag_value="pause", help="Switch the schedule of SUITE off.")
@click.option("--resume", "action", flag_value="resume", help="Switch it on again.")
@click.option("--remove", "action", flag_value="remove", help="Remove it; its runs stay, and one under way goes on.")
def schedule(suite: str | None, as_list: bool, action: str | None, name: str | None, **when: Any) -> None:  # fmt: skip
    """Run SUITE by the clock: makes a Prefect deployment, which `fepflow serve` executes.

    To --pause, --resume or --remove, SUITE is the suite's path or the name that --list shows.
    """
    if as_list:
        _show(_run_module("list"))
        return
    if action is not None:
        wanted = name or suite
        if wanted is None:
            raise click.UsageError(f"say which schedule to {action}: the suite's path, or its name in --list")
        done = _run_module(action, wanted)
        words = {"pause": "Paused", "resume": "Resumed", "remove": "Removed"}[action]
        click.echo(f"{words} {done['name']}.")
        if action == "resume":
            _say_what_comes(done)
        if action == "remove":
            _say_what_becomes_of_runs(done)
        return
    if suite is None:
        raise click.UsageError("give a suite, or --list")
    from fepflow.services import run_service

    arguments = _when(**when)
    path = Path(suite)
    validation = run_service.validate(path)
    suite_name = validation.require().name
    deployment = re.sub(r"[/%&<>]+", "-", name or suite_name)[:100]
    arguments += [f"--suite={path.resolve()}", f"--suite-name={suite_name}", f"--name={deployment}"]
    for problem in validation.notes:
        click.echo(f"{problem.severity}: {problem}", err=True)
    done = _run_module("put", *arguments)
    word = "Scheduled" if done["created"] else "Changed"
    click.echo(f"{word} {done['name']}: {', '.join(done['when'])}, {path.resolve()}")
    _say_what_comes(done)


def _when(cron: str | None, every: str | None, timezone: str, limit: float | None, repeats: int | None) -> list[str]:
    from fepflow.text import seconds

    if (cron is None) == (every is None):
        raise click.UsageError('say when: --cron "0 2 * * *", or --every 30m')
    if every is not None:
        try:
            interval = seconds(every)
        except ValueError as error:
            raise click.BadParameter(f"{every}: {error}", param_hint="--every") from None
        if not SHORTEST_SECONDS <= interval <= 366 * 86_400:
            raise click.BadParameter(f"{every}: between 1s and 366d", param_hint="--every")
        every = str(interval)
    given = {"cron": cron, "every": every, "timezone": timezone, "limit": limit, "repeats": repeats}
    return [f"--{option}={value}" for option, value in given.items() if value is not None]


def _run_module(*arguments: str) -> Any:
    from fepflow.services import prefect_api

    return prefect_api.run_prefect_module("fepflow.deployments.schedule", *arguments)


def _show(found: dict[str, Any]) -> None:
    from fepflow.cli.console import Console

    Console().schedules(found["schedules"])
    if any(not one["paused"] for one in found["schedules"]) and not found["worked"]:
        _say_nobody_works()


def _say_what_comes(done: dict[str, Any]) -> None:
    if done["paused"]:
        click.echo(f"It is paused, as somebody has left it: fepflow schedule {done['name']} --resume")
    elif done["next"] is None:
        click.echo("warning: Prefect has planned no run: does such a moment ever come?", err=True)
    else:
        click.echo(f"Next run: {local_time(done['next'])}")
    if not done["paused"]:
        if done["worked"]:
            click.echo("A worker is alive; it executes the runs while it lives.")
        else:
            _say_nobody_works()


def _say_what_becomes_of_runs(done: dict[str, Any]) -> None:
    for name in done["under_way"]:
        click.echo(f"The run {name} is under way and goes on to its end; `fepflow cancel RUN` stops it.")
    if done["dropped"]:
        click.echo(f"Dropped {done['dropped']} {'run' if done['dropped'] == 1 else 'runs'} that had not begun.")


def _say_nobody_works() -> None:
    click.echo("No worker executes runs now: start `fepflow serve`, and leave it running.")


def local_time(moment: str) -> str:
    """A moment as this machine's clock has it."""
    return datetime.fromisoformat(moment).astimezone().strftime("%a %Y-%m-%d %H:%M:%S %Z")
