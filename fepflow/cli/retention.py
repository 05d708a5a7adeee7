"""`fepflow store prune` and `fepflow delete`: what goes out of the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from fepflow.cli.options import Duration
from fepflow.text import plural, printable


@click.command()
@click.option("--keep", type=Duration(), metavar="AGE", help="Keep runs that are younger than this, for example 90d.")
@click.option(
    "--keep-last", type=click.IntRange(0), default=0, metavar="N", help="Keep the newest N runs of each suite."
)
@click.option("--suite", metavar="NAME", help="Only runs of this suite.")
@click.option("--labels", "labelled", is_flag=True, help="Also delete runs with labels by people, and these labels.")
@click.option(
    "--archive",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write each run to a Parquet file in FOLDER before it is deleted.",
)
@click.option("--dry-run", is_flag=True, help="List the runs that would be deleted, and delete nothing.")
def prune(
    keep: float | None, keep_last: int, suite: str | None, labelled: bool, archive: Path | None, dry_run: bool
) -> None:
    """Delete old runs, with all their rows and with their flow runs in Prefect. Stored answers of models that are too
    old to be reused are deleted, too.

    With --keep and --keep-last, only runs are deleted that neither of them keeps. Runs under way, baselines, and runs
    with labels are kept. A SQLite file becomes smaller. The audit log has its own setting, FEPFLOW_AUDIT_RETENTION.
    """
    from fepflow.services.run_service import open_store
    from fepflow.tasks.prune import expired
    from fepflow.tasks.prune import prune as prune_store

    if keep is None and not keep_last:
        raise click.UsageError("Say what stays: --keep 90d, --keep-last 50, or both.")
    if dry_run:
        with open_store() as store:
            runs = expired(store, keep, keep_last, suite, labelled=labelled)
        for run in runs:
            click.echo(
                f"{run.id[:8]}  {run.created_at:%Y-%m-%d %H:%M}  {run.outcome or run.status}  {printable(run.name)}"
            )
        click.echo(f"{plural(len(runs), 'run')} would be deleted.")
        return
    with open_store() as store, _deleting_in_prefect() as flow_runs:
        pruned = prune_store(store, keep, keep_last, suite, flow_runs=flow_runs, labelled=labelled, archive=archive)
        click.echo(f"{pruned}.")


@contextmanager
def _deleting_in_prefect() -> Iterator[list[str]]:
    """Delete the flow runs whose ids the block has added to the list, also after an error: their runs are gone."""
    flow_runs: list[str] = []
    try:
        yield flow_runs
    finally:
        _delete_in_prefect(flow_runs)


def _delete_in_prefect(flow_run_ids: Sequence[str], *, artifacts_only: bool = False) -> None:
    from fepflow.services.prefect_api import delete_flow_runs

    if not delete_flow_runs(flow_run_ids, artifacts_only=artifacts_only):
        runs = plural(len(flow_run_ids), "flow run")
        left = f"artifacts of {runs}" if artifacts_only else f"{runs} with logs and artifacts"
        again = ": start it, and repeat the command" if artifacts_only else ""
        click.echo(f"note: Prefect does not answer, and still has {left}{again}.", err=True)


@click.command()
@click.argument("runs", nargs=-1, metavar="RUN...")
@click.option("--case", "case_id", metavar="ID", help="Erase the content of the test case with this id in all runs.")
@click.option("--labels", "labelled", is_flag=True, help="Also delete labels by people.")
@click.option("-y", "--yes", is_flag=True, help="Delete without asking.")
def delete(runs: tuple[str, ...], case_id: str | None, labelled: bool, yes: bool) -> None:
    """Delete each RUN with all its rows and its flow run in Prefect, or erase one test case in all runs. This cannot
    be undone.

    RUN is an id or its beginning. --case erases input, expected value, outputs, messages of checks and people's notes,
    and the runs' artifacts in Prefect. Whether checks passed is kept, so the verdicts stay the same.
    """
    from fepflow.services.run_service import open_store
    from fepflow.tasks.prune import delete_runs

    if bool(runs) == (case_id is not None) or case_id == "":
        raise click.UsageError("Name runs, or a test case by --case ID.")
    with open_store() as store:
        if case_id is not None:
            having = store.retention.runs_with_case(case_id)
            if not yes:
                click.confirm(
                    f"Erase what {plural(len(having), 'run')} hold of the test case {printable(case_id)}?", abort=True
                )
            count = store.retention.erase_case(case_id)
            click.echo(f"Erased the test case {printable(case_id)} in {plural(count, 'run')}.")
            # The verdict's page and the table of failed cases quote it.
            _delete_in_prefect([run.flow_run_id for run in having if run.flow_run_id], artifacts_only=True)
            return
        records = [store.runs.get(run) for run in runs]
        for run in records:
            store.retention.require_deletable(run, labelled=labelled)
        if not yes:
            for run in records:
                cases = plural(run.n_cases, "test case")
                click.echo(f"{run.id[:8]}  {run.created_at:%Y-%m-%d %H:%M}  {printable(run.name)}, {cases}")
            click.confirm("Delete?", abort=True)
        with _deleting_in_prefect() as flow_runs:
            click.echo(f"{delete_runs(store, records, flow_runs)}.")
