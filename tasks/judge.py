"""From what the store has of a run to metrics with intervals, and to the verdict. Needs no Prefect."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
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
    """What the results of one check give for one metric, by case."""

    metric: Metric
    path: Path | None
    values: dict[int, list[float]] = field(default_factory=dict)
    expected: int = 0
    error: int = 0
    skipped: int = 0

    def expect(self, position: int, repeats: int) -> None:
        """The case at `position` has this check, so `repeats` results are to come."""
        self.values[position] = []
        self.expected += repeats

    def add(self, row: CheckRow) -> None:
        """Take a result in. One without a finite number counts as an error: it must not leave the denominator."""
        value = _value(row, self.path) if row.status == "completed" else None
        if value is not None:
            self.values[row.position].append(value)
        elif row.status == "skip":
            self.skipped += 1
        else:
            self.error += 1

    def add_counted(self, counts: CheckCounts) -> None:
        """As `add` for each of many results, of which no case has two: then it does not matter whose they are."""
        values = chain(repeat(1.0, counts.passed), repeat(0.0, counts.failed))
        for of_case, value in zip(self.values.values(), values, strict=False):
            of_case.append(value)
        self.skipped += counts.skipped
        self.error += counts.error + counts.unjudged

    def estimate(self, confidence: float) -> MetricEstimate:
        """The metric, with its interval over all that was expected."""
        completed = sum(map(len, self.values.values()))
        counts = Counts(self.expected, completed, self.error, self.skipped)
        estimate = mean_estimate(list(self.values.values()), counts, confidence)
        return MetricEstimate(self.metric.id, self.metric.check, estimate)


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
    carriers: dict[str, list[int]] = {check_id: [] for check_id in shared}
    for position, case in enumerate(_cases(store, run)):
        for check_id in (*_own_ids(case, shared), *shared):
            carriers.setdefault(check_id, []).append(position)
    metrics = suite.metrics or [Metric(id=check_id, check=check_id) for check_id in carriers]
    tallies = [Tally(metric, compile_path(metric.value) if metric.value else None) for metric in metrics]
    for tally in tallies:
        for position in carriers.get(tally.metric.check, ()):
            tally.expect(position, run.repeats)
    return tallies


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
