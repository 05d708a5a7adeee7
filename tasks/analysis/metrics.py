"""From what the store has of a run to metrics with intervals, and to the verdict. Needs no Prefect."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from fepflow.documents.loader import Document
from fepflow.errors import CheckTimeoutError, JSONPathError
from fepflow.evalguard.formatting import plural
from fepflow.evalguard.models import Thresholds
from fepflow.json.limits import finite
from fepflow.jsonpath.path import Path, compile_path
from fepflow.protocol.check import Check, to_check
from fepflow.protocol.test_case import TestCase
from fepflow.statistics.estimate import Counts, Estimate, mean_estimate
from fepflow.statistics.scale import Scale
from fepflow.store.records import CheckCounts, CheckRow, RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import Gate, Metric, Suite, check_ids
from fepflow.suite.reader import read_suite
from fepflow.verdict.gate import decide
from fepflow.verdict.verdict import CheckTotals, MetricEstimate, Verdict
from tasks.analysis.ranges import is_of_passes, range_of


@dataclass
class MetricAccumulator:
    """What the results of one check give for one metric, of the cases at `case_indices`, which have that check."""

    metric: Metric
    path: Path | None
    scale: Scale | None
    case_indices: Sequence[int]
    repeats: int
    error: int = 0
    skipped: int = 0
    _outside: int = 0
    _example: float = 0.0
    _values: dict[int, list[float]] = field(default_factory=dict)
    _counted: list[Sequence[float]] = field(default_factory=list)

    def add(self, row: CheckRow) -> None:
        """Take a result in. One without a number within range counts as an error: it must not leave the denominator."""
        value = _value(row, self.path) if row.status == "completed" else None
        if value is not None and self.scale is not None and not self.scale.holds(value):
            self._outside, self._example, value = self._outside + 1, value, None
        if value is not None:
            self._values.setdefault(row.case_index, []).append(value)
        elif row.status == "skip":
            self.skipped += 1
        else:
            self.error += 1

    def add_counted(self, counts: CheckCounts) -> None:
        """As `add` for each of many results, of which no case has two: then it does not matter whose they are."""
        self._counted = [*repeat((1.0,), counts.passed), *repeat((0.0,), counts.failed)]
        self.skipped += counts.skipped
        self.error += counts.error + counts.unjudged

    def estimate(self, gate: Gate) -> MetricEstimate:
        """The metric, with its interval over all that was expected; without a value if it cannot be computed."""
        found = self._counted or list(self._values.values())
        # A case without results is in the sample, too.
        by_case = [*found, *repeat((), len(self.case_indices) - len(found))]
        completed = sum(map(len, by_case))
        counts = Counts(len(self.case_indices) * self.repeats, completed, self.error, self.skipped)
        try:
            estimate = mean_estimate(by_case, counts, gate.confidence, self.scale, gate.interval)
        except (ArithmeticError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
            estimate = Estimate(None, None, None, None, gate.confidence, "none", counts, problem=problem)
        return MetricEstimate(
            self.metric.id, self.metric.check, estimate, is_of_passes(self.metric), list(self._warnings())
        )

    def _warnings(self) -> Iterator[str]:
        if self._outside and self.scale is not None:
            ends = f"{self.scale.low:g} to {self.scale.high:g}"
            yield (
                f"{self.metric.id}: {plural(self._outside, 'value')} outside of the range {ends}, such as "
                f"{self._example:g}, count as errors: correct the check, or the metric's range."
            )


class Carriers(NamedTuple):
    """Which cases have a check, by their indices, and all declarations of it that there are."""

    case_indices: array[int]
    declared: list[Check]


def compute_verdict(store: Store, run: RunRecord, suite: Suite) -> Verdict:
    """Metrics and verdict of all that the store has of a run, whether or not it is complete."""
    gate = suite.gate or Gate()
    carriers = _carriers(store, run, suite)
    accumulators = _accumulators(run, suite, carriers)
    by_check: dict[str, list[MetricAccumulator]] = {}
    for accumulator in accumulators:
        by_check.setdefault(accumulator.metric.check, []).append(accumulator)
    counted = {counts.check_id: counts for counts in store.check_totals(run.id)}
    any_path = any(accumulator.path for accumulator in accumulators)
    if run.repeats == 1 and not any_path:
        for counts in counted.values():
            for accumulator in by_check.get(counts.check_id, ()):
                accumulator.add_counted(counts)
    else:
        for row in store.check_rows(run.id, results=any_path):
            for accumulator in by_check.get(row.check_id, ()):
                accumulator.add(row)
    estimates = [accumulator.estimate(gate) for accumulator in accumulators]
    thresholds = Thresholds.model_validate(suite.thresholds) if isinstance(suite.thresholds, dict) else None
    totals = [
        _totals(check_id, len(found.case_indices) * run.repeats, counted.get(check_id))
        for check_id, found in carriers.items()
    ]
    return decide(estimates, suite.gate, thresholds, totals, gate.verdict)


def metrics_so_far(store: Store, run: RunRecord) -> list[dict[str, Any]]:
    """The metrics of all that is there of a run, as `decide_run` stores them; nothing is ruled on them yet.

    Needs no environment: what the target would take from it is not looked at.
    """
    folder = FilePath(run.suite_path).parent if run.suite_path else FilePath.cwd()
    loaded = read_suite(Document(run.suite, run.suite_path or run.name, ""), folder)
    verdict = compute_verdict(store, run, Suite.model_construct(**loaded.sections))
    return [
        metric.model_dump(mode="json", exclude={"outcome", "reason"}, exclude_none=True) for metric in verdict.metrics
    ]


def _carriers(store: Store, run: RunRecord, suite: Suite) -> dict[str, Carriers]:
    """All checks that the suite and its cases have, by id: what is expected of them does not depend on what came."""
    ids = check_ids(suite.checks)
    shared = dict(zip(ids, suite.checks, strict=True))
    carriers = {check_id: Carriers(array("Q"), [check]) for check_id, check in shared.items()}
    for case_index, case in enumerate(_cases(store, run)):
        own = [to_check(check) for check in case.checks or ()]
        for check_id, check in zip(check_ids(own, ids), own, strict=True):
            found = carriers.setdefault(check_id, Carriers(array("Q"), []))
            found.case_indices.append(case_index)
            if check not in found.declared:
                found.declared.append(check)
        for check_id in shared:
            carriers[check_id].case_indices.append(case_index)
    return carriers


def _accumulators(run: RunRecord, suite: Suite, carriers: dict[str, Carriers]) -> list[MetricAccumulator]:
    no_carriers = Carriers(array("Q"), [])
    accumulators = []
    for metric in suite.metrics or [Metric(id=check_id, check=check_id) for check_id in carriers]:
        found = carriers.get(metric.check, no_carriers)
        path = compile_path(metric.value) if metric.value else None
        accumulators.append(
            MetricAccumulator(metric, path, range_of(metric, found.declared), found.case_indices, run.repeats)
        )
    return accumulators


def _cases(store: Store, run: RunRecord) -> Iterator[TestCase]:
    """All test cases, a thousand of them in memory."""
    for start in range(0, run.n_cases, 1_000):
        yield from store.cases(run.id, start, start + 1_000)


def _value(row: CheckRow, path: Path | None) -> float | None:
    if path is None:
        return None if row.passed is None else float(row.passed)
    try:
        return finite(path.resolve((row.result or {})["results"]))
    except (JSONPathError, CheckTimeoutError, KeyError):
        return None


def _totals(check_id: str, expected: int, counts: CheckCounts | None) -> CheckTotals:
    if counts is None:
        return CheckTotals(check_id, expected)
    return CheckTotals(check_id, expected, counts.passed, counts.failed, counts.error, counts.skipped, counts.unjudged)
