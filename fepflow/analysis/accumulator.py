"""From single results to one metric: what is counted of each, and what is estimated of all."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from fepflow.analysis.ranges import is_of_passes, scale_of_aggregate
from fepflow.errors import CheckTimeoutError, JSONPathError
from fepflow.json.limits import finite
from fepflow.jsonpath.path import Path, compile_path
from fepflow.statistics.estimate import Counts, Estimate, Scale
from fepflow.statistics.means import CaseValue, estimate_of_cases, k_of_repeats, majority, mean_estimate, worst
from fepflow.statistics.quantiles import quantile_estimate
from fepflow.statistics.sequential import sequential_estimate
from fepflow.store.records import CheckCounts, CheckRow, StoredOutput
from fepflow.suite.aggregates import Aggregate
from fepflow.suite.models import Gate, Metric
from fepflow.text import plural
from fepflow.verdict.estimates import MetricEstimate


@dataclass
class MetricAccumulator:
    """What the results give for one metric, of the cases at `case_indices`, which have its check (or an output).

    `scale` is that of single values, None if it is not known.
    """

    metric: Metric
    scale: Scale | None
    case_indices: Sequence[int]
    repeats: int
    _aggregate: Aggregate = field(init=False)
    _path: Path | None = None
    _outside: int = 0
    _example: float = 0.0
    _values: dict[int, list[float]] = field(default_factory=dict)
    _errors: Counter[int] = field(default_factory=Counter)
    _skipped: Counter[int] = field(default_factory=Counter)
    _counted: CheckCounts | None = None

    def __post_init__(self) -> None:
        self._aggregate = self.metric.aggregated
        self._path = compile_path(self.metric.value) if self.metric.value else None

    @property
    def reads_results(self) -> bool:
        """Whether it takes its numbers from the results of a check."""
        return self._path is not None and self.metric.check is not None

    @property
    def reads_outputs(self) -> bool:
        """Whether it is about the target's outputs, and no check's results."""
        return self.metric.check is None

    @property
    def only_counts(self) -> bool:
        """Whether `add_counted` suffices, where cases are not repeated."""
        return self._path is None and self.metric.check is not None and self._aggregate.kind in ("mean", "rate")

    def add(self, row: CheckRow) -> None:
        """Take a check's result in."""
        value = None
        if row.status == "completed" and self._path is not None:
            value = _number(self._path, (row.result or {}).get("results"))
        elif row.status == "completed" and row.passed is not None:
            value = float(row.passed)
        self._add(row.case_index, value, in_error=row.status == "error", skipped=row.status == "skip")

    def add_output(self, case_index: int, stored: StoredOutput) -> None:
        """Take an output in; one that failed has no value."""
        value = None
        if self._path is not None and not stored.failed:
            output = {"value": stored.output.value, "metadata": stored.output.metadata or {}}
            value = _number(self._path, {"output": output})
        self._add(case_index, value, in_error=stored.failed)

    def add_counted(self, counts: CheckCounts) -> None:
        """As `add` for each of many results, of which no case has two: then it does not matter whose they are."""
        self._counted = counts

    def over(self, case_indices: Sequence[int]) -> MetricAccumulator:
        """The same of some of its cases only; results must have been added one by one."""
        part = MetricAccumulator(self.metric, self.scale, case_indices, self.repeats)
        part._values = {index: self._values[index] for index in case_indices if index in self._values}
        part._errors = Counter({index: self._errors[index] for index in case_indices if index in self._errors})
        part._skipped = Counter({index: self._skipped[index] for index in case_indices if index in self._skipped})
        return part

    def case_value(self, case_index: int) -> CaseValue:
        """What the repeats of one case come to, and between which values with those that are missing."""
        values, kind = self._values.get(case_index, []), self._aggregate.kind
        if self._aggregate.of_cases and self.scale is not None:
            return self._case_value(values)
        low, high = (self.scale.low, self.scale.high) if self.scale else (-math.inf, math.inf)
        ends = [[*values, *[end] * (self.repeats - len(values))] for end in (low, high)]
        least, most = (min(end) if kind == "worst" else math.fsum(end) / len(end) for end in ends)
        if not values or (kind == "worst" and len(values) < self.repeats):
            return CaseValue(None, least, most)
        return CaseValue(min(values) if kind == "worst" else math.fsum(values) / len(values), least, most)

    def estimate(self, gate: Gate) -> MetricEstimate:
        """The metric, with its interval over all that was expected; without a value if it cannot be computed."""
        counts = self._counts()
        try:
            estimate = self._estimate(counts, gate)
        except (ArithmeticError, ValueError) as error:
            problem = str(error) if isinstance(error, _UnusableError) else f"{type(error).__name__}: {error}"
            estimate = Estimate(None, None, None, None, gate.confidence, "none", counts, problem=problem)
        return MetricEstimate(
            self.metric.id,
            self.metric.check,
            estimate,
            of_passes=is_of_passes(self.metric),
            of_errors=self._aggregate.kind == "error_rate",
            warnings=list(self._warnings()),
        )

    def _add(self, case_index: int, value: float | None, *, in_error: bool, skipped: bool = False) -> None:
        """Count a result. One without a number within range counts as an error: it must not leave the denominator."""
        if self._aggregate.kind == "error_rate":
            value = None if skipped else float(in_error)
        elif self._aggregate.kind == "rate" and value is not None:
            value = self._is_within(value)
        if value is not None and self.scale is not None and not self.scale.holds(value):
            self._outside, self._example, value = self._outside + 1, value, None
        if value is not None:
            self._values.setdefault(case_index, []).append(value)
        elif skipped:
            self._skipped[case_index] += 1
        else:
            self._errors[case_index] += 1

    def _is_within(self, value: float) -> float:
        least, most = self.metric.at_least, self.metric.at_most
        if least is None and most is None:
            return value  # yes or no itself
        return float((least is None or value >= least) and (most is None or value <= most))

    def _counts(self) -> Counts:
        """Of results; of test cases if each gives one value."""
        if self._counted is not None:
            found = self._counted
            errors = found.error + found.unjudged
            return Counts(len(self.case_indices), found.passed + found.failed, errors, found.skipped)
        if self._aggregate.of_cases:
            return self._counts_of_cases()
        completed = sum(map(len, self._values.values()))
        expected = len(self.case_indices) * self.repeats
        return Counts(expected, completed, self._errors.total(), self._skipped.total())

    def _counts_of_cases(self) -> Counts:
        known = [self._is_known(self._values.get(index, ())) for index in self.case_indices]
        unknown = [index for index, is_known in zip(self.case_indices, known, strict=True) if not is_known]
        errors = sum(index in self._errors for index in unknown)
        skipped = sum(index in self._skipped and index not in self._errors for index in unknown)
        return Counts(len(known), sum(known), errors, skipped)

    def _is_known(self, values: Sequence[float]) -> bool:
        """Whether what is missing of a case cannot change its value."""
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
        if kind == "worst":
            assert self.scale is not None
            return worst(values, self.repeats, self.scale)
        return k_of_repeats(values, self.repeats, k, every=kind == "pass_hat_k")

    def _estimate(self, counts: Counts, gate: Gate) -> Estimate:
        aggregate = self._aggregate
        if self._is_impossible:
            raise _UnusableError(
                f"{self.metric.aggregate} takes {aggregate.k} repeats of each case, and there {_are(self.repeats)}"
            )
        if aggregate.of_cases and self.scale is not None:
            cases = [self._case_value(self._values.get(index, ())) for index in self.case_indices]
            scale = scale_of_aggregate(self.metric, self.scale)
            assert scale is not None
            return estimate_of_cases(cases, counts, gate.confidence, scale, gate.interval)
        if aggregate.of_cases:  # the worst of values without a known range
            found: list[Sequence[float]] = [
                [min(values)] for values in self._values.values() if len(values) == self.repeats
            ]
        elif self._counted is not None:
            found = [*repeat((1.0,), self._counted.passed), *repeat((0.0,), self._counted.failed)]
        else:
            found = list(self._values.values())
        # A case without results is in the sample, too.
        by_case = [*found, *repeat((), len(self.case_indices) - len(found))]
        if aggregate.kind == "quantile":
            return quantile_estimate(by_case, counts, aggregate.level, gate.confidence, self.scale)
        estimate = mean_estimate(by_case, counts, gate.confidence, self.scale, gate.interval)
        if gate.top_up is None or self.scale is None:
            return estimate
        these_cases = gate.top_up.max_repeats is not None
        return sequential_estimate(estimate, by_case, self.repeats, self.scale, these_cases=these_cases)

    def _warnings(self) -> Iterator[str]:
        if self._outside and self.scale is not None:
            ends = f"{self.scale.low:g} to {self.scale.high:g}"
            what = "that are neither yes nor no" if self.scale.binary else f"outside of the range {ends}"
            advice = "give at_least or at_most" if self.scale.binary else "correct the check, or the metric's range"
            yield (
                f"{self.metric.id}: {plural(self._outside, 'value')} {what}, such as {self._example:g}, "
                f"count as errors: {advice}."
            )


class _UnusableError(ValueError):
    """Why a metric cannot be computed, in words for its user."""


def _are(repeats: int) -> str:
    return "is 1" if repeats == 1 else f"are {repeats}"


def _number(path: Path, document: Any) -> float | None:
    if document is None:
        return None
    try:
        return finite(path.resolve(document))
    except (JSONPathError, CheckTimeoutError):
        return None
