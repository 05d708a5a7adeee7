"""`fepflow audit`: who did what over the network."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from fepflow.cli.duration import Duration

if TYPE_CHECKING:
    from fepflow.store.access_records import AuditEntry


@click.command()
@click.option("--since", type=Duration(), help="Only what is not older, such as 1h or 7d.")
@click.option("--caller", metavar="NAME", help="Only what this caller did: key:ID or jwt:SUBJECT.")
@click.option("--outcome", metavar="STATUS", help="Only what ended so, such as 401.")
@click.option(
    "-n", "--limit", type=click.IntRange(1, 1_000_000), default=50, show_default=True, help="How many entries."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one entry a line.")
def audit(since: float | None, caller: str | None, outcome: str | None, limit: int, as_json: bool) -> None:
    """Show the audit log of the network's interfaces, newest first."""
    from fepflow.cli.console import Console
    from fepflow.protocol.model import utc_now
    from fepflow.services import run_service

    try:
        start = None if since is None else utc_now() - timedelta(seconds=since)
    except OverflowError:
        start = None  # longer ago than anything
    with run_service.open_store() as store:
        found = store.audit_entries(limit, since=start, caller=caller, outcome=outcome)
    if not as_json:
        Console().print([_table(found)] if found else ["No requests are recorded."])
        return
    from dataclasses import asdict

    from fepflow.reports.fep import dumps

    for entry in found:
        click.echo(dumps({**asdict(entry), "at": entry.at.isoformat()}))


def _table(found: list[AuditEntry]) -> Any:
    from fepflow.cli.text import safe, table

    made = table("at", "caller", "from", "action", "resource", "outcome")
    for entry in found:
        texts = (entry.caller, entry.source, entry.action, entry.resource, entry.outcome)
        made.add_row(f"{entry.at.astimezone():%Y-%m-%d %H:%M:%S}", *(safe(text or "·") for text in texts))
    return made
