"""`fepflow keys`: API keys of programs that call over the network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fepflow.access.caller import SCOPES
from fepflow.cli.duration import Duration

if TYPE_CHECKING:
    from datetime import datetime

    from fepflow.access.caller import Scope
    from fepflow.store.access_records import ApiKey


@click.group()
def keys() -> None:
    """Make and revoke API keys, with which programs call over the network."""


@keys.command()
@click.argument("name")
@click.option("--scope", "scopes", type=click.Choice(SCOPES), multiple=True, default=("read", "evaluate"),
              show_default=True, help="What the key may do; repeatable.")  # fmt: skip
@click.option("--expires", type=Duration(), help="After how long it ends, such as 12h or 30d (default: never).")
def create(name: str, scopes: tuple[Scope, ...], expires: float | None) -> None:
    """Make a key and print it, once: only its hash is stored.

    NAME says what it is for. Stdout is the key and nothing else: KEY=$(fepflow keys create ci).
    """
    from fepflow.access.keys import create_key, record_by_operator
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
    """List all keys, also those that are expired or revoked; of their secrets nothing is known."""
    from fepflow.cli.console import Console
    from fepflow.services import run_service

    with run_service.open_store() as store:
        found, now = store.api_keys(), store.now()
    if not as_json:
        Console().print([_table(found, now)] if found else ["No keys yet: fepflow keys create NAME"])
        return
    from fepflow.reports.fep import dumps

    for key in found:
        click.echo(dumps(_summary(key, now)))


@keys.command()
@click.argument("key_id", metavar="ID")
def revoke(key_id: str) -> None:
    """End the key ID (as `keys list` shows it) for good, at once."""
    from fepflow.access.keys import record_by_operator, revoke_key
    from fepflow.services import run_service
    from fepflow.settings import settings
    from fepflow.text import printable

    with run_service.open_store() as store:
        key = revoke_key(store, key_id)
        record_by_operator(store, settings().audit_folder, "keys revoke", key)
    click.echo(f"Key {key.id} ({printable(key.name)}) is revoked.")


def _summary(key: ApiKey, now: datetime) -> dict[str, Any]:
    times = {"created_at": key.created_at, "expires_at": key.expires_at, "revoked_at": key.revoked_at}
    return {
        "id": key.id,
        "name": key.name,
        "scopes": key.scopes,
        "state": key.state_at(now),
        **{name: moment.isoformat() if moment else None for name, moment in times.items()},
    }


def _table(found: list[ApiKey], now: datetime) -> Any:
    from fepflow.cli.text import safe, table

    made = table("key", "name", "scopes", "state", "created", "expires")
    for key in found:
        created, expires = (
            moment.astimezone().strftime("%Y-%m-%d %H:%M") if moment else "never"
            for moment in (key.created_at, key.expires_at)
        )
        made.add_row(safe(key.id), safe(key.name), safe(", ".join(key.scopes)), key.state_at(now), created, expires)
    return made
