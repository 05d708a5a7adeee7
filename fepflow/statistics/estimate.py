"""The estimate of a metric from a sample: a value, its interval, the counts of results, and the scale of values."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from fepflow.text import number, percent, plural

Method = Literal[
    "wilson",
    "wilson-clustered",
    "clopper-pearson",
    "clopper-pearson-clustered",
    "bounded",
    "bounded-skewed",
    "bounded-exact",
    "bounded-clustered",
    "t",
    "t-clustered",
    "normal",
    "order-statistics",
    "order-statistics-clustered",
    "rogan-gladen",
    "mover",
    "tango",
    "paired-t",
    "paired-t-clustered",
    "paired-bounded",
    "paired-bounded-clustered",
    "sequential",
    "sequential-clustered",
    "sequential-these-cases",
    "sequential-few-looks",
    "paired-rogan-gladen",
    "classification",
    "none",
]
"""Method by which an interval was computed.

`wilson` and `clopper-pearson` are of a proportion; `bounded`, `bounded-skewed` and `bounded-exact` of a mean of scores
with a range, `t` Student's of a mean without one, which only describes; `order-statistics` of a quantile,
`rogan-gladen` and `mover` of a share that a judge passed, corrected for its errors. `tango`, `paired-t` and
`paired-bounded` are of a difference between two runs, `paired-rogan-gladen` of one of shares that a judge passed,
corrected. `-clustered` says that cases were repeated, or belong together (the suite's `cluster`), and the interval
allows for it. `normal` is of a value and a standard error that somebody else has computed. `sequential` holds however
often it is looked at, of all such test cases or of these alone; `sequential-few-looks` at a few planned looks.
`classification` is of precision, recall and F1. `none`: no value.
"""


@dataclass(frozen=True, slots=True)
class Clusters:
    """The clusters (documents, conversations, users) of a metric's test cases.

    `number` is their number, `noun` the name of one, `worth` the number of clusters of equal size that they are worth:
    one large cluster beside many small ones tells about as little as it would alone (Kish 1965).
    """

    number: int
    worth: float
    noun: str

    @classmethod
    def of(cls, sizes: Collection[int], noun: str) -> Clusters:
        """Return clusters with these numbers of test cases."""
        return cls(len(sizes), sum(sizes) ** 2 / max(sum(size * size for size in sizes), 1), noun)


@dataclass(frozen=True, slots=True)
class Counts:
    """The expected results of one metric, and their ends.

    A result without a usable number (NaN, an infinity) counts as an error. Results that are neither `completed`,
    `error` nor `skipped` never came. `clusters` is None if test cases are independent. Raises ValueError on impossible
    counts.
    """

    expected: int
    completed: int
    error: int = 0
    skipped: int = 0
    clusters: Clusters | None = None

    def __post_init__(self) -> None:
        if min(self.expected, self.completed, self.error, self.skipped) < 0:
            raise ValueError(f"counts cannot be negative: {self}")
        if self.completed + self.error + self.skipped > self.expected:
            raise ValueError(f"more results than were expected: {self}")

    @property
    def missing(self) -> int:
        """The number of expected results without a value."""
        return self.expected - self.completed


class Sample(Protocol):
    """The data of an estimate: enough for its interval at another confidence, or another number of test cases.

    If test cases are in clusters, `cases` counts these.
    """

    @property
    def cases(self) -> int:
        """The number of its test cases, including those without a value."""

    def estimate(self, confidence: float) -> Estimate:
        """Return the estimate at this confidence."""

    def with_cases(self, cases: int, confidence: float) -> tuple[float | None, float | None]:
        """Return the bounds of a complete sample of this many similar test cases."""


USUAL_CONFIDENCE = 0.95

FIGURES = ("low", "high", "confidence", "method", "n_expected", "n_completed")
"""Names of the figures of a difference, beside its value."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean (or a quantile) over completed results, with its interval over expected results.

    `value` and `stderr` are in the metric's own unit, and None if the sample is too small (no value; fewer than two
    test cases). `low` and `high` bound it at `confidence` (0 to 1, two-sided); None is no bound on that side. `least`
    and `most` are its values if all missing results were at either end of the range. `warning` says why the interval
    only describes, and decides nothing; `problem` why nothing could be computed. Raises ValueError on NaN and
    infinities, which would slip through any comparison.
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
        for figure in (self.value, self.stderr, self.low, self.high, self.least, self.most):
            if figure is not None and not math.isfinite(figure):
                raise ValueError(f"an estimate is made of finite numbers, or None: {self}")

    @classmethod
    def unknown(cls, confidence: float, counts: Counts, problem: str | None = None) -> Estimate:
        """Return an estimate without a value."""
        return cls(None, None, None, None, confidence, "none", counts, problem=problem)

    def figures(self, *names: str) -> dict[str, Any]:
        """Return these figures and counts (`n_completed`) by name, for verdicts and reports."""
        counts = self.counts
        own = {name: getattr(self, name) for name in ("value", "stderr", "low", "high", "confidence", "method")}
        of_counts = {f"n_{name}": getattr(counts, name) for name in ("expected", "completed", "error", "skipped")}
        figures = {**own, **of_counts, "n_clusters": counts.clusters.number if counts.clusters else None}
        return {name: figures[name] for name in names} if names else figures

    @property
    def is_proportion(self) -> bool:
        """True for a share of results that passed."""
        return self.method.startswith(("wilson", "clopper"))

    @property
    def is_corrected(self) -> bool:
        """True for a judge's share, or a difference of it, corrected for the judge's errors."""
        return self.method in ("rogan-gladen", "mover", "paired-rogan-gladen")

    @property
    def is_difference(self) -> bool:
        """True for a difference between two runs."""
        return self.method == "tango" or self.method.startswith("paired")

    @property
    def point_range(self) -> tuple[float, float]:
        """The smallest and largest possible mean, depending on the missing results."""
        if self.value is not None and not self.counts.missing:
            return self.value, self.value
        return -math.inf if self.least is None else self.least, math.inf if self.most is None else self.most

    @property
    def interval(self) -> tuple[float, float]:
        """The bounds for rules: `low` and `high`, an infinity if there is none."""
        if self.warning is not None:
            return -math.inf, math.inf
        return -math.inf if self.low is None else self.low, math.inf if self.high is None else self.high

    def at(self, confidence: float) -> Estimate:
        """Return the estimate at another confidence."""
        return self if self.sample is None or confidence == self.confidence else self.sample.estimate(confidence)


@dataclass(frozen=True, slots=True)
class Scale:
    """The range of a metric's values, both ends included; `binary` if only 0 and 1 are possible."""

    low: float
    high: float
    binary: bool = False

    def holds(self, value: float) -> bool:
        """Return whether a value is possible for this metric."""
        return value in (self.low, self.high) if self.binary else self.low <= value <= self.high

    def share(self, value: float) -> float:
        """Return where a value lies, from 0 at the low end to 1 at the high one; halved first, as a range may be
        huge."""
        return (value / 2 - self.low / 2) / (self.high / 2 - self.low / 2)

    def value(self, share: float) -> float:
        """Return the value at a `share` of the range."""
        return self.low * (1 - share) + self.high * share


PROPORTION = Scale(0.0, 1.0, binary=True)
"""Passed or not."""


RANGE_UNKNOWN = "it is not known how large or small a single value can be, so no number of test cases shows it"
RANGE_ADVICE = (
    "declare range: [least, most] of the metric, or judge a rate (aggregate: rate, at_most: 2000 is the share of "
    "values up to 2000) or a percentile (aggregate: p95)"
)
UNBOUNDED = f"{RANGE_UNKNOWN}: {RANGE_ADVICE}"
"""Why a mean without a known range is shown and never judged: one value that is rare and large enough changes it by
any amount, and no sample tells that there is none (Bahadur and Savage 1956)."""


def describe(estimate: Estimate, limit: float | None = None) -> str:
    """Return `0.93 (95 % interval 0.8625 to 0.9657, n = 100)`, never rounded onto `limit`, with which it is compared.

    A difference between two runs is called so.
    """
    is_unknown = estimate.value is not None and estimate.counts.completed == 0
    size = (
        "n not known"
        if is_unknown
        else _size(estimate.counts, "not matched" if estimate.is_difference else "never came")
    )
    if estimate.value is None:
        return f"no value ({size})"
    width = percent(estimate.confidence)
    value = number(estimate.value, limit)
    value = f"a difference of {value}" if estimate.is_difference else value
    ends = [(word, bound) for word, bound in (("from", estimate.low), ("to", estimate.high)) if bound is not None]
    if not ends:
        return f"{value} (no {width} interval, {size})"
    interval = " ".join(f"{word} {number(bound, limit)}" for word, bound in ends)
    interval = interval if len(ends) == 1 else interval.removeprefix("from ")
    interval = f"{interval}, corrected for its judge's errors" if estimate.is_corrected else interval
    return f"{value} ({width} interval {interval}, {size})"


def _size(counts: Counts, absent: str) -> str:
    clusters = f" in {plural(counts.clusters.number, counts.clusters.noun)}" if counts.clusters else ""
    if not counts.missing:
        return f"n = {counts.completed}{clusters}"
    never_came = counts.missing - counts.error - counts.skipped
    parts = [(plural(counts.error, "error"), counts.error), (f"{counts.skipped} skipped", counts.skipped)]
    parts.append((f"{never_came} {absent}", never_came))
    return f"n = {counts.completed} of {counts.expected}{clusters}: {', '.join(text for text, count in parts if count)}"
