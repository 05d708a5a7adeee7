"""Metrics over the runs of a suite, and the judges of suites, as pages show them."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from markupsafe import Markup

from fepflow.analysis.drift import Series
from fepflow.analysis.judge_reliability import JudgeReliability, reliability_of_judges
from fepflow.errors import UserError
from fepflow.pages.charts import trend_chart
from fepflow.pages.run_page import bands_of
from fepflow.services.baselines import trends_of
from fepflow.statistics.drift import ALARM
from fepflow.store.run_search import RunSummary
from fepflow.store.store import Store

MAX_POINTS = 60
"""Runs in a chart, the newest."""


@dataclass(frozen=True, slots=True)
class SeriesView:
    """A metric over runs, with its chart."""

    series: Series
    chart: Markup | None
    has_alarm: bool


@dataclass(frozen=True, slots=True)
class TrendsView:
    """A suite's metrics. `others` are runs that measured something else, or were begun by another cause."""

    suite: str
    series: list[SeriesView]
    others: int


def trends_view(store: Store, suite: str) -> TrendsView:
    """The metrics of a suite over the runs like its newest one with a verdict. Raises NotFoundError."""
    if not suite:
        raise UserError("Trends are those of a suite: choose one on the page of suites.")
    found, others = trends_of(store, suite, None)
    return TrendsView(suite, [_series(store, series) for series in found], others)


def _series(store: Store, series: Series) -> SeriesView:
    run = store.run(series.points[-1].run_id)
    metric = next((metric for metric in run.metrics or () if metric["id"] == series.metric), {"id": series.metric})
    points = [
        {
            **{name: value for name, value in asdict(point).items() if name in ("value", "low", "high", "outcome")},
            "alarm": point.log_evidence is not None and point.log_evidence >= ALARM,
        }
        for point in series.points[-MAX_POINTS:]
    ]
    return SeriesView(series, trend_chart(points, bands_of(run, metric)), any(point["alarm"] for point in points))


def judges_view(store: Store) -> list[tuple[RunSummary, list[JudgeReliability]]]:
    """The newest run of each suite that has judges, with them."""
    rows = [(summary, store.run(summary.id)) for summary, _ in store.newest_runs_of_suites()]
    found = [(summary, reliability_of_judges(store, run)) for summary, run in rows]
    return [(summary, judges) for summary, judges in found if judges]
