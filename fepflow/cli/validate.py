"""`fepflow validate` and `fepflow schema`: suite files, before anything is called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fepflow.errors import Problem

SUITE = click.argument("suite", type=click.Path(path_type=Path))

MOST_PROBLEMS = 1_000
"""Lines that a person may still read."""


@click.command()
@SUITE
def validate(suite: Path) -> None:
    """Find every error in a suite and in the files that it names. Makes no call."""
    from fepflow.evalguard.formatting import plural
    from fepflow.services import run_service

    validation = run_service.validate(suite)
    print_problems(validation.problems)
    if validation.errors:
        count = len(validation.errors)
        click.echo(f"{suite}: {plural(count, 'error')}.", err=True)
        raise click.exceptions.Exit(2)
    checks = plural(len(validation.require().checks), "shared check")
    if own := sum(len(case.checks or ()) for case in validation.cases.with_checks()):
        checks = f"{checks}, {own:,} of single test cases"
    click.echo(f"{suite} is valid: {plural(len(validation.cases), 'test case')}, {checks}.")
    from fepflow.extras import is_installed

    if not is_installed("run"):
        click.echo('To run it here: pip install "fepflow[run]"', err=True)


def print_problems(problems: Sequence[Problem]) -> None:
    """The first of them on stderr, and how many more there are."""
    for problem in problems[:MOST_PROBLEMS]:
        click.echo(f"{problem.severity}: {problem}", err=True)
    if (left := len(problems) - MOST_PROBLEMS) > 0:
        click.echo(f"... and {left:,} more", err=True)


@click.command()
def schema() -> None:
    """Print the JSON Schema of suite files, for editors."""
    import json

    from fepflow.checks.validation.schemas import complete_suite_schema

    click.echo(json.dumps(complete_suite_schema(), indent=2))
