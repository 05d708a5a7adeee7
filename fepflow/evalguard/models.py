"""EvalGuard definitions and reports, as files hold them (EvalGuard 4.1 to 4.4), and the impact of a metric's value
(4.3.3).

Values are taken as they are: a number in quotes or a boolean is not a number, a number is not an identifier, an
unknown field is an error. References between definitions are checked where all of them are at hand.

A range holds the values from its `min` (inclusive) to its `max` (exclusive). Where ranges overlap, the worst impact
counts; where no range is, there is no impact, and a reason instead.

Upstream's own tools write tasks and results of a report by name, too (`{task: {metric: {value: …}}}`); `flattened`
brings those into the form of the specification.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, model_validator
from pydantic_core import PydanticCustomError

from fepflow.json.values import finite
from fepflow.protocol.content_hash import content_hash
from fepflow.suite.models import IMPACTS, Impact
from fepflow.text import brief

Identifier = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]
"""Letters, digits, underscores and hyphens, nothing else (EvalGuard 4.1.3, 4.2.4)."""

Direction = Literal["higher_is_better", "lower_is_better"]
Number = Annotated[float, Field(allow_inf_nan=False)]


class Definition(BaseModel):
    """The base of all EvalGuard models."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class Range(Definition):
    """The values from `min` (inclusive) to `max` (exclusive) mean `impact`; an absent bound is none (4.3.3)."""

    impact: Impact
    min: Number | None = None
    max: Number | None = None
    interpretation: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _impact_was_once_label(cls, data: Any) -> Any:
        if isinstance(data, dict) and "label" in data and "impact" not in data:
            raise PydanticCustomError("label", f"has a label, but no impact: write impact, one of {', '.join(IMPACTS)}")
        return data

    @model_validator(mode="after")
    def _bounded(self) -> Range:
        if self.min is None and self.max is None:
            raise PydanticCustomError("unbounded", "has neither min (inclusive) nor max (exclusive)")
        return self

    def holds(self, value: float) -> bool:
        """Return whether `value` lies in this range; NaN lies in none."""
        return (self.min is None or value >= self.min) and (self.max is None or value < self.max) and value == value

    @property
    def empty(self) -> bool:
        """True if no value at all lies in this range."""
        return self.min is not None and self.max is not None and self.min >= self.max

    def __str__(self) -> str:
        low = "-inf" if self.min is None else f"{self.min:.15g}"
        high = "inf" if self.max is None else f"{self.max:.15g}"
        return f"{self.impact} [{low}, {high})"


class Thresholds(Definition):
    """The meaning of the values of a task's metrics: ranges by metric id (4.3)."""

    task: Identifier
    thresholds: dict[Identifier, list[Range]]


class Policy(Definition):
    """Thresholds of several tasks: ranges by task and metric id. Newer than v1, whose threshold files have one task."""

    id: Identifier
    name: str
    description: str | None = None
    thresholds: dict[Identifier, dict[Identifier, list[Range]]] = {}

    def by_task(self) -> list[Thresholds]:
        """Return the same as v1 has it."""
        return [Thresholds(task=task, thresholds=ranges) for task, ranges in self.thresholds.items()]


class Task(Definition):
    """Something that a model is evaluated on, and the ids of the metrics that apply to it (4.1)."""

    id: Identifier
    name: str
    metrics: list[Identifier]
    description: str | None = None
    category: str | None = None
    tags: list[str] | None = None
    languages: list[str] | None = None


class Metric(Definition):
    """A measurable quantity, and which way is better (4.2)."""

    id: Identifier
    name: str
    direction: Direction
    description: str | None = None
    type: Literal["percentage", "score", "count", "time", "other"] | None = None
    tags: list[str] | None = None


def thresholds_digest(thresholds: Iterable[Thresholds]) -> str:
    """Return the SHA-256 of the thresholds of some tasks, 64 hexadecimal digits.

    It depends on what they say, not on how the files are written: not on the order of tasks, metrics and ranges, not on
    comments, and not on whether a bound is written 1 or 1.0.
    """
    return content_hash({of_task.task: _canonical(of_task) for of_task in thresholds})


def _canonical(thresholds: Thresholds) -> dict[str, Any]:
    return {
        metric: sorted(
            (range_.model_dump(exclude_none=True) for range_ in ranges),
            key=lambda range_: sorted(map(str, range_.items())),
        )
        for metric, ranges in thresholds.thresholds.items()
    }


def severity(impact: Impact) -> int:
    """Return the impact's rank, from 0 (`no_measurable`) to 5 (`severe`)."""
    return IMPACTS.index(impact)


def worst(impacts: Iterable[Impact]) -> Impact | None:
    """Return the most severe of `impacts`; None if there are none."""
    return max(impacts, key=severity, default=None)


@dataclass(frozen=True, slots=True)
class ImpactAssessment:
    """The meaning of a value: an `impact` with its `interpretation`, or the `reason` why it has none."""

    impact: Impact | None
    reason: str | None = None
    interpretation: str | None = None
    overlapping: bool = False


@dataclass(frozen=True, slots=True)
class ImpactRange:
    """The impacts that an interval touches; `gap` if a part of it lies in no range."""

    impacts: frozenset[Impact]
    gap: bool


def assess(value: float | None, ranges: Sequence[Range]) -> ImpactAssessment:
    """Return the impact of `value`. `overlapping` says that several ranges with different impacts hold it."""
    if value is None:
        return ImpactAssessment(None, "there is no value")
    if math.isnan(value):
        return ImpactAssessment(None, "the value is not a number")
    holding = [item for item in ranges if item.holds(value)]
    if not holding:
        return ImpactAssessment(None, f"no range holds {value:.15g}")
    decisive = max(holding, key=lambda item: severity(item.impact))
    overlapping = len({item.impact for item in holding}) > 1
    return ImpactAssessment(decisive.impact, None, decisive.interpretation, overlapping)


def impact_range(low: float | None, high: float | None, ranges: Sequence[Range]) -> ImpactRange:
    """Return the impacts that values from `low` to `high`, both included, may have; None is no bound on that side.

    Ranges are half-open, so the impact changes at their bounds only, and holds from each bound on.
    """
    bottom = -math.inf if low is None else low
    top = math.inf if high is None else high
    bounds = {bound for item in ranges for bound in (item.min, item.max) if bound is not None}
    met = [assess(point, ranges).impact for point in {bottom, *(bound for bound in bounds if bottom < bound <= top)}]
    return ImpactRange(frozenset(impact for impact in met if impact is not None), None in met)


def _floor(item: Range) -> float:
    return -math.inf if item.min is None else item.min


def _ceiling(item: Range) -> float:
    return math.inf if item.max is None else item.max


class RangeWarning(NamedTuple):
    """A warning about ranges of a metric, with EvalGuard's rule; `place` is the index of the range, if it is of one."""

    message: str
    advice: str
    rule: str = "4.3.3"
    place: int | None = None


def check_ranges(ranges: Sequence[Range], direction: Direction | None = None) -> Iterator[RangeWarning]:
    """Warn of ranges that are valid, but under which some value gets no impact or a surprising one.

    Without a `direction` either one is accepted, but one it must be.
    """
    for index, item in enumerate(ranges):
        if item.empty:
            yield RangeWarning(f"{item} holds no value", "min must be below max", place=index)
    ordered = sorted((item for item in ranges if not item.empty), key=lambda item: (_floor(item), _ceiling(item)))
    if not ordered:
        yield RangeWarning("has no ranges that hold a value", "add at least one")
        return
    bottom, top = _floor(ordered[0]), max(map(_ceiling, ordered))
    if bottom > -math.inf:
        yield RangeWarning(f"values below {bottom:.15g} are in no range", "leave out the lowest min")
    if top < math.inf:
        message = f"values from {top:.15g} on, {top:.15g} included, are in no range"
        yield RangeWarning(message, "leave out the highest max: it is exclusive")
    previous = ordered[0]
    for item in ordered[1:]:
        if _floor(item) > _ceiling(previous):
            message = f"values from {_ceiling(previous):.15g} to below {_floor(item):.15g} are in no range"
            yield RangeWarning(message, f"close the gap between {previous} and {item}")
        elif _floor(item) < _ceiling(previous):
            yield RangeWarning(f"{previous} and {item} overlap", "in both, the worse impact counts", "5.4")
        previous = max(previous, item, key=_ceiling)
    yield from _order_warnings(ordered, direction)


def _order_warnings(ordered: Sequence[Range], direction: Direction | None) -> Iterator[RangeWarning]:
    ranks = [severity(item.impact) for item in ordered]
    falls = all(later <= earlier for earlier, later in pairwise(ranks))
    rises = all(later >= earlier for earlier, later in pairwise(ranks))
    followed = {"higher_is_better": falls, "lower_is_better": rises, None: falls or rises}
    if followed[direction]:
        return
    if direction is None:
        message = "the impact neither only rises nor only falls with the value"
    else:
        wrong_way = "rise" if direction == "higher_is_better" else "fall"
        message = f"the metric is {direction}, so the impact must not {wrong_way} as the value grows"
    yield RangeWarning(message, "check the impacts, and the metric's direction", "4.2.2")


def scale_mismatch(value: float, ranges: Sequence[Range], proportion: bool) -> str | None:
    """Return a sentence if `value` and `ranges` seem to be a fraction (0 to 1) and a percentage (0 to 100), or the
    reverse.

    `proportion` says that the value is known to lie within 0 and 1. Nothing is ever rescaled.
    """
    bounds = [abs(bound) for item in ranges for bound in (item.min, item.max) if bound is not None]
    if proportion and max(bounds, default=0) > 1:
        return (
            f"the value {value:.15g} is a fraction, but the ranges go up to {max(bounds):.15g}: are they percentages?"
        )
    if 1 < value <= 100 and 0 < max(bounds, default=0) <= 1:
        return f"the ranges lie within 0 and 1, but the value is {value:.15g}: is it a percentage?"
    return None


# --- evaluation reports ----------------------------------------------------------------------------------------------


def _finite(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("float_type", "must be a number")
    if finite(value) is None:
        raise PydanticCustomError("finite_number", "must be a finite number")
    return value


def _not_negative(value: Any) -> Any:
    if _finite(value) < 0:
        raise PydanticCustomError("negative", "must not be negative")
    return value


Numeric = Annotated[int | float, PlainValidator(_finite)]
"""A number that stays whole where it is, so that a report is written as it was read."""


class MetricResult(Definition):
    """A metric's value and its standard error, None where it is not known (4.4.6)."""

    value: Numeric
    stderr: Annotated[int | float, PlainValidator(_not_negative)] | None = None


class Execution(Definition):
    """The arguments that the model was instantiated with (4.4.4)."""

    model_args_plain: str | None = None
    model_args_dict: dict[str, str] | None = None


class Context(Definition):
    """The model and tools of an evaluation, and its `date` in seconds since the epoch (4.4.3)."""

    model_name: str | None = None
    model_source: str | None = None
    git_hash: str | None = None
    date: Numeric | None = None
    execution: Execution | None = None
    tools: dict[str, Any] | None = None


class ReportTask(Definition):
    """A task as it was evaluated (4.4.5)."""

    task_ref: str | None = None
    dataset_path: str | None = None
    dataset_name: str | None = None
    output_type: str | None = None
    repeats: Numeric | None = None
    should_decontaminate: bool | None = None
    unsafe_code: bool | None = None
    n_shot: Numeric | None = None
    n_samples: dict[str, Numeric] | None = None
    version: Numeric | None = None
    metadata: dict[str, Any] | None = None


class Report(Definition):
    """Results of the evaluation of a model (4.4.2); which task a result belongs to, `pairs` says."""

    id: str | None = None
    metadata: dict[str, Any] | None = None
    context: Context | None = None
    tasks: list[ReportTask] | None = None
    results: list[dict[Identifier, MetricResult]] | None = None

    def pairs(self) -> Iterator[tuple[ReportTask, dict[str, MetricResult]]]:
        """Yield each task with its results: those at its index, or all of them if it is the only task.

        Raises ValueError, with a sentence, if it cannot be told to which task a result belongs.
        """
        tasks, results = self.tasks or [], self.results or []
        if len(tasks) == 1 and len(results) != 1:
            yield from ((tasks[0], result) for result in results)
        elif len(tasks) == len(results):
            yield from zip(tasks, results, strict=True)
        elif results:
            raise ValueError(f"it is unclear to which of {len(tasks)} tasks the {len(results)} results belong")

    def to_json(self) -> dict[str, Any]:
        """Return the report as a document holds it, without unknown fields."""
        return self.model_dump(mode="json", exclude_none=True)


def metrics_of(document: Mapping[str, Any]) -> Iterator[tuple[str | None, str | None, Mapping[str, Any]]]:
    """Yield the tasks' references and metrics of a report's document, with value and standard error.

    A task without values is there once, with None as its metric; None is the task of what belongs to none.
    """
    tasks, results = document.get("tasks") or [], document.get("results") or []
    refs: list[str | None] = [task.get("task_ref") for task in tasks]
    if len(refs) == 1:
        refs *= max(len(results), 1)
    elif len(refs) != len(results):
        results = [*({} for _ in refs), *results]
    for ref, metrics in zip_longest(refs, results, fillvalue=None):
        yield from ((ref, name, fields) for name, fields in (metrics or {}).items())
        if not metrics:
            yield ref, None, {}


def flattened(data: Any) -> Any:
    """Return a report whose tasks or results are mappings by name in the form of the specification; anything else as it
    is."""
    if not isinstance(data, Mapping):
        return data
    tasks = _flat_tasks(data.get("tasks"))
    by_name = _results_by_name(data.get("results"))
    if by_name is None:
        return {**data, "tasks": tasks} if tasks is not data.get("tasks") else data
    if tasks is None:
        tasks = []
    if not isinstance(tasks, list):
        return data
    known = [_ref(task) for task in tasks]
    tasks = [*tasks, *({"task_ref": name} for name in by_name if name not in known)]
    refs = [*known, *(name for name in by_name if name not in known)]
    return {**data, "tasks": tasks, "results": [by_name.get(ref, {}) if ref is not None else {} for ref in refs]}


def _ref(task: Any) -> str | None:
    ref = task.get("task_ref") if isinstance(task, Mapping) else None
    return ref if isinstance(ref, str) else None


def _flat_tasks(tasks: Any) -> Any:
    if isinstance(tasks, Mapping):
        tasks = [{name: task} for name, task in tasks.items()]
    elif not isinstance(tasks, list) or not any(map(_is_named_task, tasks)):
        return tasks
    return [flat for task in tasks for flat in (_with_refs(task) if _is_named_task(task) else [task])]


def _with_refs(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"task_ref": name, **fields} for name, fields in task.items()]


def _is_named_task(task: Any) -> bool:
    return (
        isinstance(task, Mapping)
        and bool(task)
        and all(isinstance(fields, Mapping) for fields in task.values())
        and set(task).isdisjoint(ReportTask.model_fields)
    )


def _results_by_name(results: Any) -> dict[str, Any] | None:
    """Return the metrics by task; None if results are not by name."""
    items = [results] if isinstance(results, Mapping) else results
    if not isinstance(items, list) or not items or not all(map(_is_named_result, items)):
        return None
    by_name: dict[str, Any] = {}
    for item in items:
        for name, metrics in item.items():
            by_name[name] = {**by_name.get(name, {}), **metrics}
    return by_name


def _is_named_result(result: Any) -> bool:
    """Return whether a result has metrics by task: a mapping of mappings, none of which is a value itself."""
    return (
        isinstance(result, Mapping)
        and bool(result)
        and all(isinstance(metrics, Mapping) and "value" not in metrics for metrics in result.values())
        and all(isinstance(fields, Mapping) for metrics in result.values() for fields in metrics.values())
        and any(metrics for metrics in result.values())
    )


NO_VALUE = "no_value."
"""Prefix of the entries of `metadata` that say why a metric has no value."""

MISSING = "missing."
"""Prefix of the entries of `metadata` that say how many results of a metric are missing, as in `3 of 120`."""

RANGE = "range."
"""Prefix of the entries of `metadata` that say between which values a metric's single values lie, as in `0 to 5`."""

EVALUATOR = "fepflow"
"""The `evaluator` in the `metadata` of a report that was made of a run of ours."""

NOT_AVAILABLE = "N/A"
"""Word of lm-evaluation-harness where there is no standard error."""


def why_no_number(value: Any) -> str | None:
    """Say why a value is not a finite number; return None if it is one."""
    if value is None:
        return "there is none"
    is_number = not isinstance(value, bool) and finite(value) is not None
    return None if is_number else f"{brief(repr(value), 40)} is not a finite number"


def usable_results(raw: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, str], list[str]]:
    """Return the metrics that have a value, why the others have none, and warnings."""
    results: dict[str, Any] = {}
    no_value: dict[str, str] = {}
    warnings = []
    for metric, fields in raw.items():
        if problem := why_no_number(fields.get("value")):
            no_value[f"{NO_VALUE}{metric}"] = problem
            warnings.append(f"{metric} has no value: {problem}")
            continue
        results[metric] = {name: value for name, value in fields.items() if name != "stderr"}
        stderr = fields.get("stderr")
        if stderr is None or stderr == NOT_AVAILABLE:
            continue
        problem = why_no_number(stderr) or ("it is negative" if stderr < 0 else None)
        if problem:
            warnings.append(f"the standard error of {metric} is not used: {problem}")
        else:
            results[metric]["stderr"] = stderr
    return results, no_value, warnings
