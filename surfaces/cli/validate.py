"""`fepflow validate` and `fepflow schema`: suite files, before anything is called."""

from __future__ import annotations

from pathlib import Path

import click

SUITE = click.argument("suite", type=click.Path(path_type=Path))

MOST_PROBLEMS = 1_000
"""Lines that a person may still read."""


@click.command()
@SUITE
def validate(suite: Path) -> None:
    """Find every error in a suite and in the files that it names. Makes no call."""
    from surfaces import service

    validation = service.validate(suite)
    for problem in validation.problems[:MOST_PROBLEMS]:
        click.echo(f"{problem.severity}: {problem}", err=True)
    if (left := len(validation.problems) - MOST_PROBLEMS) > 0:
        click.echo(f"... and {left:,} more", err=True)
    if validation.errors:
        count = len(validation.errors)
        raise click.exceptions.Exit(_conclude(f"{suite}: {count} error{'s' if count > 1 else ''}.", 2))
    checks = f"{len(validation.require().checks)} shared checks"
    if own := sum(len(case.checks or ()) for case in validation.cases.with_checks()):
        checks = f"{checks}, {own:,} of single test cases"
    _conclude(f"{suite} is valid: {len(validation.cases)} test cases, {checks}.", 0)


def _conclude(sentence: str, code: int) -> int:
    click.echo(sentence, err=code != 0)
    return code


@click.command()
def schema() -> None:
    """Print the JSON Schema of suite files, for editors."""
    import json

    from checks.validation.schemas import complete_suite_schema

    click.echo(json.dumps(complete_suite_schema(), indent=2))
