"""EvalGuard definitions, as files hold them (EvalGuard 4.1 to 4.3), and the impact of a metric's value (4.3.3).

Values are taken as they are: a number in quotes or a boolean is not a number, a number is not an identifier, an
unknown field is an error. References between definitions are checked where all of them are at hand.

A range holds the values from its `min` (inclusive) to its `max` (exclusive). Where ranges overlap, the worst impact
counts; where no range is, there is no impact, and a reason instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from fepflow.protocol.content_hash import content_hash
from fepflow.suite.models import IMPACTS, Impact

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
