"""`fepflow store`, `delete`, `cache`, `keys` and `audit`: the database, and who may do what over the network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fepflow.access.caller import SCOPES
from fepflow.cli.options import JSON, Duration, echo_json_lines, fields_of
from fepflow.text import plural, printable

if TYPE_CHECKING:
    from fepflow.access.caller import Scope
    from fepflow.store.records import CacheTotals


_TABLES = {"run": "runs", "run_case": "test cases", "output": "outputs", "check_result": "check results"}


@click.group()
def store() -> None:
    """Manage the database of results."""


@store.command()
@click.option("--to", "revision", metavar="REVISION", help="Schema to migrate to (default: the newest).")
@click.option("--yes", is_flag=True, help="Confirm going back to an older schema.")
def migrate(revision: str | None, yes: bool) -> None:
    """Migrate the store to the newest schema, or back to that of an older fepflow.

    Every command that opens the store upgrades it, too. Go back only to use an older fepflow.
    """
    from fepflow.services import run_service

    location, before, after = run_service.migrate_store(revision, back=yes)
    if before == after:
        click.echo(f"{location} has schema {after} already.")
    else:
        click.echo(f"{location}: schema {before or 'none'} -> {after}.")


@store.command()
def check() -> None:
    """Read everything in the store, and report what is wrong. Nothing is changed."""
    from fepflow.settings import settings
    from fepflow.store.maintenance import check_integrity

    report = check_integrity(settings().store_address)
    click.echo(f"{report.location} ({report.version}), schema {report.revision or 'none'}")
    if report.rows:
        click.echo("  " + ", ".join(f"{words}: {report.rows[table]:,}" for table, words in _TABLES.items()))
    for note in report.notes:
        click.echo(f"  note: {note}")
    for problem in report.problems:
        click.echo(f"error: {problem}", err=True)
    if report.problems:
        raise click.exceptions.Exit(3)
    click.echo("  everything can be read")


@store.command()
@click.argument("file", type=click.Path(path_type=Path))
def backup(file: Path) -> None:
    """Write the present state of the store to FILE. Runs may continue meanwhile, and nothing is overwritten.

    SQLite is written as a SQLite file. PostgreSQL is written by pg_dump, as an archive for pg_restore.
    """
    from fepflow.settings import settings
    from fepflow.store.maintenance import back_up

    location = back_up(settings().store_address, file)
    click.echo(f"{location}: backed up to {file} ({file.stat().st_size:,} bytes).")
    if settings().blobs is not None:
        click.echo(f"Large outputs are not in it: back up {settings().blobs}, too, after the store.")


@click.group()
def cache() -> None:
    """Manage stored answers of judges and embedding models."""


@cache.command()
@JSON
def stats(as_json: bool) -> None:
    """Show the number of stored answers, their models and their cost."""
    from fepflow.services import run_service

    with run_service.open_store() as store:
        totals = store.results.cache_totals()
    if as_json:
        from fepflow.reports.fep import cache_summary, dumps

        click.echo(dumps(cache_summary(totals)))
        return
    from fepflow.cli.console import Console, moment, safe

    kinds = {"judge": "verdicts", "embedding": "vectors"}
    rows = []
    for row in totals:
        size, answers = f"{row.characters / 1000:,.1f} kB", f"{row.answers:,}"
        times = moment(row.oldest), moment(row.newest)
        rows.append((safe(row.model), kinds[row.kind], answers, size, _cost(row), *times))
    columns = ("model", "asked for", "answers", "size", "cost", "oldest", "newest")
    Console().table(columns, rows, empty="No answers of models are stored.")


def _cost(row: CacheTotals) -> str:
    if row.cost_usd is None:
        return "not known"
    return f"${row.cost_usd:.4g}" + (f", not known of {row.unpriced:,} of {row.answers:,}" if row.unpriced else "")


@cache.command()
@click.option("--model", help="Only answers of this model, named as in suites.")
@click.option("--older-than", type=Duration(), help="Only answers older than this, for example 12h or 7d.")
def clear(model: str | None, older_than: float | None) -> None:
    """Delete stored answers, so that models are asked again, and fetched files of test cases.

    With --model, the files are kept. Results of runs are always kept.
    """
    from fepflow.datasets.remote import delete_downloads
    from fepflow.services import run_service

    count = run_service.clear_cache(model, older_than)
    files = delete_downloads(older_than or 0.0) if model is None else 0
    and_files = f" and {plural(files, 'file')} of test cases" if files else ""
    click.echo(f"Deleted {count:,} {'answer' if count == 1 else 'answers'}{and_files}.")


@click.group()
def keys() -> None:
    """Create and revoke API keys for programs that call over the network."""


@keys.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(SCOPES),
    multiple=True,
    default=("read", "evaluate"),
    show_default=True,
    help="Scope of the key. Repeatable.",
)
@click.option("--expires", type=Duration(), help="Lifetime of the key, for example 12h or 30d (default: unlimited).")
def create(name: str, scopes: tuple[Scope, ...], expires: float | None) -> None:
    """Create a key and print it once; only its hash is stored.

    NAME describes the key's purpose. Stdout has only the key: KEY=$(fepflow keys create ci).
    """
    from fepflow.access.access import record_by_operator
    from fepflow.access.credentials import create_key
    from fepflow.services import run_service
    from fepflow.settings import settings

    with run_service.open_store() as store:
        key, text = create_key(store, name, scopes, expires)
        record_by_operator(store, settings().audit_folder, "keys create", key)
    click.echo(text)
    ends = f"expires at {key.expires_at:%Y-%m-%d %H:%M:%S} UTC" if key.expires_at else "does not expire"
    click.echo(
        f"Key {key.id} ({', '.join(key.scopes)}) {ends}. Keep it now, it is not shown again; it is sent as X-API-Key. "
        "From now on, callers need a key.",
        err=True,
    )


@keys.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one key a line.")
def list_keys(as_json: bool) -> None:
    """List all keys, including expired and revoked ones. Their secrets are not stored."""
    from fepflow.services import run_service

    with run_service.open_store() as store:
        api_keys, now = store.access.all_keys(), store.now()
    if as_json:
        times = ("created_at", "expires_at", "revoked_at")
        echo_json_lines(
            {**fields_of(key, "id", "name", "scopes"), "state": key.state_at(now), **fields_of(key, *times)}
            for key in api_keys
        )
        return
    from fepflow.cli.console import Console, moment, safe

    rows = []
    for key in api_keys:
        created, expires = (moment(time) if time else "never" for time in (key.created_at, key.expires_at))
        rows.append((*map(safe, (key.id, key.name, ", ".join(key.scopes))), key.state_at(now), created, expires))
    columns = ("key", "name", "scopes", "state", "created", "expires")
    Console().table(columns, rows, empty="No keys yet: fepflow keys create NAME")


@keys.command()
@click.argument("key_id", metavar="ID")
def revoke(key_id: str) -> None:
    """Revoke the key ID (see `keys list`), at once and for good."""
    from fepflow.access.access import record_by_operator
    from fepflow.access.credentials import revoke_key
    from fepflow.services import run_service
    from fepflow.settings import settings

    with run_service.open_store() as store:
        key = revoke_key(store, key_id)
        record_by_operator(store, settings().audit_folder, "keys revoke", key)
    click.echo(f"Key {key.id} ({printable(key.name)}) is revoked.")


@click.command()
@click.option("--since", type=Duration(), help="Maximum age of entries, for example 1h or 7d.")
@click.option("--caller", metavar="NAME", help="Only this caller: key:ID or jwt:SUBJECT.")
@click.option("--outcome", metavar="STATUS", help="Only entries with this status, for example 401.")
@click.option(
    "-n", "--limit", type=click.IntRange(1, 1_000_000), default=50, show_default=True, help="Maximum number of entries."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one entry a line.")
def audit(since: float | None, caller: str | None, outcome: str | None, limit: int, as_json: bool) -> None:
    """Show the audit log of the network interfaces, newest entries first."""
    from fepflow.protocol.model import utc_now
    from fepflow.services import run_service

    try:
        start = None if since is None else utc_now() - timedelta(seconds=since)
    except OverflowError:
        start = None  # longer ago than anything
    with run_service.open_store() as store:
        entries = store.access.audit_entries(limit, since=start, caller=caller, outcome=outcome)
    if as_json:
        echo_json_lines(map(asdict, entries))
        return
    from fepflow.cli.console import TO_THE_SECOND, Console, moment, safe

    rows = []
    for entry in entries:
        texts = (entry.caller, entry.source, entry.action, entry.resource, entry.outcome)
        rows.append((moment(entry.at, TO_THE_SECOND), *(safe(text or "·") for text in texts)))
    columns = ("at", "caller", "from", "action", "resource", "outcome")
    Console().table(columns, rows, empty="No requests are recorded.")


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
