"""From what the store has of a run to metrics with intervals, and to the verdict. Needs no Prefect."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path as FilePath
from typing import Any

from fepflow.documents import Document
from fepflow.errors import JSONPathError
from fepflow.evalguard.gate import decide
from fepflow.evalguard.models import Thresholds
from fepflow.evalguard.verdict import CheckTotals, MetricEstimate, Verdict
from fepflow.jsonpath import Path, compile_path
from fepflow.protocol.check import declare
from fepflow.protocol.test_case import TestCase
from fepflow.statistics.estimate import Counts, mean_estimate
from fepflow.store.records import CheckCounts, CheckRow, RunRecord
from fepflow.store.store import Store
from fepflow.suite import Gate, Metric, Suite, check_ids
from fepflow.suite_file import read_suite


@dataclass
class Tally:
    """What the results of one check give for one metric, of the cases at `positions`, which have that check."""

    metric: Metric
    path: Path | None
    positions: Sequence[int]
    repeats: int
    error: int = 0
    skipped: int = 0
    _values: dict[int, list[float]] = field(default_factory=dict)
    _counted: list[Sequence[float]] = field(default_factory=list)

    def add(self, row: CheckRow) -> None:
        """Take a result in. One without a finite number counts as an error: it must not leave the denominator."""
        value = _value(row, self.path) if row.status == "completed" else None
        if value is not None:
            self._values.setdefault(row.position, []).append(value)
        elif row.status == "skip":
            self.skipped += 1
        else:
            self.error += 1

    def add_counted(self, counts: CheckCounts) -> None:
        """As `add` for each of many results, of which no case has two: then it does not matter whose they are."""
        self._counted = [*repeat((1.0,), counts.passed), *repeat((0.0,), counts.failed)]
        self.skipped += counts.skipped
        self.error += counts.error + counts.unjudged

    def estimate(self, confidence: float) -> MetricEstimate:
        """The metric, with its interval over all that was expected."""
        found = self._counted or list(self._values.values())
        # A case without results is in the sample, too.
        by_case = [*found, *repeat((), len(self.positions) - len(found))]
        completed = sum(map(len, by_case))
        counts = Counts(len(self.positions) * self.repeats, completed, self.error, self.skipped)
        return MetricEstimate(self.metric.id, self.metric.check, mean_estimate(by_case, counts, confidence))


def judge_run(store: Store, run: RunRecord, suite: Suite) -> Verdict:
    """Metrics and verdict of all that the store has of a run, whether or not it is complete."""
    gate = suite.gate or Gate()
    tallies = _tallies(store, run, suite)
    by_check: dict[str, list[Tally]] = {}
    for tally in tallies:
        by_check.setdefault(tally.metric.check, []).append(tally)
    any_path = any(tally.path for tally in tallies)
    if run.repeats == 1 and not any_path:
        for counts in store.check_totals(run.id):
            for tally in by_check.get(counts.check_id, ()):
                tally.add_counted(counts)
    else:
        for row in store.check_rows(run.id, payloads=any_path):
            for tally in by_check.get(row.check_id, ()):
                tally.add(row)
    estimates = [tally.estimate(gate.confidence) for tally in tallies]
    thresholds = Thresholds.model_validate(suite.thresholds) if isinstance(suite.thresholds, dict) else None
    return decide(estimates, suite.gate, thresholds, _totals(store, run), gate.verdict)


def metrics_so_far(store: Store, run: RunRecord) -> list[dict[str, Any]]:
    """The metrics of all that is there of a run, as `decide_run` stores them; nothing is ruled on them yet.

    Needs no environment: what the target would take from it is not looked at.
    """
    folder = FilePath(run.suite_path).parent if run.suite_path else FilePath.cwd()
    loaded = read_suite(Document(run.suite, run.suite_path or run.name, ""), folder)
    verdict = judge_run(store, run, Suite.model_construct(**loaded.sections))
    return [
        metric.model_dump(mode="json", exclude={"outcome", "reason"}, exclude_none=True) for metric in verdict.metrics
    ]


def _tallies(store: Store, run: RunRecord, suite: Suite) -> list[Tally]:
    shared = check_ids(suite.checks)
    carriers = {check_id: array("Q") for check_id in shared}
    for position, case in enumerate(_cases(store, run)):
        for check_id in (*_own_ids(case, shared), *shared):
            carriers.setdefault(check_id, array("Q")).append(position)
    metrics = suite.metrics or [Metric(id=check_id, check=check_id) for check_id in carriers]
    return [
        Tally(metric, compile_path(metric.value) if metric.value else None, carriers.get(metric.check, ()), run.repeats)
        for metric in metrics
    ]


def _cases(store: Store, run: RunRecord) -> Iterator[TestCase]:
    """All test cases, a thousand of them in memory."""
    for start in range(0, run.n_cases, 1_000):
        yield from store.cases(run.id, start, start + 1_000)


def _own_ids(case: TestCase, shared: Sequence[str]) -> Iterable[str]:
    return check_ids([declare(check) for check in case.checks], shared) if case.checks else ()


def _value(row: CheckRow, path: Path | None) -> float | None:
    if path is None:
        return None if row.passed is None else float(row.passed)
    try:
        value: Any = path.resolve((row.result or {})["results"])
    except JSONPathError:
        return None
    is_number = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if is_number else None


def _totals(store: Store, run: RunRecord) -> CheckTotals:
    seen = store.progress(run.id)
    unjudged = seen.checks - seen.passed - seen.failed - seen.error - seen.skipped
    return CheckTotals(seen.passed, seen.failed, seen.error, seen.skipped, unjudged)
