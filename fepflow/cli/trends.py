"""`fepflow trends`: how the metrics of a suite go over its runs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.table import Table

    from fepflow.analysis.drift import Series

BLOCKS = "▁▂▃▄▅▆▇█"
SHOWN_RUNS = 40
"""Runs that a sparkline and a table show, the newest."""

EVIDENCE = "evidence (alarm at 365)"


@click.command()
@click.argument("suite")
@click.argument("metric", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one metric a line.")
def trends(suite: str, metric: str | None, as_json: bool) -> None:
    """Show how the metrics of SUITE (a name, or its file) go over the runs, and whether one drifts.

    Only runs are shown that measured the same as the newest one, on the same cases, and were begun by the same cause.
    With METRIC, its runs one by one.
    """
    from fepflow.cli.console import Console
    from fepflow.services import run_service
    from fepflow.services.baselines import trends_of

    with run_service.open_store() as store:
        name = suite
        if Path(suite).is_file():
            from fepflow.suite.reader import name_of

            name = name_of(suite)
        found, others = trends_of(store, name, metric)
    if as_json:
        from fepflow.reports.fep import dumps

        for series in found:
            click.echo(dumps(_as_json(series)))
    else:
        Console().print(trend_view(name, found, others, one_by_one=metric is not None))


def _as_json(series: Series) -> dict[str, Any]:
    points = [{**asdict(point), "created_at": point.created_at.isoformat()} for point in series.points]
    trend = asdict(series.trend) if series.trend else None
    return {
        "metric": series.metric,
        "rate": series.rate,
        "agreed_by": series.agreed_by,
        "has_drifted": series.has_drifted,
        "trend": trend,
        "runs": points,
    }


def trend_view(
    suite: str, found: Sequence[Series], others: int = 0, *, one_by_one: bool = False
) -> Iterator[Table | str]:
    """Metrics over runs, a line for each, or one for each run of the first; `others` is how many runs are left out."""
    from fepflow.cli.text import safe
    from fepflow.page_links import trends_page

    runs = max(len(series.points) for series in found)
    left = f"; {others} others measured something else, or were begun by another cause" if others else ""
    yield f"[bold]{safe(suite)}[/]  {runs} {'run' if runs == 1 else 'runs'}{left}"
    yield _run_table(found[0]) if one_by_one else _table(found)
    for series in found:
        if series.has_drifted:
            yield f"[red]DRIFT[/]  {safe(series.sentence)}"
        elif series.evidence:
            yield safe(f"{series.metric}: {series.evidence}")
    if page := trends_page(suite):
        yield safe(page)


def _table(found: Sequence[Series]) -> Table:
    from fepflow.cli.text import number, safe, table

    made = table("metric", "first", "last", "runs", "trend", "agreed rate", EVIDENCE)
    for series in found:
        values = [point.value for point in series.points]
        made.add_row(
            safe(series.metric),
            number(values[0]),
            number(values[-1]),
            sparkline(values),
            _trend(series),
            "·" if series.rate is None else f"{series.rate:.3g}",
            _evidence(series.points[-1].log_evidence),
        )
    return made


def _run_table(series: Series) -> Table:
    from fepflow.cli.text import SHORT_ID, coloured, interval, number, table

    made = table("run", "started", series.metric, "interval", "verdict", EVIDENCE)
    for point in series.points[-SHOWN_RUNS:]:
        made.add_row(
            point.run_id[:SHORT_ID],
            point.created_at.astimezone().strftime("%Y-%m-%d %H:%M"),
            number(point.value),
            interval(point.low, point.high),
            coloured(point.outcome),
            _evidence(point.log_evidence),
        )
    return made


def _trend(series: Series) -> str:
    from fepflow.analysis.drift import SHOWN_P

    if series.trend is None:
        return "·"
    way = "none shown" if series.trend.p > SHOWN_P else "falling" if series.trend.s < 0 else "rising"
    return f"{way} (p {series.trend.p:.2g})"


def _evidence(log: float | None) -> str:
    return "·" if log is None else f"{math.exp(min(max(log, 0.0), 600.0)):.3g}"


def sparkline(values: Sequence[float]) -> str:
    """The newest values as a line of blocks, from the least to the largest."""
    shown = values[-SHOWN_RUNS:]
    low, high = min(shown), max(shown)
    width = high / 2 - low / 2
    return "".join(BLOCKS[round((value / 2 - low / 2) / width * 7) if width else 3] for value in shown)
