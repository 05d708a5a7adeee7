"""EvalGuard definitions, as files hold them (EvalGuard 4.1 to 4.3).

Values are taken as they are: a number in quotes or a boolean is not a number, a number is not an identifier, an
unknown field is an error. References between definitions are checked where all of them are at hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

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
