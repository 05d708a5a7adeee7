"""`fepflow checks`: the check types that there are, and what they take."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fepflow.checks.docgen import Argument


@click.command()
@click.argument("check_type", metavar="[TYPE]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the JSON Schema, of all types or of TYPE.")
def checks(check_type: str | None, as_json: bool) -> None:
    """List the check types with their versions, or show what TYPE takes."""
    from fepflow.checks.docgen import arguments_of, purpose_of, summary_of
    from fepflow.checks.registry import find_check, list_checks, list_versions
    from fepflow.checks.validation.schemas import check_schema

    if as_json:
        import json

        schemas = check_schema(check_type) if check_type else {name: check_schema(name) for name in list_checks()}
        click.echo(json.dumps(schemas, indent=2))
    elif check_type:
        check_class = find_check(check_type)
        click.echo(f"{check_type} ({', '.join(list_versions(check_type))})\n\n{purpose_of(check_class)}\n")
        for argument in arguments_of(check_type):
            click.echo(_line(argument))
    else:
        width = max(map(len, list_checks()))
        for name in list_checks():
            versions = ", ".join(list_versions(name))
            click.echo(f"{name:<{width}}  {versions:<7}  {summary_of(find_check(name))}".rstrip())


def _line(argument: Argument) -> str:
    default = "required" if argument.default is None else f"default {argument.default}"
    return f"  {argument.name} ({argument.kind}; {default})\n      {argument.description}".rstrip()
