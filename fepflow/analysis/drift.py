"""The metrics of a suite over its comparable runs, their trend, and the alarm for a metric that drifts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from fepflow.analysis.accumulation import suite_of
from fepflow.statistics.drift import (
    ALARM,
    MOST_RATE,
    REFERENCE_RUNS,
    RUNS,
    RunShare,
    Trend,
    effective_counts,
    fallen_rate,
    mann_kendall,
    watch,
)
from fepflow.store.records import RunFigures, RunRecord
from fepflow.suite.models import Gate, Suite
from fepflow.text import four_digits

MOST_RUNS = 1_000
"""Runs that are looked at, the newest."""

SHOWN_P = 0.05
"""A trend with a larger p is not shown as one."""


@dataclass(frozen=True, slots=True)
class Point:
    """A metric in one run, over `n` results. `log_evidence` is the CUSUM after it, or None."""

    run_id: str
    created_at: datetime
    outcome: str
    value: float
    low: float | None
    high: float | None
    log_evidence: float | None = None
    n: int | None = None

    @property
    def has_alarm(self) -> bool:
        """True if this run has raised the alarm."""
        return self.log_evidence is not None and self.log_evidence >= ALARM


@dataclass(frozen=True, slots=True)
class Series:
    """A metric over the runs, oldest first. `rate` is the agreed rate, by the first `runs` or by the `gate`.

    `rate` is None for a metric that is not a share, or while there are too few runs. If `less_is_better`, it is the
    rate of the rest.
    """

    metric: str
    points: list[Point]
    trend: Trend | None
    rate: float | None = None
    agreed_by: Literal["gate", "runs"] | None = None
    less_is_better: bool = False

    @property
    def last_alarm(self) -> Point | None:
        """Return the newest run that raised the alarm. After each alarm, evidence starts again."""
        return next((point for point in reversed(self.points) if point.has_alarm), None)

    @property
    def has_drifted(self) -> bool:
        """True if the last run has raised the alarm."""
        return self.points[-1].has_alarm

    @property
    def sentence(self) -> str:
        """Return a sentence about a drift: what happened, and how sure it is."""
        by = "the gate" if self.agreed_by == "gate" else f"the first {REFERENCE_RUNS} runs"
        return (
            f"{self.metric} has drifted: {four_digits(self.points[-1].value)} in this run, against the rate of "
            f"{four_digits(self._as_metric(self.rate or 0.0))} by {by}. {self.evidence}"
        )

    @property
    def evidence(self) -> str:
        """Return the evidence of the last run and the alarm's threshold in words; empty without evidence."""
        log = self.points[-1].log_evidence
        if log is None or self.rate is None:
            return ""
        way, fallen = "risen" if self.less_is_better else "fallen", fallen_rate(min(self.rate, MOST_RATE))
        if log <= 0:
            return f"Nothing suggests that the rate has {way} to {self._as_metric(fallen):.3g}."
        return (
            f"The last runs are {_times(log)} times as likely if the rate has {way} to "
            f"{self._as_metric(fallen):.3g} as if it has not; the alarm is at {RUNS} times."
        )

    @property
    def trend_sentence(self) -> str:
        """Return whether the values rise or fall from run to run, in words; empty with too few runs."""
        if self.trend is None:
            return ""
        if self.trend.p > SHOWN_P:
            return f"No trend is visible over {len(self.points)} runs."
        way = "falls" if self.trend.s < 0 else "rises"
        return (
            f"It {way} over {len(self.points)} runs: without a trend, chance alone makes as clear an order "
            f"in {self.trend.p * 100:.2g} % of all series (Mann-Kendall)."
        )

    def _as_metric(self, rate: float) -> float:
        """Return a rate of what is good as the metric counts it."""
        return 1 - rate if self.less_is_better else rate


def _times(log: float) -> str:
    """Return a ratio in words, by its logarithm; above a million the exact value does not matter."""
    ratio = math.exp(min(log, 50.0))
    return "more than 1,000,000" if ratio > 1e6 else f"{ratio:,.0f}" if ratio >= 1_000 else f"{ratio:.3g}"


def series_of(run: RunRecord, runs: Sequence[RunFigures], suite: Suite | None = None) -> list[Series]:
    """Return all metrics over `runs`, which are like this one and end with it; those without any value are left out.

    `suite` is that of the run, if it was read already.
    """
    suite = suite or suite_of(run)
    names = dict.fromkeys(metric["id"] for figures in runs for metric in figures.metrics or ())
    every_series = [_series(name, runs, suite, run.repeats) for name in names]
    return [series for series in every_series if series.points]


def _series(name: str, runs: Sequence[RunFigures], suite: Suite, repeats: int) -> Series:
    points: list[Point] = []
    run_shares: list[RunShare | None] = []
    gate = suite.gate or Gate()
    error_rates = [metric.id for metric in suite.metrics or () if metric.aggregated.kind == "error_rate"]
    less_is_better = name in gate.max or name in error_rates
    for run in runs:
        metric = next((metric for metric in run.metrics or () if metric["id"] == name), None)
        # A metric over repeats may have a value, although no case has all that could change it: it tells nothing yet.
        if metric is not None and metric.get("value") is not None and metric.get("n_completed", 1):
            low, high, n = (metric.get(name) for name in ("low", "high", "n_completed"))
            points.append(Point(run.id, run.created_at, run.outcome, metric["value"], low, high, n=n))
            run_shares.append(_share(metric, repeats, less_is_better=less_is_better))
    trend = mann_kendall([point.value for point in points])
    shares = [share for share in run_shares if share is not None]
    if len(shares) < len(points):
        return Series(name, points, trend)
    minimum = gate.min.get(name, 1 - gate.max[name] if name in gate.max else None)
    watched = watch(effective_counts(shares), minimum if minimum is not None and 0 < minimum <= 1 else None)
    if watched is None:
        return Series(name, points, trend)
    points = [replace(point, log_evidence=evidence) for point, evidence in zip(points, watched.evidence, strict=True)]
    return Series(name, points, trend, watched.rate, "runs" if watched.learned else "gate", less_is_better)


def _share(metric: Mapping[str, Any], repeats: int, *, less_is_better: bool) -> RunShare | None:
    """Return the share of cases that passed. A repeated case counts once: its repeats are not independent."""
    if not str(metric.get("method")).startswith(("wilson", "clopper")):
        return None
    cases, share = metric["n_completed"] / repeats, metric["value"]
    # Some clusters may have no result; cases are fewer than clusters where most of a run is missing.
    clusters = min(metric.get("n_clusters") or cases, cases)
    return RunShare(1 - share if less_is_better else share, cases, clusters, metric.get("stderr"))
