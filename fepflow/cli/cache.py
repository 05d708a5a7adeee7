"""`fepflow cache`: the answers of models that are kept, so that runs do not ask again."""

from __future__ import annotations

import click

from fepflow.cli.duration import Duration


@click.group()
def cache() -> None:
    """Look after the answers of judges and embedding models that are kept in the store."""


@cache.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def stats(as_json: bool) -> None:
    """Show how many answers are kept, of which models, and what they cost."""
    from fepflow.cli.console import Console
    from fepflow.reports.fep import cache_summary, dumps
    from fepflow.services import run_service

    with run_service.open_store() as store:
        totals = store.cache_totals()
    if as_json:
        click.echo(dumps(cache_summary(totals)))
    else:
        Console().answers(totals)


@cache.command()
@click.option("--model", help="Only answers of this model, named as it is in suites.")
@click.option("--older-than", type=Duration(), help="Only answers that are older, such as 12h or 7d.")
def clear(model: str | None, older_than: float | None) -> None:
    """Delete kept answers: what they answered is asked again. Results of runs stay."""
    from fepflow.services import run_service

    count = run_service.clear_cache(model, older_than)
    click.echo(f"Deleted {count:,} answers." if count != 1 else "Deleted 1 answer.")
