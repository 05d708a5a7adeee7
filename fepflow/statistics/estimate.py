"""What a sample says about a metric: a value, its interval, and how much of the sample is there."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, Protocol

Method = Literal[
    "wilson",
    "wilson-clustered",
    "clopper-pearson",
    "clopper-pearson-clustered",
    "bounded",
    "t",
    "t-clustered",
    "normal",
    "order-statistics",
    "order-statistics-clustered",
    "rogan-gladen",
    "mover",
    "tango",
    "paired-t",
    "paired-bounded",
    "sequential",
    "sequential-these-cases",
    "paired-rogan-gladen",
    "none",
]
"""How an interval came about.

`wilson` and `clopper-pearson` are of a proportion, `bounded` of a mean of scores with a range, `t` Student's of a mean
without one, `order-statistics` of a quantile, `rogan-gladen` and `mover` of a share that a judge passed, corrected for
its errors; `tango`, `paired-t` and `paired-bounded` are of a difference between two runs, `paired-rogan-gladen` of one
of shares that a judge passed, corrected. `-clustered` says that cases were repeated and the interval allows for it.
`normal` is of a value and a standard error that somebody else has computed. `sequential` holds however often it is
looked at, of all such test cases or of these alone. `none`: no value.
"""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many results of one metric were expected, and what became of them.

    A result without a usable number (NaN, an infinity) counts as an error. Those that are in none of `completed`,
    `error` and `skipped` never came. ValueError on counts that cannot be.
    """

    expected: int
    completed: int
    error: int = 0
    skipped: int = 0

    def __post_init__(self) -> None:
        if min(self.expected, self.completed, self.error, self.skipped) < 0:
            raise ValueError(f"counts cannot be negative: {self}")
        if self.completed + self.error + self.skipped > self.expected:
            raise ValueError(f"more results than were expected: {self}")

    @property
    def missing(self) -> int:
        """Expected, but without a value."""
        return self.expected - self.completed


class Sample(Protocol):
    """What an estimate was made of: enough for its interval at another confidence, or another number of test cases."""

    @property
    def cases(self) -> int:
        """How many test cases are in it, those without a value too."""

    def estimate(self, confidence: float) -> Estimate:
        """The estimate at this confidence."""

    def with_cases(self, cases: int, confidence: float) -> tuple[float | None, float | None]:
        """The bounds that a complete sample of so many test cases like these would have."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean (or a quantile) over what completed, with its interval over what was expected.

    `value` and `stderr` are in the metric's own unit and None where the sample is too small (no value; fewer than two
    test cases). `low` and `high` bound it at `confidence` (0 to 1, two-sided); None is no bound on that side.
    `least` and `most` are what it is if all that is missing were at either end of the range. `warning` says why the
    interval may not show that a gate is met, `problem` why nothing could be computed.
    ValueError on NaN and infinities, which would slip through any comparison.
    """

    value: float | None
    stderr: float | None
    low: float | None
    high: float | None
    confidence: float
    method: Method
    counts: Counts
    least: float | None = None
    most: float | None = None
    warning: str | None = None
    problem: str | None = None
    sample: Sample | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        for number in (self.value, self.stderr, self.low, self.high, self.least, self.most):
            if number is not None and not math.isfinite(number):
                raise ValueError(f"an estimate is made of finite numbers, or None: {self}")

    @property
    def is_proportion(self) -> bool:
        """Whether it is the share of results that passed."""
        return self.method.startswith(("wilson", "clopper"))

    @property
    def point_range(self) -> tuple[float, float]:
        """The values that the mean would have with everything that is missing, from the least to the most."""
        if self.value is not None and not self.counts.missing:
            return self.value, self.value
        return -math.inf if self.least is None else self.least, math.inf if self.most is None else self.most

    @property
    def interval(self) -> tuple[float, float]:
        """`low` and `high`, an infinity where there is no bound."""
        return -math.inf if self.low is None else self.low, math.inf if self.high is None else self.high

    def at(self, confidence: float) -> Estimate:
        """The same at another confidence."""
        return self if self.sample is None or confidence == self.confidence else self.sample.estimate(confidence)
