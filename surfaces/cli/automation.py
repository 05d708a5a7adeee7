"""`fepflow automation`: what Prefect does by itself when a run has ended."""

from __future__ import annotations

import click


@click.group()
def automation() -> None:
    """Let Prefect act on verdicts."""


@automation.command()
@click.option("--block", metavar="TYPE/NAME", help="Notification block to send through, such as slack-webhook/team.")
@click.option("--suite", metavar="NAME", help="Only verdicts of this suite.")
@click.option("--name", help="Name of the automation.")
def create(block: str | None, suite: str | None, name: str | None) -> None:
    """Create the automation that notifies when a verdict worsens, or update the one of this name.

    The block is created in Prefect before, in its UI for instance; without --block, those that there are are listed.
    """
    from surfaces import stack

    api = stack.prefect_api()
    given = {"--block": block, "--suite": suite, "--name": name}
    made = stack.put_automation(api, *(f"{option}={value}" for option, value in given.items() if value is not None))
    click.echo(
        f"{'Created' if made['created'] else 'Updated'} the automation {made['name']!r}: {api.ui_url}/automations"
    )
