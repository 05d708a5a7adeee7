"""`fepflow alert`: who hears of it when a run fails, worsens, drifts, crashes or does not come."""

from __future__ import annotations

import json
from typing import Any

import click

KINDS = ("fail", "worsened", "drift", "crashed", "missed")
SHORTEST_GRACE = 10.0


class Kinds(click.ParamType[list[str]]):
    """Kinds of alerts, separated by commas."""

    name = "kinds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """Each one a kind that there is."""
        kinds = value if isinstance(value, list) else [kind.strip() for kind in str(value).split(",")]
        for kind in kinds:
            if kind not in KINDS:
                self.fail(f"{kind!r} is none of {', '.join(KINDS)}", param, ctx)
        return kinds


@click.command()
@click.option("--on", type=Kinds(), multiple=True, metavar="KIND", help=f"{', '.join(KINDS)}; repeatable.")
@click.option("--webhook", metavar="URL", help="Post JSON to this address.")
@click.option("--slack", metavar="URL", help="Post to this incoming webhook of Slack, Mattermost or Rocket.Chat.")
@click.option("--email", metavar="ADDRESS", help="Send a mail, through the server that FEPFLOW_SMTP_URL names.")
@click.option("--block", metavar="TYPE/NAME", help="Notify through a block of Prefect's, such as slack-webhook/team.")
@click.option("--suite", metavar="NAME", help="Only of the suite of this name.")
@click.option("--name", help="Name of the alert; one of this name is changed.")
@click.option("--grace", default="60s", show_default=True, help="How late a run may begin before it was missed.")
@click.option("--list", "as_list", is_flag=True, help="Show all alerts.")
@click.option("--remove", metavar="NAME", help="Remove the alert of this name.")
def alert(on: tuple[list[str], ...], suite: str | None, name: str | None, grace: str, as_list: bool,
          remove: str | None, **channels: str | None) -> None:  # fmt: skip
    """Let Prefect send notifications: of a fail, a worse verdict, drift, a run that crashed or did not come."""
    if as_list:
        _show(_run_module("list")["alerts"])
        return
    if remove is not None:
        click.echo(f"Removed the alert {_run_module('remove', remove)['name']!r}.")
        return
    given = {channel: address for channel, address in channels.items() if address is not None}
    if not on or not given:
        raise click.UsageError(
            f"say when and where: --on {'|'.join(KINDS)}, and --webhook, --slack, --email or --block"
        )
    kinds = dict.fromkeys(kind for kinds in on for kind in kinds)
    arguments = [f"--grace={_seconds(grace)}", *(f"--on={kind}" for kind in kinds)]
    arguments += [f"--{option}={value}" for option, value in {"suite": suite, "name": name}.items() if value]
    for made in _run_module("put", *arguments, FEPFLOW_ALERT_ADDRESSES=json.dumps(given))["alerts"]:
        paused = "" if made["enabled"] else " It is paused, as somebody has left it."
        click.echo(f"{'Created' if made['created'] else 'Updated'} the alert {made['name']!r}.{paused}")
    if "missed" in kinds:
        click.echo("A run that Prefect itself does not plan is noticed while `fepflow serve` runs.")


def _seconds(grace: str) -> float:
    from fepflow.text import seconds

    try:
        found = float(seconds(grace))
    except ValueError as error:
        raise click.BadParameter(f"{grace}: {error}", param_hint="--grace") from None
    if found < SHORTEST_GRACE:
        raise click.BadParameter(f"{grace}: at least {SHORTEST_GRACE:g}s", param_hint="--grace")
    return found


def _show(alerts: list[dict[str, Any]]) -> None:
    for one in alerts:
        click.echo(f"{one['name']}{'' if one['enabled'] else '  (paused)'}")
    if not alerts:
        click.echo("No alerts yet: fepflow alert --on fail --webhook URL")


def _run_module(*arguments: str, **environment: str) -> Any:
    from fepflow.services import prefect_api

    return prefect_api.run_prefect_module("fepflow.deployments.alerts", *arguments, **environment)
