"""`fepflow plan`: how many test cases it takes."""

from __future__ import annotations

from pathlib import Path

import click

from fepflow.cli.validate import SUITE

SHARE = click.FloatRange(0, 1)


@click.command()
@SUITE
@click.option("--min", "minimum", type=SHARE, metavar="X", help="The minimum to show (default: the gate's).")
@click.option("--expect", "expected", type=SHARE, required=True, metavar="X",
              help="The share of answers that you expect to pass.")  # fmt: skip
@click.option("--power", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.8, show_default=True,
              metavar="X", help="The chance of a pass that is wanted then.")  # fmt: skip
@click.option("--repeats", type=click.IntRange(1, 1_000), metavar="N", help="Of each case (default: the suite's).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def plan(suite: Path, minimum: float | None, expected: float, power: float, repeats: int | None, as_json: bool) -> None:
    """Say how many test cases SUITE takes to show a minimum, if the agent is as good as you expect. Makes no call."""
    from fepflow.services import run_service

    plans = run_service.plan(suite, minimum, expected, power, repeats)
    if as_json:
        import json

        click.echo(json.dumps([each.data() for each in plans], indent=2))
        return
    for each in plans:
        for line in each.sentences():
            click.echo(line)
