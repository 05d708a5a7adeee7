"""Metrics over the runs of a suite, and the judges of suites, as pages show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from fepflow.analysis.drift import Point, Series
from fepflow.errors import UserError
from fepflow.page_links import run_path
from fepflow.pages.charts import trend_chart
from fepflow.pages.rendering import WORDS, day, number
from fepflow.pages.run_page import bands_of
from fepflow.services.baselines import trends_of
from fepflow.store.store import Store

MAX_POINTS = 60
"""Runs in a chart, the newest."""


@dataclass(frozen=True, slots=True)
class SeriesView:
    """A metric over runs, with its chart."""

    series: Series
    chart: Markup | None


@dataclass(frozen=True, slots=True)
class TrendsView:
    """A suite's metrics. `others` are runs that measured something else, or were started another way."""

    suite: str
    series: list[SeriesView]
    others: int


def trends_view(store: Store, suite: str) -> TrendsView:
    """Return the metrics of a suite over the runs like its newest one with a verdict. Raises NotFoundError."""
    if not suite:
        raise UserError("Trends are those of a suite: choose one on the page of suites.")
    found, others = trends_of(store, suite, None)
    return TrendsView(suite, [_series(store, series) for series in found], others)


def _series(store: Store, series: Series) -> SeriesView:
    run = store.runs.get(series.points[-1].run_id)
    metric = next((metric for metric in run.metrics or () if metric["id"] == series.metric), {"id": series.metric})
    points = [_point(point) for point in series.points[-MAX_POINTS:]]
    return SeriesView(series, trend_chart(points, bands_of(run, metric)))


def _point(point: Point) -> dict[str, Any]:
    """Return a point of a trend with what the mouse finds there."""
    known = point.low is not None and point.high is not None
    interval = f" ({number(point.low)} to {number(point.high)})" if known else ""
    lines = (
        f"{point.created_at:%Y-%m-%d %H:%M} UTC · run {point.run_id[:8]}",
        f"{number(point.value)}{interval}{'' if point.n is None else f', n = {point.n}'}",
        WORDS.get(point.outcome, point.outcome),
    )
    return {
        "value": point.value,
        "low": point.low,
        "high": point.high,
        "outcome": point.outcome,
        "alarm": point.has_alarm,
        "when": day(point.created_at),
        "hint": "\n".join(lines),
        "href": run_path(point.run_id),
    }
