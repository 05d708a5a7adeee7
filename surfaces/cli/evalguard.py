"""`fepflow evalguard`: EvalGuard's definitions, reports and thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from surfaces.cli.run import Pair


@click.group()
def evalguard() -> None:
    """Work with EvalGuard's tasks, metrics, thresholds and reports."""


@evalguard.command()
@click.argument("name", required=False)
def schema(name: str | None) -> None:
    """Print a JSON Schema of EvalGuard's documents; without NAME, their names."""
    from fepflow.documents.did_you_mean import did_you_mean
    from fepflow.evalguard.schema_files import SCHEMAS, schema_path, schema_text

    if name is None:
        for each in SCHEMAS:
            click.echo(f"{each:<10} {schema_path(each)}")
    elif name not in SCHEMAS:
        raise click.UsageError(f"there is no schema {name} ({did_you_mean(name, SCHEMAS)})")
    else:
        click.echo(schema_text(name), nl=False)


@evalguard.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--impact", "impacts", multiple=True, type=Pair("LABEL=IMPACT"),
              help="Impact of what ranges had as their label, as in Poor=severe. Repeatable.")  # fmt: skip
@click.option("--write", is_flag=True, help="Write the files, instead of printing them.")
def migrate(path: Path, impacts: Sequence[tuple[str, str]], write: bool) -> None:
    """Bring a file, or all files of a folder, to the layouts of EvalGuard v1.

    Prints what is not v1 yet as v1 has it. With --write, files whose content is in another one then end in .bak.
    """
    from fepflow.errors import printable
    from fepflow.evalguard.migration import plan_migration, write_migration
    from fepflow.suite.models import IMPACTS

    for label, impact in impacts:
        if impact not in IMPACTS:
            raise click.UsageError(f"--impact {label}={impact}: an impact is one of {', '.join(IMPACTS)}")
    migration = plan_migration(path, dict(impacts))
    if not write:
        for file in migration.files:
            click.echo(f"# {printable(str(file.path))}\n{file.text}", nl=False)
        click.echo(f"{len(migration.files)} to migrate, {len(migration.unchanged)} already v1.", err=True)
        return
    write_migration(migration)
    for file in migration.files:
        click.echo(f"{printable(str(file.path))}: written")
    for former in migration.set_aside:
        click.echo(f"{printable(str(former))}: set aside as {printable(former.name)}.bak")
    click.echo(f"{len(migration.files)} written, {len(migration.unchanged)} were v1 already.", err=True)
