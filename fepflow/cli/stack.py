"""Commands of the stack: servers, result pages, schedules, alerts, shared limits."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

import click

from fepflow.cli.options import LIMIT, Duration, note_untaken_variables

T = TypeVar("T")


@click.command()
@click.option("--port", type=click.IntRange(1, 65535), help="Port to listen on (default: FEPFLOW_PORT, or 4200).")
def up(port: int | None) -> None:
    """Start the local Prefect server, unless one is already running or configured.

    The server listens only on 127.0.0.1, and continues after this command. If Prefect's settings name another API
    (PREFECT_API_URL, the active profile), that API is used and no server is started.
    """
    from fepflow.services import prefect_api

    _print_api(prefect_api.prefect_api(port))


@click.command()
def down() -> None:
    """Stop the local Prefect server. Its records are kept."""
    from fepflow.services import prefect_api

    stopped = prefect_api.stop_local_server()
    click.echo(f"Stopped the server at {stopped.ui_url}." if stopped else "No local server was running.")


@click.command()
@click.option("--env", "as_env", is_flag=True, help='Print only shell lines, for eval "$(fepflow status --env)".')
def status(as_env: bool) -> None:
    """Show which Prefect API is used, and where results are stored."""
    from fepflow.services import prefect_api

    api = prefect_api.running_api()
    if as_env:
        if api is None:
            raise click.ClickException("no server is running: fepflow up")
        for name, value in api.environment.items():
            click.echo(f"export {name}={quote(value)}")
    elif api is None:
        click.echo("No Prefect server is running; `fepflow up` starts one, and so does `fepflow run`.")
    else:
        _print_api(api)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address on which REST and gRPC listen.")
@click.option("--behind-tls", is_flag=True, help="State that a proxy in front terminates TLS.")
def serve(host: str, behind_tls: bool) -> None:
    """Run the stack of one machine until Ctrl-C: server, deployments, worker, reaper, REST and gRPC.

    The deployments are those of prefect.yaml in the working directory, or else the ones that come with fepflow. If
    Prefect's settings name an API, it is used instead of a local server. FEPFLOW_API_PORT and FEPFLOW_GRPC_PORT set the
    ports of REST and gRPC. On an address other than this machine's own, both require API keys.
    """
    options = ["--host", host, *(["--behind-tls"] if behind_tls else [])]
    _note_ignored_files()
    note_untaken_variables()
    # In place of this process, which then gets its signals. -P: no module in the working directory is imported.
    command = [sys.executable, "-P", "-m", "fepflow.deployments.serve", *options]
    os.execv(sys.executable, command)  # noqa: S606  # no shell is wanted


def _print_api(api: object) -> None:
    from fepflow.services import prefect_api
    from fepflow.settings import settings

    assert isinstance(api, prefect_api.PrefectApi)
    origin = f"local server, process {api.pid}" if api.local else f"named by {prefect_api.settings_source()}"
    click.echo(f"Prefect UI   {prefect_api.without_credentials(api.ui_url)}")
    click.echo(f"Prefect API  {prefect_api.without_credentials(api.url)}  ({origin})")
    click.echo(f"Store        {prefect_api.store_location()}")
    if api.login:
        click.echo(f"UI login     the line in {settings().login_file}")
    if api.local:
        click.echo('For plain `prefect` commands in this shell: eval "$(fepflow status --env)"')
    for error in api.errors:
        click.echo(f"warning: {error}", err=True)
    _note_ignored_files()


def _note_ignored_files() -> None:
    from fepflow.prefect_settings import ignored_files

    for sentence in ignored_files():
        click.echo(f"warning: {sentence}", err=True)


@click.command()
@click.argument("run", required=False)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port to listen on (default: any free port).")
@click.option("--no-browser", is_flag=True, help="Print the address of the pages, and open no browser.")
def view(run: str | None, port: int, no_browser: bool) -> None:
    """Show runs in the browser until Ctrl-C, on this machine only.

    RUN is the run to open: an id, its beginning, or latest. `fepflow serve` has the same pages for a team.
    """
    import asyncio

    from fepflow.deployments import view as pages
    from fepflow.settings import settings

    note_untaken_variables()
    asyncio.run(pages.view(settings(), run, port, open_browser=not no_browser))


@click.group(invoke_without_command=True)
@click.pass_context
def limits(context: click.Context) -> None:
    """Show, set and remove the global limits that suites may name in target.limits."""
    if context.invoked_subcommand is None:
        _show_limits()


@limits.command("set")
@click.argument("name")
@click.option("--concurrency", type=click.IntRange(1, 100_000), help="Calls at once, in all runs together.")
@click.option(
    "--per-minute", type=click.FloatRange(0, 1_000_000, min_open=True), help="Calls per minute, in all runs together."
)
def set_one(name: str, concurrency: int | None, per_minute: float | None) -> None:
    """Create or change the limit NAME."""
    import asyncio

    _connect()
    from fepflow.tasks.global_limits import set_limit

    if (concurrency is None) == (per_minute is None):
        raise click.UsageError("give --concurrency or --per-minute; for both, make two limits")
    asyncio.run(set_limit(name, concurrency, per_minute))
    _show_limits()


@limits.command("remove")
@click.argument("name")
def remove_one(name: str) -> None:
    """Delete the limit NAME."""
    import asyncio

    _connect()
    from fepflow.tasks.global_limits import remove_limit

    asyncio.run(remove_limit(name))
    click.echo(f"Removed {name}.")


def _show_limits() -> None:
    import asyncio

    _connect()
    from fepflow.cli.console import Console, number, safe
    from fepflow.tasks.global_limits import read_limits

    rows = []
    for limit in asyncio.run(read_limits()):
        rate = limit.slot_decay_per_second * 60
        figures = ("·", number(rate), "·") if rate else (str(limit.limit), "·", str(limit.active_slots))
        rows.append((safe(limit.name), *figures[:2], figures[2] if limit.active else "inactive"))
    columns = ("limit", "calls at once", "calls a minute", "in use")
    Console().table(columns, rows, empty="No limits yet: fepflow limits set NAME --concurrency 8, or --per-minute 600")


def _connect() -> None:
    from fepflow.cli.console import Console
    from fepflow.services import run_service

    run_service.connect(Console(to_stderr=True).note)


@click.command()
@click.argument("suite", required=False)
@click.option("--cron", metavar="EXPRESSION", help='Times: minute, hour, day, month, weekday, for example "0 2 * * *".')
@click.option(
    "--every",
    type=Duration(1, 366 * 86_400, "between 1s and 366d"),
    metavar="DURATION",
    help="Interval instead of --cron: 30m, 6h, 1d.",
)
@click.option("--timezone", default="UTC", show_default=True, help="Timezone of --cron, for example Europe/Berlin.")
@LIMIT
@click.option("--repeats", type=click.IntRange(1, 1000), help="Number of calls of each case.")
@click.option("--name", help="Name of the deployment (default: the suite's name).")
@click.option("--list", "as_list", is_flag=True, help="Show all schedules and their next runs.")
@click.option("--pause", "action", flag_value="pause", help="Pause the schedule of SUITE.")
@click.option("--resume", "action", flag_value="resume", help="Resume the schedule.")
@click.option(
    "--remove",
    "action",
    flag_value="remove",
    help="Remove the schedule. Its runs are kept, and a run under way continues.",
)
def schedule(suite: str | None, as_list: bool, action: str | None, name: str | None, **when: Any) -> None:
    """Run SUITE on a schedule, as a Prefect deployment that `fepflow serve` executes.

    For --pause, --resume and --remove, SUITE is the suite's path, or its name in --list.
    """
    if as_list:
        _show_schedules(_ask(_schedules().listed))
        return
    if action is not None:
        wanted = name or suite
        if wanted is None:
            raise click.UsageError(f"say which schedule to {action}: the suite's path, or its name in --list")
        schedules = _schedules()
        work = schedules.remove if action == "remove" else partial(schedules.switch, on=action == "resume")
        done = _ask(lambda client: work(client, wanted))
        words = {"pause": "Paused", "resume": "Resumed", "remove": "Removed"}[action]
        click.echo(f"{words} {done['name']}.")
        if action == "resume":
            _say_what_comes(done)
        if action == "remove":
            _say_what_becomes_of_runs(done)
        return
    if suite is None:
        raise click.UsageError("give a suite, or --list")
    if (when["cron"] is None) == (when["every"] is None):
        raise click.UsageError('say when: --cron "0 2 * * *", or --every 30m')
    from fepflow.services import prefect_api, run_service

    prefect_api.require_schedule(when["cron"], when["timezone"])
    path = Path(suite)
    validation = run_service.validate(path)
    suite_name = validation.require().name
    deployment = re.sub(r"[/%&<>]+", "-", name or suite_name)[:100]
    for problem in validation.notes:
        click.echo(f"{problem.severity}: {problem}", err=True)
    schedules = _schedules()
    planned = schedules.schedule_of(when["cron"], when["every"], when["timezone"])
    chosen = {"suite": str(path.resolve()), "limit": when["limit"], "repeats": when["repeats"]}
    parameters = {name: value for name, value in chosen.items() if value is not None}
    done = _ask(lambda client: schedules.put(client, deployment, parameters, planned, os.getcwd(), suite_name))
    word = "Scheduled" if done["created"] else "Changed"
    click.echo(f"{word} {done['name']}: {', '.join(done['when'])}, {path.resolve()}")
    _say_what_comes(done)


def _schedules() -> Any:
    """Return the module of schedules. It imports Prefect, which reads once which API it is to use."""
    _connect()
    from fepflow.deployments import schedule

    return schedule


def _ask(work: Callable[[Any], Awaitable[T]]) -> T:
    from fepflow.services.prefect_api import ask_prefect

    return ask_prefect(work)


def _show_schedules(answer: dict[str, Any]) -> None:
    from fepflow.cli.console import TO_THE_SECOND, Console, moment, safe

    rows = []
    for schedule in answer["schedules"]:
        due = "paused" if schedule["paused"] else moment(schedule["next"], TO_THE_SECOND) if schedule["next"] else "?"
        rows.append((*map(safe, (schedule["name"], schedule["suite"] or "·", ", ".join(schedule["when"]))), due))
    empty = 'Nothing is scheduled: fepflow schedule suite.yaml --cron "0 2 * * *"'
    Console().table(("deployment", "suite", "when", "next run"), rows, empty=empty)
    if any(not schedule["paused"] for schedule in answer["schedules"]) and not answer["worked"]:
        _say_nobody_works()


def _say_what_comes(done: dict[str, Any]) -> None:
    if done["paused"]:
        click.echo(f"It is still paused: fepflow schedule {done['name']} --resume")
    elif done["next"] is None:
        click.echo("warning: Prefect has planned no run: does this time ever come?", err=True)
    else:
        from fepflow.cli.console import moment

        click.echo(f"Next run: {moment(done['next'], '%a %Y-%m-%d %H:%M:%S %Z')}")
    if not done["paused"]:
        if done["worked"]:
            click.echo("A worker is alive; it executes the runs while it lives.")
        else:
            _say_nobody_works()


def _say_what_becomes_of_runs(done: dict[str, Any]) -> None:
    for name in done["under_way"]:
        click.echo(f"The run {name} is under way and continues to its end; `fepflow cancel RUN` stops it.")
    if done["under_way"]:
        click.echo("Its deployment stays until then, without a schedule, and is deleted after that.")
    if done["dropped"]:
        click.echo(f"Dropped {done['dropped']} {'run' if done['dropped'] == 1 else 'runs'} that had not begun.")


def _say_nobody_works() -> None:
    click.echo("No worker executes runs now: start `fepflow serve`, and leave it running.")


KINDS = ("fail", "worsened", "drift", "crashed", "missed")


def kinds_of(value: str) -> list[str]:
    """Return the kinds of alerts that a list names, separated by commas."""
    kinds = [kind.strip() for kind in value.split(",")]
    for kind in kinds:
        if kind not in KINDS:
            raise click.BadParameter(f"{kind!r} is not one of {', '.join(KINDS)}")
    return kinds


@click.command()
@click.option("--on", type=kinds_of, multiple=True, metavar="KIND", help=f"{', '.join(KINDS)}; repeatable.")
@click.option("--webhook", metavar="URL", help="Post JSON to this address.")
@click.option("--slack", metavar="URL", help="Post to this incoming webhook of Slack, Mattermost or Rocket.Chat.")
@click.option("--email", metavar="ADDRESS", help="Send mail through the server in FEPFLOW_SMTP_URL.")
@click.option("--block", metavar="TYPE/NAME", help="Notify through a Prefect block, for example slack-webhook/team.")
@click.option("--suite", metavar="NAME", help="Only for the suite of this name.")
@click.option("--every", is_flag=True, help="Report every fail, not only changes of the outcome.")
@click.option("--name", help="Name of the alert. An existing alert of this name is changed.")
@click.option(
    "--grace",
    type=Duration(10, bounds="at least 10s"),
    default="60s",
    show_default=True,
    help="How late a run may start before it counts as missed.",
)
@click.option("--list", "as_list", is_flag=True, help="Show all alerts.")
@click.option("--remove", metavar="NAME", help="Remove the alert of this name.")
def alert(
    on: tuple[list[str], ...],
    suite: str | None,
    name: str | None,
    every: bool,
    grace: float,
    as_list: bool,
    remove: str | None,
    **channels: str | None,
) -> None:
    """Notify you through Prefect of a fail, a worse verdict, drift, or a run that crashed or was missed."""
    if as_list:
        _show_alerts(_ask(_alerts().listed))
        return
    if remove is not None:
        alerts = _alerts()
        _ask(lambda client: alerts.remove(client, remove))
        click.echo(f"Removed the alert {remove!r}.")
        return
    addresses = {channel: address for channel, address in channels.items() if address is not None}
    if not on or not addresses:
        raise click.UsageError(
            f"say when and where: --on {'|'.join(KINDS)}, and --webhook, --slack, --email or --block"
        )
    kinds = dict.fromkeys(kind for kinds in on for kind in kinds)
    alerts = _alerts()
    for made in _ask(lambda client: alerts.put_all(client, kinds, addresses, suite, name, grace, every=every)):
        paused = "" if made["enabled"] else " It is still paused."
        click.echo(f"{'Created' if made['created'] else 'Updated'} the alert {made['name']!r}.{paused}")
    if "missed" in kinds:
        click.echo("A missed run is noticed only while the Prefect server runs.")


def _show_alerts(alerts: list[dict[str, Any]]) -> None:
    for alert in alerts:
        click.echo(f"{alert['name']}{'' if alert['enabled'] else '  (paused)'}")
    if not alerts:
        click.echo("No alerts yet: fepflow alert --on fail --webhook URL")


def _alerts() -> Any:
    """Return the module of alerts; see `_schedules`."""
    _connect()
    from fepflow.deployments import alerts

    return alerts
