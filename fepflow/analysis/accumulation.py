"""The results of a run, read from the store and collected for each metric: values, ranges, counts and slices.

A metric is estimated from what a `MetricAccumulator` has taken in. Slices are the test cases whose metadata has the
same value of a field.
"""

from __future__ import annotations

import json
import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from fepflow.analysis.classification import ExpectedLabels, class_interval, confusion_of, label_pair
from fepflow.analysis.dependence import ClusteredCases, Dependence
from fepflow.analysis.sampling import Look, look_of
from fepflow.checks.registry import SCORED_JUDGES, CheckType
from fepflow.errors import CheckTimeoutError, JSONPathError
from fepflow.json.values import finite
from fepflow.jsonpath.path import Path, compile_path
from fepflow.protocol.check import Check, to_check
from fepflow.protocol.test_case import TestCase, output_context
from fepflow.statistics.classification import LabelledUnit, LabelPair, classification_estimate
from fepflow.statistics.estimate import PROPORTION, Counts, Estimate, Scale
from fepflow.statistics.means import CaseValue, each_at, estimate_of_cases, k_of_repeats, majority, mean_estimate, worst
from fepflow.statistics.proportions import IntervalKind
from fepflow.statistics.quantiles import quantile_estimate
from fepflow.statistics.sequential import ClusterSizes, group_sequential_estimate, sequential_estimate
from fepflow.suite.models import Gate, Metric, Slices, Suite, check_ids
from fepflow.suite.values import Aggregate
from fepflow.text import cut, plural
from fepflow.verdict.gate import SliceEstimate
from fepflow.verdict.metric_rules import unchecked_cases
from fepflow.verdict.verdict import ConfusionVerdict, MetricEstimate

if TYPE_CHECKING:  # the store loads SQLAlchemy, which `fepflow validate` does without
    from fepflow.store.records import CheckCounts, CheckRow, RunRecord, StoredOutput
    from fepflow.store.store import Store

CASES_AT_ONCE = 1_000
"""Test cases, or their outputs, that are in memory at a time."""


class Carriers(NamedTuple):
    """The cases that have a check, by index, and all declarations of that check."""

    case_indices: array[int]
    declared: list[Check]
    labels: ExpectedLabels | None = None


class Accumulated(NamedTuple):
    """The cases of each check, an accumulator for each metric, the counts of results by check, the clusters of cases
    if they are not independent, and warnings of that. `unchecked` is a sentence if only some cases have a check."""

    carriers: dict[str, Carriers]
    accumulators: list[MetricAccumulator]
    counted: dict[str, CheckCounts]
    clusters: ClusteredCases | None
    warnings: list[str]
    classifications: list[MetricAccumulator]
    """The labels of each `classification` check, whether or not a metric is made of them."""

    unchecked: str | None = None


def accumulate(
    store: Store,
    run: RunRecord,
    suite: Suite,
    sliced: SlicedCases | None = None,
    *,
    one_by_one: bool,
    without: Collection[tuple[int, int]] = (),
) -> Accumulated:
    """Read a run's results from the store, by metric. Plain counts come from SQL, unless `one_by_one` is set.

    Outputs in `without`, by case index and repeat, and their results are left out.
    """
    dependence = Dependence(run.suite, suite.cluster, suite.gate or Gate(), suite.thresholds, suite.slices)
    carriers = _carriers(store, run, suite, [dependence] if sliced is None else [dependence, sliced])
    clusters = dependence.clusters
    if clusters is not None:
        clusters.largest = ((run.options or {}).get("sample") or {}).get("largest_cluster")
    counted = {counts.check_id: counts for counts in store.results.check_totals(run.id)}
    metrics = suite.metrics or [_own_metric(store, run, check_id, carriers, counted) for check_id in carriers]
    accumulators = _accumulators(run, suite, metrics, carriers, clusters)
    labelled = [
        MetricAccumulator(
            Metric(id=check_id, check=check_id, aggregate="f1"),
            PROPORTION,
            carried.case_indices,
            run.repeats,
            clusters,
            labels=carried.labels,
        )
        for check_id, carried in carriers.items()
        if carried.labels is not None
    ]
    of_checks = [accumulator for accumulator in accumulators if not accumulator.reads_outputs]
    of_checks += labelled
    _accumulate_checks(store, run, of_checks, counted, one_by_one=one_by_one or clusters is not None, without=without)
    _accumulate_outputs(store, run, [accumulator for accumulator in accumulators if accumulator.reads_outputs], without)
    is_known = suite.checks or run.cause == "import"  # the report of an import lists tests that assert nothing
    unchecked = None if is_known else _unchecked(carriers, run.n_cases)
    return Accumulated(carriers, accumulators, counted, clusters, dependence.warnings, labelled, unchecked)


def suite_of(run: RunRecord) -> Suite:
    """Return the suite in a run's snapshot. This needs no environment, because the target's variables are not read."""
    from fepflow.suite.reader import read_snapshot  # commands that only show runs need no YAML parser

    return Suite.model_construct(**read_snapshot(run.suite, run.suite_path, run.name).sections)


def _accumulate_checks(
    store: Store,
    run: RunRecord,
    accumulators: Sequence[MetricAccumulator],
    counted: dict[str, CheckCounts],
    *,
    one_by_one: bool,
    without: Collection[tuple[int, int]],
) -> None:
    by_check: dict[str | None, list[MetricAccumulator]] = {}
    for accumulator in accumulators:
        by_check.setdefault(accumulator.metric.check, []).append(accumulator)
    if (
        not one_by_one
        and not without
        and run.repeats == 1
        and all(accumulator.only_counts for accumulator in accumulators)
    ):
        for counts in counted.values():
            for accumulator in by_check.get(counts.check_id, ()):
                accumulator.add_counted(counts)
        return
    for row in store.results.check_rows(run.id, results=any(accumulator.reads_results for accumulator in accumulators)):
        if (row.case_index, row.repeat) in without:
            counts = counted[row.check_id]
            counted[row.check_id] = replace(counts, passed=counts.passed - (row.passed is True))
            continue
        for accumulator in by_check.get(row.check_id, ()):
            accumulator.add(row)


def _accumulate_outputs(
    store: Store, run: RunRecord, accumulators: Sequence[MetricAccumulator], without: Collection[tuple[int, int]]
) -> None:
    for start in range(0, run.n_cases if accumulators else 0, CASES_AT_ONCE):
        outputs = store.results.outputs(run.id, start, start + CASES_AT_ONCE, whole=False)
        # Latency, tokens and cost are in the rows, and need no blob.
        in_blobs = {
            unit[0]
            for unit, stored in outputs.items()
            if stored.blob is not None and any(each.value_of(stored) is None for each in accumulators)
        }
        if in_blobs:
            outputs |= store.results.outputs_at(run.id, in_blobs)
        for unit, stored in outputs.items():
            for accumulator in accumulators if unit not in without else ():
                accumulator.add_output(unit[0], stored)


def _carriers(
    store: Store, run: RunRecord, suite: Suite, others: Sequence[SlicedCases | Dependence]
) -> dict[str, Carriers]:
    """Return all checks of the suite and its cases, by id: what is expected does not depend on the results.

    `others` get each case, too.
    """
    ids = check_ids(suite.checks)
    shared = dict(zip(ids, suite.checks, strict=True))
    carriers = {check_id: Carriers(array("Q"), [check], _labels(check)) for check_id, check in shared.items()}
    for case_index, case in enumerate(cases_of(store, run)):
        for cases in others:
            cases.add(case)
        own = [to_check(check) for check in case.checks or ()]
        for check_id, check in zip(check_ids(own, ids), own, strict=True):
            carried = carriers.setdefault(check_id, Carriers(array("Q"), [], _labels(check)))
            if carried.labels is not None:
                carried.labels.add(case_index, case, check)
            carried.case_indices.append(case_index)
            if check not in carried.declared:
                carried.declared.append(check)
        for check_id, check in shared.items():
            carriers[check_id].case_indices.append(case_index)
            if (expected := carriers[check_id].labels) is not None:
                expected.add(case_index, case, check)
    return carriers


def _unchecked(carriers: Mapping[str, Carriers], cases: int) -> str | None:
    """Return a sentence about the cases that have no check; None if all have one, or none has."""
    checked = {index for carried in carriers.values() for index in carried.case_indices}
    if not checked or len(checked) == cases:
        return None
    return f"{unchecked_cases(cases - len(checked), cases)}."


def _labels(check: Check) -> ExpectedLabels | None:
    return ExpectedLabels() if check.type == CheckType.CLASSIFICATION else None


def _own_metric(
    store: Store, run: RunRecord, check_id: str, carriers: Mapping[str, Carriers], counted: Mapping[str, CheckCounts]
) -> Metric:
    """Return the metric of a check in a suite without `metrics`: the share that passed, or the mean of its score.

    Checks of other tools are known only by their results: the score counts if none of them passed or failed.
    """
    from fepflow.checks.schemas import score_path  # here, as reading the store needs no check

    paths = {score_path(check) for check in carriers[check_id].declared}
    path = paths.pop() if len(paths) == 1 else None
    counts = counted.get(check_id)
    if path is None and counts is not None and counts.unjudged and not counts.passed + counts.failed:
        _, first = next(store.results.completed_results(run.id, check_id), (0, None))
        path = next((path for path in SCORES if _number(compile_path(path), first) is not None), None)
    return Metric(id=check_id, check=check_id, value=path)


SCORES = ("$.score", "$.response.score")


def _accumulators(
    run: RunRecord,
    suite: Suite,
    metrics: Sequence[Metric],
    carriers: dict[str, Carriers],
    clusters: ClusteredCases | None,
) -> list[MetricAccumulator]:
    no_carriers, every_case = Carriers(array("Q"), []), Carriers(array("Q", range(run.n_cases)), [])
    look = look_of(run, suite.gate.top_up if suite.gate else None)
    accumulators = []
    for metric in metrics:
        carried = every_case if metric.check is None else carriers.get(metric.check, no_carriers)
        scale = range_of(metric, carried.declared)
        labels = carried.labels if metric.aggregated.of_labels else None
        accumulators.append(
            MetricAccumulator(metric, scale, carried.case_indices, run.repeats, clusters, look, labels=labels)
        )
    return accumulators


def cases_of(store: Store, run: RunRecord) -> Iterator[TestCase]:
    """Return all test cases of a run, in their order; some of them are kept in memory."""
    for start in range(0, run.n_cases, CASES_AT_ONCE):
        yield from store.runs.cases(run.id, start, start + CASES_AT_ONCE)


PASSED = ("$.passed", "$.response.passed")


def is_of_passes(metric: Metric) -> bool:
    """Return whether a metric is made of results that passed or not."""
    return metric.value is None or metric.value in PASSED


def is_share_that_passed(metric: Metric) -> bool:
    """Return whether a metric is the plain share of results that passed."""
    return is_of_passes(metric) and metric.aggregated.kind in ("mean", "rate")


def range_of(metric: Metric, checks: Iterable[Check]) -> Scale | None:
    """Return the range of the single values of a metric, or None if it is unknown.

    `checks` are all checks with the metric's check id.
    """
    if is_of_passes(metric) or metric.aggregated.kind in ("rate", "majority", "each", "pass_at_k", "pass_hat_k"):
        return PROPORTION
    if metric.range is not None:
        return Scale(metric.range[0], metric.range[1])
    known = [_known(check, metric.value or "") for check in checks]
    scales = [scale for scale in known if scale is not None]
    if not scales or len(scales) < len(known):
        return None
    return Scale(min(scale.low for scale in scales), max(scale.high for scale in scales))


def scale_of_aggregate(metric: Metric, scale: Scale | None) -> Scale | None:
    """Return the range of a metric whose single values have the range `scale`."""
    aggregate = metric.aggregated
    return Scale(0.0, 1.0) if aggregate.of_labels or aggregate.kind in ("pass_at_k", "pass_hat_k") else scale


def _known(check: Check, path: str) -> Scale | None:
    if path == "$.response.score" and check.type in ("semantic_similarity", *SCORED_JUDGES):
        return Scale(0.0, 1.0)
    if (check.type, path) == ("tool_usage", "$.score"):
        return Scale(0.0, 1.0)
    if path in SCORES:
        from fepflow.checks.core.declarations import class_of  # here, as reading the store needs no check

        check_class = class_of(check)
        if check_class is not None and check_class.check_range is not None:
            return Scale(*check_class.check_range)
    if check.type == CheckType.LLM_JUDGE:
        return _declared(check.arguments.get("response_format"), path.removeprefix("$.response.").split("."))
    return None


def _declared(schema: Any, members: list[str]) -> Scale | None:
    """Return the scale that a judge's response format declares for a member of its responses."""
    for member in members:
        properties = schema.get("properties") if isinstance(schema, dict) else None
        schema = properties.get(member) if isinstance(properties, dict) else None
    if not isinstance(schema, dict):
        return None
    if schema.get("type") == "boolean":
        return Scale(0.0, 1.0)
    low, high = schema.get("minimum"), schema.get("maximum")
    numbers = all(isinstance(bound, int | float) and not isinstance(bound, bool) for bound in (low, high))
    return Scale(float(low), float(high)) if numbers and low < high else None  # type: ignore[arg-type, operator]


@dataclass(slots=True)
class _CaseResults:
    """The results of one case for a metric: values, pairs of labels, and the number of errors and skips."""

    values: list[float] = field(default_factory=list)
    pairs: list[LabelPair] = field(default_factory=list)
    errors: int = 0
    skipped: int = 0


_NO_RESULTS = _CaseResults()


@dataclass
class MetricAccumulator:
    """The results for one metric, of the cases at `case_indices`, which have its check (or an output).

    `scale` is that of single values, None if it is not known. `clusters` are those of all cases of the run, None if
    cases are independent. `look` is the planned one that the run has reached, if looks are planned.
    """

    metric: Metric
    scale: Scale | None
    case_indices: Sequence[int]
    repeats: int
    clusters: ClusteredCases | None = None
    look: Look | None = None
    pooled: list[tuple[MetricAccumulator, Mapping[int, int]]] = field(default_factory=list)
    """The metric in other runs of the same cases, whose values `case_value` takes the mean of, with the cases' indices
    there."""
    _aggregate: Aggregate = field(init=False)
    _path: Path | None = None
    _outside: int = 0
    _example: float = 0.0
    labels: ExpectedLabels | None = None
    """The expected labels of the cases, for a measure of a classification."""
    _results: defaultdict[int, _CaseResults] = field(default_factory=lambda: defaultdict(_CaseResults))
    _counted: CheckCounts | None = None

    def __post_init__(self) -> None:
        self._aggregate = self.metric.aggregated
        self._path = compile_path(self.metric.value) if self.metric.value else None

    @property
    def reads_results(self) -> bool:
        """True if its numbers come from the results of a check."""
        return (self._path is not None or self._aggregate.of_labels) and self.metric.check is not None

    @property
    def reads_outputs(self) -> bool:
        """True if it is about the target's outputs, and no check's results."""
        return self.metric.check is None

    @property
    def only_counts(self) -> bool:
        """True if `add_counted` suffices, where cases are not repeated."""
        return self._path is None and self.metric.check is not None and self._aggregate.kind in ("mean", "rate")

    def add(self, row: CheckRow) -> None:
        """Add a result of the check."""
        value = None
        if row.status == "completed" and self._aggregate.of_labels:
            pair = label_pair((row.result or {}).get("results"))
            if pair is not None:
                self._results[row.case_index].pairs.append(pair)
                value = float(pair.predicted == pair.expected)
        elif row.status == "completed" and self._path is not None:
            value = _number(self._path, (row.result or {}).get("results"))
        elif row.status == "completed" and row.passed is not None:
            value = float(row.passed)
        self._add(row.case_index, value, in_error=row.status == "error", skipped=row.status == "skip")

    def add_output(self, case_index: int, stored: StoredOutput) -> None:
        """Add an output. A failed one has no value."""
        self._add(case_index, self.value_of(stored), in_error=stored.failed)

    def value_of(self, stored: StoredOutput) -> float | None:
        """Return the number that the metric's path finds in an output."""
        if self._path is None or stored.failed:
            return None
        return _number(self._path, {"output": output_context(stored.output)})

    def add_counted(self, counts: CheckCounts) -> None:
        """Do as `add` for many results, of which no case has two: then it does not matter whose they are."""
        self._counted = counts

    def take_in(self, other: MetricAccumulator, offset: int) -> None:
        """Add the results of the same metric in another run, whose cases begin at this index here."""
        self.case_indices = [*self.case_indices, *(offset + index for index in other.case_indices)]
        self._results |= {offset + index: results for index, results in other._results.items()}
        if self.labels is not None and other.labels is not None:
            self.labels = self.labels.followed_by(other.labels, offset)

    def over(self, case_indices: Sequence[int]) -> MetricAccumulator:
        """Return an accumulator for some of the cases; results must have been added one by one."""
        part = MetricAccumulator(
            self.metric, self.scale, case_indices, self.repeats, self.clusters, self.look, labels=self.labels
        )
        part._results |= {index: self._results[index] for index in case_indices if index in self._results}
        return part

    def _of_case(self, case_index: int) -> _CaseResults:
        return self._results.get(case_index, _NO_RESULTS)

    def _of_completed(self) -> MetricAccumulator:
        """Return an accumulator for the cases that have a value."""
        if self._counted is not None:
            part = self.over(range(self._counted.passed + self._counted.failed))
            part._counted = self._counted
            return part
        if not self._aggregate.of_cases or self.scale is None:
            return self.over([index for index in self.case_indices if self._of_case(index).values])
        cases = ((index, self._case_value(self._of_case(index).values)) for index in self.case_indices)
        return self.over([index for index, case in cases if case.value is not None])

    def case_value(self, case_index: int) -> CaseValue:
        """Return the value of one case over its repeats, with the bounds that missing repeats allow."""
        if not self.pooled:
            return self._case_value_here(case_index)
        others = (other._case_value_here(indices[case_index]) for other, indices in self.pooled)
        values = [self._case_value_here(case_index), *others]
        known = [each.value for each in values if each.value is not None]
        least, most = (math.fsum(getattr(value, end) for value in values) / len(values) for end in ("least", "most"))
        return CaseValue(math.fsum(known) / len(known) if known else None, least, most)

    def _case_value_here(self, case_index: int) -> CaseValue:
        values, kind = self._of_case(case_index).values, self._aggregate.kind
        if self._aggregate.of_cases and self.scale is not None:
            return self._case_value(values)
        low, high = (self.scale.low, self.scale.high) if self.scale else (-math.inf, math.inf)
        ends = [[*values, *[end] * (self.repeats - len(values))] for end in (low, high)]
        least, most = (min(end) if kind == "worst" else math.fsum(end) / len(end) for end in ends)
        if not values or (kind == "worst" and len(values) < self.repeats):
            return CaseValue(None, least, most)
        return CaseValue(min(values) if kind == "worst" else math.fsum(values) / len(values), least, most)

    def estimate(self, gate: Gate) -> MetricEstimate:
        """Return the metric with its interval over all expected results; without a value if it cannot be computed."""
        counts = replace(self._counts(), clusters=self.clusters.sizes(self.case_indices) if self.clusters else None)
        try:
            if gate.missing == "random":  # then what completed is the whole sample
                part = self._of_completed()
                completed = len(part.case_indices) if self._aggregate.of_cases else counts.completed
                whole = replace(counts, expected=completed, completed=completed, error=0, skipped=0)
                whole = replace(whole, clusters=part.clusters.sizes(part.case_indices) if part.clusters else None)
                estimate = replace(part._estimate(whole, gate), counts=counts)
            else:
                estimate = self._estimate(counts, gate)
        except (ArithmeticError, ValueError) as error:
            problem = str(error) if isinstance(error, _UnusableError) else f"{type(error).__name__}: {error}"
            estimate = Estimate.unknown(gate.pass_confidence, counts, problem=problem)
        return MetricEstimate(
            self.metric.id,
            self.metric.check,
            estimate,
            of_passes=is_of_passes(self.metric),
            of_errors=self._aggregate.kind == "error_rate",
            warnings=list(self._warnings(counts, gate)),
        )

    def _add(self, case_index: int, value: float | None, *, in_error: bool, skipped: bool = False) -> None:
        """Count a result. One without a number within range counts as an error: it must not leave the denominator."""
        if self._aggregate.kind == "error_rate":
            value = None if skipped else float(in_error)
        elif self._aggregate.kind == "rate" and value is not None:
            value = self._is_within(value)
        if value is not None and self.scale is not None and not self.scale.holds(value):
            self._outside, self._example, value = self._outside + 1, value, None
        results = self._results[case_index]
        if value is not None:
            results.values.append(value)
        elif skipped:
            results.skipped += 1
        else:
            results.errors += 1

    def _is_within(self, value: float) -> float:
        least, most = self.metric.at_least, self.metric.at_most
        if least is None and most is None:
            return value  # yes or no itself
        return float((least is None or value >= least) and (most is None or value <= most))

    def _counts(self) -> Counts:
        """Count results, or test cases if each gives one value."""
        if self._counted is not None:
            counted = self._counted
            errors = counted.error + counted.unjudged
            return Counts(len(self.case_indices), counted.passed + counted.failed, errors, counted.skipped)
        if self._aggregate.of_cases:
            cases = [self._of_case(index) for index in self.case_indices]
            unknown = [case for case in cases if not self._is_known(case.values)]
            errors = sum(case.errors > 0 for case in unknown)
            skipped = sum(case.skipped > 0 and not case.errors for case in unknown)
            return Counts(len(cases), len(cases) - len(unknown), errors, skipped)
        cases = list(self._results.values())
        return Counts(
            len(self.case_indices) * self.repeats,
            sum(len(case.values) for case in cases),
            sum(case.errors for case in cases),
            sum(case.skipped for case in cases),
        )

    def _is_known(self, values: Sequence[float]) -> bool:
        """Return whether missing results of a case cannot change its value."""
        if len(values) == self.repeats:
            return True
        if self.scale is None or self._is_impossible:
            return False
        case = self._case_value(values)
        return case.least == case.most

    @property
    def _is_impossible(self) -> bool:
        return self._aggregate.k > self.repeats

    def _case_value(self, values: Sequence[float]) -> CaseValue:
        kind, k = self._aggregate.kind, self._aggregate.k
        if kind == "majority":
            return majority(values, self.repeats)
        if kind == "each":
            return each_at(values, self.repeats, self._aggregate.level)
        if kind == "worst":
            assert self.scale is not None
            return worst(values, self.repeats, self.scale)
        return k_of_repeats(values, self.repeats, k, every=kind == "pass_hat_k")

    def _estimate(self, counts: Counts, gate: Gate) -> Estimate:
        aggregate = self._aggregate
        if self._is_impossible:
            raise _UnusableError(
                f"{self.metric.aggregate} takes {aggregate.k} repeats of each case, and the run has {self.repeats}"
            )
        if aggregate.of_labels:
            return self._estimate_of_labels(counts, gate)
        if aggregate.of_cases and self.scale is not None:
            cases = [self._case_value(self._of_case(index).values) for index in self.case_indices]
            if gate.missing == "random":
                cases = [CaseValue(case.value, case.value, case.value) for case in cases if case.value is not None]
            scale = scale_of_aggregate(self.metric, self.scale)
            assert scale is not None
            numbers = [self.clusters.numbers[index] for index in self.case_indices] if self.clusters else None
            return estimate_of_cases(cases, counts, gate.pass_confidence, scale, gate.interval or "wilson", numbers)
        by_case = {index: case.values for index, case in self._results.items() if case.values}
        if aggregate.of_cases:  # the worst of values without a known range
            complete = {index: values for index, values in by_case.items() if len(values) == self.repeats}
            values = self._by_unit({index: [min(values)] for index, values in complete.items()})
        elif self._counted is not None:
            values = [*repeat((1.0,), self._counted.passed), *repeat((0.0,), self._counted.failed)]
            values += repeat((), len(self.case_indices) - len(values))
        else:
            values = self._by_unit(by_case)
        if aggregate.kind == "quantile":
            return quantile_estimate(values, counts, aggregate.level, gate.pass_confidence, self.scale)
        # Planned looks ask for confidences of 99 % and more, where Wilson's interval is off for small shares.
        usual: IntervalKind = "wilson" if self.look is None else "clopper-pearson"
        estimate = mean_estimate(values, counts, gate.pass_confidence, self.scale, gate.interval or usual)
        if gate.top_up is None or self.scale is None:
            return estimate
        these_cases = gate.top_up.max_repeats is not None
        if self.look is not None:
            return group_sequential_estimate(estimate, *self.look)
        return sequential_estimate(
            estimate, values, self.repeats, self.scale, these_cases=these_cases, clusters=self._cluster_sizes()
        )

    def _estimate_of_labels(self, counts: Counts, gate: Gate) -> Estimate:
        expected = self.labels or ExpectedLabels()
        label = expected.known_as(self._aggregate.label)
        units = self.labelled_units(gate)
        if label is not None and self._aggregate.kind != "precision" and not self._is_expected(label, units):
            raise _UnusableError(f"no test case expects the label {label} (they expect {expected.names})")
        return classification_estimate(
            units,
            counts,
            self._aggregate.kind,  # type: ignore[arg-type]  # one of the three, see of_labels
            label,
            gate.pass_confidence,
            class_interval(gate),
            self.repeats,
        )

    def confusion(self, gate: Gate) -> ConfusionVerdict | None:
        """Return the confusion matrix of its check; None without any result."""
        counts = replace(self._counts(), clusters=self.clusters.sizes(self.case_indices) if self.clusters else None)
        return confusion_of(self.metric.id, self.labelled_units(gate), counts, self.repeats, gate)

    def labelled_units(self, gate: Gate) -> list[LabelledUnit]:
        """Return the labels of each case, or of each cluster, and those that are missing."""
        expected = self.labels or ExpectedLabels()
        units: dict[int, LabelledUnit] = {}
        for index in self.case_indices:
            pairs = self._of_case(index).pairs
            missing = [expected.of_case(index)] * (self.repeats - len(pairs) if gate.missing == "worst" else 0)
            number = self.clusters.numbers[index] if self.clusters else index
            if (unit := units.get(number)) is not None:
                pairs, missing = [*unit.pairs, *pairs], [*unit.missing, *missing]
            units[number] = LabelledUnit(pairs, missing)
        return list(units.values())

    @staticmethod
    def _is_expected(label: str, units: Iterable[LabelledUnit]) -> bool:
        return any(
            any(pair.expected == label for pair in unit.pairs)
            or any(absent in (label, None) for absent in unit.missing)
            for unit in units
        )

    def _cluster_sizes(self) -> ClusterSizes | None:
        """Return the sizes of clusters in results, in the order of `_by_unit`."""
        if self.clusters is None:
            return None
        sizes = Counter(self.clusters.numbers[index] for index in self.case_indices).values()
        largest = self.clusters.largest or max(sizes, default=1)
        return ClusterSizes([size * self.repeats for size in sizes], largest * self.repeats)

    def _by_unit(self, by_case: Mapping[int, Sequence[float]]) -> list[Sequence[float]]:
        """Return the values of each case, or of each cluster; one without results is in the sample, too."""
        if self.clusters is None:
            return [*by_case.values(), *repeat((), len(self.case_indices) - len(by_case))]
        by_cluster: dict[int, list[float]] = {}
        for index in self.case_indices:
            by_cluster.setdefault(self.clusters.numbers[index], []).extend(by_case.get(index, ()))
        return list(by_cluster.values())

    def _warnings(self, counts: Counts, gate: Gate) -> Iterator[str]:
        if gate.missing == "random" and counts.missing:
            yield (
                f"{self.metric.id}: {counts.missing} of {plural(counts.expected, 'result')} are missing and left out: "
                "the gate states that they are a random sample (missing: random)."
            )
        if self._outside and self.scale is not None:
            ends = f"{self.scale.low:.15g} to {self.scale.high:.15g}"
            what = "that are neither yes nor no" if self.scale.binary else f"outside of the range {ends}"
            advice = "give at_least or at_most" if self.scale.binary else "correct the check, or the metric's range"
            yield (
                f"{self.metric.id}: {plural(self._outside, 'value')} {what}, such as {self._example:.15g}, "
                f"count as errors: {advice}."
            )


class _UnusableError(ValueError):
    """The reason why a metric cannot be computed, in words for its user."""


def _number(path: Path, document: Any) -> float | None:
    if document is None:
        return None
    try:
        return finite(path.resolve(document))
    except (JSONPathError, CheckTimeoutError):
        return None


NONE = "(none)"
"""The slice of the cases that do not have the field."""

MAX_TEXT = 100


def slice_of(case: TestCase, by: str) -> str:
    """Return the slice of a case."""
    value: Any = (case.metadata or {}).get(by)
    if value is None:
        return NONE
    return cut(value if isinstance(value, str) else json.dumps(value, sort_keys=True), MAX_TEXT)


def minima_of(slices: Slices, metrics: Sequence[Metric]) -> dict[str, float]:
    """Return the minimum in each slice, by metric id. A plain number holds for all shares that passed."""
    if isinstance(slices.min, dict):
        return slices.min
    if slices.min is None:
        return {}
    return {metric.id: slices.min for metric in metrics if is_share_that_passed(metric)}


@dataclass
class SlicedCases:
    """The slices of cases, by index, collected as the cases are read."""

    by: str
    _names: dict[str, int] = field(default_factory=dict)
    _of_cases: array[int] = field(default_factory=lambda: array("L"))

    def add(self, case: TestCase) -> None:
        """Add the next case."""
        self._of_cases.append(self._names.setdefault(slice_of(case, self.by), len(self._names)))

    def estimates(self, accumulators: Sequence[MetricAccumulator], gate: Gate) -> list[SliceEstimate]:
        """Return each metric in each slice that has cases."""
        slice_estimates = []
        for accumulator in accumulators:
            parts: dict[int, array[int]] = {}
            for case_index in accumulator.case_indices:
                parts.setdefault(self._of_cases[case_index], array("Q")).append(case_index)
            scale = scale_of_aggregate(accumulator.metric, accumulator.scale)
            for name, number in sorted(self._names.items()):
                if number not in parts:
                    continue
                metric = accumulator.over(parts[number]).estimate(gate)
                clusters = metric.estimate.counts.clusters
                cases = int(clusters.worth) if clusters else len(parts[number])
                slice_estimates.append(SliceEstimate(metric, self.by, name, cases, scale))
        return slice_estimates
