"""The slices of a run's test cases: those whose metadata has the same value of a field."""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fepflow.analysis.accumulator import MetricAccumulator
from fepflow.analysis.ranges import is_share_that_passed, scale_of_aggregate
from fepflow.protocol.test_case import TestCase
from fepflow.suite.models import Gate, Metric, Slices
from fepflow.text import cut
from fepflow.verdict.slice_rules import SliceEstimate

NONE = "(none)"
"""The slice of the cases that do not have the field."""

MAX_TEXT = 100


def slice_of(case: TestCase, by: str) -> str:
    """The slice that a case belongs to."""
    value: Any = (case.metadata or {}).get(by)
    if value is None:
        return NONE
    return cut(value if isinstance(value, str) else json.dumps(value, sort_keys=True), MAX_TEXT)


def minima_of(slices: Slices, metrics: Sequence[Metric]) -> dict[str, float]:
    """What metrics have to reach in each slice, by metric: a plain number is for all shares that passed."""
    if isinstance(slices.min, dict):
        return slices.min
    if slices.min is None:
        return {}
    return {metric.id: slices.min for metric in metrics if is_share_that_passed(metric)}


@dataclass
class SlicedCases:
    """The slices of the cases, by index, as they are read."""

    by: str
    _names: dict[str, int] = field(default_factory=dict)
    _of_cases: array[int] = field(default_factory=lambda: array("L"))

    def add(self, case: TestCase) -> None:
        """Take in the next case."""
        self._of_cases.append(self._names.setdefault(slice_of(case, self.by), len(self._names)))

    def estimates(self, accumulators: Sequence[MetricAccumulator], gate: Gate) -> list[SliceEstimate]:
        """Each metric in each slice that has cases of it."""
        found = []
        for accumulator in accumulators:
            parts: dict[int, array[int]] = {}
            for case_index in accumulator.case_indices:
                parts.setdefault(self._of_cases[case_index], array("Q")).append(case_index)
            scale = scale_of_aggregate(accumulator.metric, accumulator.scale)
            found += [
                SliceEstimate(accumulator.over(parts[number]).estimate(gate), self.by, name, len(parts[number]), scale)
                for name, number in sorted(self._names.items())
                if number in parts
            ]
        return found
