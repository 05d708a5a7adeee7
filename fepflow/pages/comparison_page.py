"""Runs beside each other as pages show them: compared with a base, and metrics over the runs of a suite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from markupsafe import Markup

from fepflow.analysis.comparison import Flip, RunComparison
from fepflow.analysis.drift import Series
from fepflow.analysis.judge_reliability import JudgeReliability, reliability_of_judges
from fepflow.analysis.regressions import JudgedComparisons
from fepflow.errors import UserError
from fepflow.pages.charts import trend_chart
from fepflow.pages.run_page import bands_of
from fepflow.pages.text import Span, differences
from fepflow.reports.comparison import HEADLINES, figures, output_text, reason_of
from fepflow.services.baselines import compare, trends_of
from fepflow.statistics.drift import ALARM
from fepflow.store.records import RunSummary
from fepflow.store.store import Store

MAX_RUNS = 10
MAX_FLIPS = 20
"""Cases that are shown each way."""


@dataclass(frozen=True, slots=True)
class FlipView:
    """A case that flipped, with both outputs, and why its check did not pass in the worse one.

    Spans mark where the outputs differ; they are None where these are too long for that.
    """

    flip: Flip
    base: str
    new: str
    base_spans: list[Span] | None
    new_spans: list[Span] | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run beside the base: rows of the table (metric, then its figures), and the cases that flipped."""

    comparison: RunComparison
    rows: list[list[str]]
    not_compared: list[str]
    reasons: list[str]
    worsened: list[FlipView]
    improved: list[FlipView]


@dataclass(frozen=True, slots=True)
class ComparisonView:
    """All of them."""

    judged: JudgedComparisons
    headline: str
    compared: list[ComparedRun]


def comparison_view(store: Store, base: str, new: Sequence[str], runs: Sequence[str]) -> ComparisonView:
    """Compare runs with a base; of `runs` the oldest is the base. Raises NotFoundError, UserError."""
    if runs:
        oldest, *others = sorted((store.runs.get(name) for name in runs), key=lambda run: run.created_at)
        base, new = oldest.id, [run.id for run in others]
    if not base or not new:
        raise UserError("A comparison needs two runs: tick them in the list of runs.")
    if len(new) > MAX_RUNS:
        raise UserError(f"At most {MAX_RUNS} runs are compared with a base on one page.")
    judged = compare(store, base, new, None, {})
    compared = [_compared(store, judged, index) for index in range(len(judged.comparisons))]
    return ComparisonView(judged, HEADLINES[judged.outcome], compared)


def _compared(store: Store, judged: JudgedComparisons, index: int) -> ComparedRun:
    each, p_values = judged.comparisons[index], judged.p_values[index]
    return ComparedRun(
        each,
        [
            [metric.id, *figures(metric, p_values.get(metric.id), "·")]
            for metric in each.metrics
            if metric.estimate is not None
        ],
        [f"{metric.id}: {metric.why_not}" for metric in each.metrics if metric.why_not],
        [rule.reason for rule in judged.rules[index] if judged.asked or rule.outcome == "fail"],
        [_flip(store, each, flip) for flip in each.worsened[:MAX_FLIPS]],
        [_flip(store, each, flip) for flip in each.improved[:MAX_FLIPS]],
    )


def _flip(store: Store, compared: RunComparison, flip: Flip) -> FlipView:
    base = output_text(store, compared.base.id, flip.base_index)
    new = output_text(store, compared.new.id, flip.new_index)
    base_spans, new_spans = differences(base, new) or (None, None)
    return FlipView(flip, base, new, base_spans, new_spans, reason_of(store, compared, flip))


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
    run = store.runs.get(series.points[-1].run_id)
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
    rows = [(summary, store.runs.get(summary.id)) for summary, _ in store.runs.newest_of_suites()]
    found = [(summary, reliability_of_judges(store, run)) for summary, run in rows]
    return [(summary, judges) for summary, judges in found if judges]
