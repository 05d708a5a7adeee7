"""`fepflow cases`: test cases that come from runs."""

from __future__ import annotations

from pathlib import Path

import click

from fepflow.text import plural


@click.group()
def cases() -> None:
    """Turn cases of runs into test cases."""


@cases.command()
@click.argument("run")
@click.option("--failed", is_flag=True, help="Only cases that did not pass.")
@click.option("--check", "check_id", metavar="ID", help="Only cases that did not pass this check.")
@click.option("--case", "case_ids", metavar="ID", multiple=True, help="Only this case. Repeatable.")
@click.option("--tag", "tags", multiple=True, help="Add a tag to the metadata of the new cases. Repeatable.")
@click.option(
    "-o",
    "--output",
    "file",
    type=click.Path(path_type=Path),
    required=True,
    help="JSON lines file to which cases are appended.",
)
def add(
    run: str, failed: bool, check_id: str | None, case_ids: tuple[str, ...], tags: tuple[str, ...], file: Path
) -> None:
    """Append test cases of RUN to a file, except those that the file already has.

    RUN is an id, its beginning, or latest. `metadata.origin` of each new case names its run and case.
    """
    from fepflow.services import run_service
    from fepflow.services.case_files import add_cases
    from fepflow.services.failed_results import Selection

    failures = failed or check_id is not None
    selections = [Selection(failures, case_id, check_id) for case_id in case_ids or (None,)]
    with run_service.open_store() as store:
        record = store.runs.get(run)
        added = add_cases(store, record, selections, file, tags)
    were = "was" if added.present == 1 else "were"
    present = f", {added.present:,} {were} there already" if added.present else ""
    click.echo(f"{file}: {plural(len(added.ids), 'test case')} added{present}.")
    if added.renamed:
        click.echo(f"Their ids are taken by other cases, so they are called {', '.join(added.renamed[:10])}.", err=True)
    if added.unexpected:
        click.echo(f"{plural(added.unexpected, 'new case')} without an expected value: add what is right.", err=True)
