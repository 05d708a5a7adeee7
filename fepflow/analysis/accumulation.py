"""From what the store has of a run to what its metrics are computed from."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import NamedTuple

from fepflow.analysis.accumulator import MetricAccumulator
from fepflow.analysis.ranges import range_of
from fepflow.analysis.slices import SlicedCases
from fepflow.documents.loader import Document
from fepflow.protocol.check import Check, to_check
from fepflow.protocol.test_case import TestCase
from fepflow.store.records import CheckCounts, RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import Metric, Suite, check_ids
from fepflow.suite.reader import read_suite

CASES_AT_ONCE = 1_000
"""Test cases, or their outputs, that are in memory at a time."""


class Carriers(NamedTuple):
    """Which cases have a check, by their indices, and all declarations of it that there are."""

    case_indices: array[int]
    declared: list[Check]


class Accumulated(NamedTuple):
    """Which cases have which check, what was counted for each metric, and the results by check."""

    carriers: dict[str, Carriers]
    accumulators: list[MetricAccumulator]
    counted: dict[str, CheckCounts]


def accumulate(
    store: Store, run: RunRecord, suite: Suite, sliced: SlicedCases | None = None, *, one_by_one: bool
) -> Accumulated:
    """All that the store has of a run, by metric. What only counts is counted unless it is wanted `one_by_one`."""
    carriers = _carriers(store, run, suite, sliced)
    accumulators = _accumulators(run, suite, carriers)
    counted = {counts.check_id: counts for counts in store.results.check_totals(run.id)}
    of_checks = [each for each in accumulators if not each.reads_outputs]
    _accumulate_checks(store, run, of_checks, counted, one_by_one=one_by_one)
    _accumulate_outputs(store, run, [each for each in accumulators if each.reads_outputs])
    return Accumulated(carriers, accumulators, counted)


def suite_of(run: RunRecord) -> Suite:
    """A run's suite, of its snapshot. Needs no environment: what the target would take from it is not looked at."""
    folder = FilePath(run.suite_path).parent if run.suite_path else FilePath.cwd()
    return Suite.model_construct(**read_suite(Document(run.suite, run.suite_path or run.name, ""), folder).sections)


def _accumulate_checks(
    store: Store,
    run: RunRecord,
    accumulators: Sequence[MetricAccumulator],
    counted: Mapping[str, CheckCounts],
    *,
    one_by_one: bool,
) -> None:
    by_check: dict[str | None, list[MetricAccumulator]] = {}
    for accumulator in accumulators:
        by_check.setdefault(accumulator.metric.check, []).append(accumulator)
    if not one_by_one and run.repeats == 1 and all(accumulator.only_counts for accumulator in accumulators):
        for counts in counted.values():
            for accumulator in by_check.get(counts.check_id, ()):
                accumulator.add_counted(counts)
        return
    for row in store.results.check_rows(run.id, results=any(accumulator.reads_results for accumulator in accumulators)):
        for accumulator in by_check.get(row.check_id, ()):
            accumulator.add(row)


def _accumulate_outputs(store: Store, run: RunRecord, accumulators: Sequence[MetricAccumulator]) -> None:
    for start in range(0, run.n_cases if accumulators else 0, CASES_AT_ONCE):
        for (case_index, _), stored in store.results.outputs(run.id, start, start + CASES_AT_ONCE).items():
            for accumulator in accumulators:
                accumulator.add_output(case_index, stored)


def _carriers(store: Store, run: RunRecord, suite: Suite, sliced: SlicedCases | None) -> dict[str, Carriers]:
    """All checks that the suite and its cases have, by id: what is expected of them does not depend on what came.

    `sliced` gets each case, too.
    """
    ids = check_ids(suite.checks)
    shared = dict(zip(ids, suite.checks, strict=True))
    carriers = {check_id: Carriers(array("Q"), [check]) for check_id, check in shared.items()}
    for case_index, case in enumerate(cases_of(store, run)):
        if sliced is not None:
            sliced.add(case)
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
    no_carriers, every_case = Carriers(array("Q"), []), Carriers(array("Q", range(run.n_cases)), [])
    accumulators = []
    for metric in suite.metrics or [Metric(id=check_id, check=check_id) for check_id in carriers]:
        found = every_case if metric.check is None else carriers.get(metric.check, no_carriers)
        accumulators.append(
            MetricAccumulator(metric, range_of(metric, found.declared), found.case_indices, run.repeats)
        )
    return accumulators


def cases_of(store: Store, run: RunRecord) -> Iterator[TestCase]:
    """All test cases of a run, in their order, some of them in memory."""
    for start in range(0, run.n_cases, CASES_AT_ONCE):
        yield from store.runs.cases(run.id, start, start + CASES_AT_ONCE)
