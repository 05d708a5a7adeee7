"""Suites as pages show them: the overview of all, one with its cases over its runs, and its metrics over its runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from markupsafe import Markup

from fepflow.analysis.drift import MOST_RUNS, Point, Series, series_of
from fepflow.errors import NotFoundError, UserError
from fepflow.page_links import run_path
from fepflow.pages.charts import spark_line, trend_chart
from fepflow.pages.rendering import WORDS, State, day, moment, number, state_of
from fepflow.pages.run_page import bands_of
from fepflow.protocol.model import utc_now
from fepflow.services.comparisons import trends_of
from fepflow.services.prefect_api import ScheduledRuns
from fepflow.store.records import Outcome, RunRecord
from fepflow.store.result_rows import shared_check_ids
from fepflow.store.store import Store

RECENT = 12
"""Runs whose outcomes a card shows."""
SPARK_POINTS = 40
MOST_CASES, MOST_RUNS_OF_MAP = 100, 50
MOST_FAILING = 2_000
"""Cases of a run that did not pass and are looked at to choose those that are shown."""
_RANK: dict[Outcome | None, int] = {"pass": 0, "inconclusive": 1, "fail": 2}


@dataclass(frozen=True, slots=True)
class History:
    """A summary of a suite's runs up to one with a verdict: their outcomes, oldest first, a metric, and alarms."""

    outcomes: list[tuple[str, datetime, Outcome]]
    metric: dict[str, Any] | None
    line: Markup | None
    alerts: list[str]


@dataclass(frozen=True, slots=True)
class Card:
    """A suite in the overview. `alerts` are sentences about what is wrong with it now."""

    run: RunRecord
    runs: int
    history: History | None
    next_run: datetime | None
    alerts: list[str | Markup]


class Overview:
    """The cards of all suites. What is known of runs that have ended is kept: it does not change."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._histories: dict[str, History] = {}

    def cards(self, scheduled: ScheduledRuns) -> list[Card]:
        """Return a card for each suite, those with alerts first, then by their newest run."""
        cards = [self._card(run, runs, scheduled) for run, runs in self._store.runs.newest_of_suites()]
        return sorted(cards, key=lambda card: not card.alerts)

    def _card(self, run: RunRecord, runs: int, scheduled: ScheduledRuns) -> Card:
        judged = run if run.outcome is not None else self._newest_judged(run.name)
        history = self._history(judged.id) if judged is not None else None
        alerts: list[str | Markup] = list(history.alerts) if history else []
        if run.status in ("failed", "interrupted"):
            alerts.insert(0, f"The last run could not be evaluated: {run.error or run.status}")
        due = scheduled.next_of(run)
        if due is not None and due < utc_now():
            alerts.append(Markup("A run was due at {} and has not begun: is a worker alive?").format(moment(due)))
            due = None
        return Card(run, runs, history, due, alerts)

    def _newest_judged(self, suite: str) -> RunRecord | None:
        return next((run for run in self._store.runs.newest(RECENT, suite) if run.outcome is not None), None)

    def _history(self, run_id: str) -> History:
        if run_id not in self._histories:
            if len(self._histories) >= 1_000:
                self._histories.clear()
            self._histories[run_id] = history_of(self._store, self._store.runs.get(run_id))
        return self._histories[run_id]


def history_of(store: Store, run: RunRecord) -> History:
    """Return what the runs of a suite up to this one, which has a verdict, say."""
    before = [other for other in store.runs.newest(RECENT * 2, run.name) if other.created_at <= run.created_at]
    judged = [other for other in before if other.outcome is not None and not other.filtered][:RECENT]
    outcomes = [(other.id, other.created_at, other.outcome) for other in reversed(judged) if other.outcome is not None]
    alerts: list[str] = []
    if len(outcomes) > 1 and _RANK[outcomes[-1][2]] > _RANK[outcomes[-2][2]]:
        alerts.append(f"Worse than the run before: {WORDS[outcomes[-2][2]]}, now {WORDS[outcomes[-1][2]]}.")
    metrics = list(run.metrics or ())
    metric = next((candidate for candidate in metrics if candidate.get("outcome")), metrics[0] if metrics else None)
    series = series_of(run, store.runs.alike(run, MOST_RUNS))
    alerts += [sentence for one in series if len(one.points) > 1 and (sentence := _drift(one))]
    shown = next((one for one in series if metric is not None and one.metric == metric["id"]), None)
    return History(outcomes, metric, _line(shown), alerts)


def _drift(series: Series) -> str:
    """Return a sentence if a metric has drifted, now or in one of the last runs; otherwise an empty text."""
    alarm = series.last_alarm
    if series.has_drifted or alarm is None or alarm not in series.points[-RECENT:]:
        return series.sentence if series.has_drifted else ""
    return f"{series.metric} drifted: the run of {day(alarm.created_at)} raised the alarm, and no later run has."


def _line(series: Series | None) -> Markup | None:
    if series is None or len(series.points) < 2:
        return None
    return spark_line([point.value for point in series.points[-SPARK_POINTS:]])


@dataclass(frozen=True, slots=True)
class CaseHistory:
    """A case over the runs: its state in each, None where the run does not have it, and since when it is as it is.

    `flips` counts how often it changed between passed and not. `since` is the run that began the latest stretch.
    """

    case_id: str
    states: list[State | None]
    flips: int
    since: RunRecord
    is_whole: bool

    @property
    def now(self) -> State:
        """Its state in the newest run that has it."""
        return next(state for state in reversed(self.states) if state is not None)


@dataclass(frozen=True, slots=True)
class SuiteView:
    """A suite: its runs with a verdict, oldest first, and the cases that did not pass in any of them, flipping first.

    `others` cases did not pass in some run, too, and are not shown. `is_cut` says that a run has more such cases than
    were looked at.
    """

    name: str
    runs: list[RunRecord]
    cases: list[CaseHistory]
    others: int
    is_cut: bool
    newest: RunRecord


def suite_view(store: Store, suite: str) -> SuiteView:
    """Return a suite with its heat map. Raises NotFoundError."""
    newest = next((run for run, _ in store.runs.newest_of_suites() if run.name == suite), None)
    if newest is None:
        raise NotFoundError(f"There is no run of a suite {suite!r}.")
    runs = [run for run in store.runs.newest(2 * MOST_RUNS_OF_MAP, suite) if run.outcome is not None]
    runs = [run for run in runs if not run.filtered][:MOST_RUNS_OF_MAP][::-1]
    failing = {run.id: store.results.failing_case_ids(run.id, MOST_FAILING) for run in runs}
    counts = Counter(case_id for ids in failing.values() for case_id in ids)
    last = set(failing[runs[-1].id]) if runs else set()
    ranked = sorted(counts, key=lambda case_id: (counts[case_id] == len(runs), case_id not in last, -counts[case_id]))
    chosen = ranked[:MOST_CASES]
    states = _states(store, runs, chosen)
    cases = [_history(case_id, states[case_id], runs) for case_id in chosen]
    cases.sort(key=lambda case: (case.flips == 0, case.now == "passed", -case.flips))
    is_cut = any(len(ids) >= MOST_FAILING for ids in failing.values())
    return SuiteView(suite, runs, cases, len(counts) - len(chosen), is_cut, newest)


def _states(
    store: Store, runs: Sequence[RunRecord], stored_ids: Sequence[str]
) -> dict[str, tuple[str, list[State | None]]]:
    """Return the whole id of each case, and its state in each run; None where the run does not have it."""
    found: dict[str, tuple[str, list[State | None]]] = {}
    for place, run in enumerate(runs):
        indices = store.results.indices_of_cases(run.id, stored_ids)
        ids = {index: stored_id for stored_id, index in indices.items()}
        shared = shared_check_ids(run.suite)
        for row in store.results.grid_rows(run.id, list(ids)):
            states: list[State | None] = [None] * len(runs)
            _, states = found.setdefault(ids[row.case_index], (row.case.id, states))
            states[place] = state_of(row, run.repeats, shared)
    return found


def _history(stored_id: str, known: tuple[str, list[State | None]], runs: Sequence[RunRecord]) -> CaseHistory:
    case_id, states = known
    present = [(run, state) for run, state in zip(runs, states, strict=True) if state is not None]
    changes = [
        place
        for place in range(1, len(present))
        if (present[place][1] == "passed") != (present[place - 1][1] == "passed")
    ]
    begun = changes[-1] if changes else 0
    return CaseHistory(case_id, states, len(changes), present[begun][0], not changes)


MAX_POINTS = 60
"""Runs in a chart, the newest."""


def trends_view(store: Store, suite: str) -> tuple[list[tuple[Series, Markup | None]], int]:
    """Return the metrics of a suite over the runs like its newest one with a verdict, each with its chart.

    Also returns how many runs measured something else, or were started another way. None has a trend before the first
    run with a verdict and a value. Raises NotFoundError for an unknown suite.
    """
    if not suite:
        raise UserError("Trends are those of a suite: choose one on the page of suites.")
    try:
        all_series, others = trends_of(store, suite, None)
    except NotFoundError:
        if not store.runs.newest(1, suite):
            raise
        return [], 0
    return [(series, _trend_chart(store, series)) for series in all_series], others


def _trend_chart(store: Store, series: Series) -> Markup | None:
    run = store.runs.get(series.points[-1].run_id)
    metric = next((metric for metric in run.metrics or () if metric["id"] == series.metric), {"id": series.metric})
    return trend_chart([_point(point) for point in series.points[-MAX_POINTS:]], bands_of(run, metric))


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
