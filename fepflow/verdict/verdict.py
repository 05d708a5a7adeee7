"""The verdict of a run as data, and the estimates and counts that a gate makes it of.

A verdict has the outcome, the gate, the reasons, the rules, and the result of every metric.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict

from fepflow.statistics.estimate import Estimate, Method
from fepflow.suite.models import Impact


@dataclass(frozen=True, slots=True)
class MetricEstimate:
    """A metric of the suite, the check that it is computed from (None: the outputs), and its estimate.

    `of_passes` if it is made of results that passed or not, and no scores; `of_errors` if of results in error or not,
    so that it does not judge the check. `by_judge` if it is the share that a judge passed; then `corrected` is that
    for the errors which the judge is known to make, None if nothing is known of them, or if there are labels that
    cannot tell: then `doubt` says why, as a part of a sentence. `warnings` are sentences about its values.
    """

    id: str
    check_id: str | None
    estimate: Estimate
    of_passes: bool = True
    of_errors: bool = False
    by_judge: bool = False
    corrected: Estimate | None = None
    doubt: str | None = None
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class CheckTotals:
    """The counts of the results of one check; `unjudged` completed without a pass or fail (a score, say)."""

    check_id: str
    expected: int
    passed: int = 0
    failed: int = 0
    error: int = 0
    skipped: int = 0
    unjudged: int = 0

    @property
    def never_came(self) -> int:
        """Expected, but nothing is there."""
        return max(self.expected - self.passed - self.failed - self.error - self.skipped - self.unjudged, 0)


Outcome = Literal["pass", "fail", "inconclusive"]
Mode = Literal["interval", "point"]


class Part(BaseModel):
    """A part of a verdict: it never changes, and has no unknown fields. It is stored without fields that are None."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class CorrectedShare(Part):
    """A share that is right, or its difference from another run, corrected for a judge's errors, with its interval.

    `method` is `rogan-gladen` for labels from elsewhere, `mover` for labels drawn from this run, `paired-rogan-gladen`
    for a difference.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    method: Method

    @classmethod
    def of(cls, estimate: Estimate | None) -> CorrectedShare | None:
        """Return the share of a corrected estimate; None for None."""
        return None if estimate is None else cls(**estimate.figures(*cls.model_fields))


class PooledValue(Part):
    """A metric over all runs of a version together, by which it is judged."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float
    method: Method
    n_expected: int
    n_completed: int


class MetricVerdict(Part):
    """A metric: its estimate, its impact, and its outcome by the gate.

    `n_clusters` is the number of clusters of the test cases, None without the suite's `cluster`. `impact` is the
    value's, `worst_impact` the worst one in the interval; both are None without thresholds. `threshold` is the gate's
    minimum, `maximum` its maximum. These are None in some cases: `check` for a metric of the outputs, `corrected`
    without a calibrated judge, `outcome` without a rule in the gate, `pooled` if it is judged by this run alone.
    """

    id: str
    check: str | None = None
    value: float | None = None
    stderr: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float
    method: Method
    n_expected: int
    n_completed: int
    n_error: int
    n_skipped: int
    n_clusters: int | None = None
    impact: Impact | None = None
    worst_impact: Impact | None = None
    interpretation: str | None = None
    threshold: float | None = None
    maximum: float | None = None
    corrected: CorrectedShare | None = None
    pooled: PooledValue | None = None
    outcome: Outcome | None = None
    reason: str | None = None

    def over_runs(self, alone: MetricEstimate) -> MetricVerdict:
        """Return the verdict on a metric over several runs, with its figures in one of them, `alone`.

        A metric corrected for a judge's errors is judged by one run.
        """
        figures = {name: getattr(self, name) for name in PooledValue.model_fields}
        pooled = None if self.corrected else PooledValue(**figures)
        return self.model_copy(update={**alone.estimate.figures(), "pooled": pooled})

    @classmethod
    def of(cls, metric: MetricEstimate, **judged: Any) -> MetricVerdict:
        """Return the verdict on a metric from its estimate and what was `judged`."""
        corrected = CorrectedShare.of(metric.corrected)
        return cls(id=metric.id, check=metric.check_id, corrected=corrected, **metric.estimate.figures(), **judged)


class SliceVerdict(Part):
    """A metric over the test cases with one value (`slice`) of a metadata field (`by`), and its outcome.

    `threshold` is the minimum of each slice, `p` the p-value against it, adjusted for the number of slices. `corrected`
    is None without a calibrated judge. `outcome` is None if the slice is only described. `shrunk` is the value drawn
    towards that of all slices as far as chance may explain the difference; it is only for reading.
    """

    metric: str
    by: str
    slice: str
    value: float | None = None
    stderr: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float
    method: Method
    n_expected: int
    n_completed: int
    n_error: int
    n_skipped: int
    n_clusters: int | None = None
    threshold: float | None = None
    p: float | None = None
    corrected: CorrectedShare | None = None
    shrunk: float | None = None
    outcome: Outcome | None = None

    @classmethod
    def of(cls, metric: MetricEstimate, **judged: Any) -> SliceVerdict:
        """Return the verdict on a slice from its estimate and what was `judged`."""
        corrected = CorrectedShare.of(metric.corrected)
        return cls(metric=metric.id, corrected=corrected, **metric.estimate.figures(), **judged)


class FigureVerdict(Part):
    """A value with its interval; None if no result shows it."""

    value: float | None = None
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, estimate: Estimate) -> FigureVerdict:
        """Return the figures of an estimate."""
        return cls(**estimate.figures(*cls.model_fields))


class ClassVerdict(Part):
    """A class of a classification: `n` results expect it.

    `predicted` counts their predicted labels, in the order of the matrix's columns.
    """

    label: str
    n: int
    predicted: list[int]
    precision: FigureVerdict
    recall: FigureVerdict
    f1: FigureVerdict


class ConfusionVerdict(Part):
    """The confusion matrix of a `classification` check, the most frequent classes first.

    Precision, recall and F1 are means over all classes. `columns` are predicted labels; `(other)` is an answer outside
    of the classes, `(none)` a missing one. `left_out` is the number of classes that are not shown.
    """

    check: str
    columns: list[str]
    classes: list[ClassVerdict]
    left_out: int = 0
    precision: FigureVerdict
    recall: FigureVerdict
    f1: FigureVerdict


class DifferenceVerdict(Part):
    """A metric here and in the baseline, over the matched test cases: the difference with its interval, and its
    outcome.

    `margin` is how much worse it may be, `p` the two-sided p-value of no difference, not adjusted. `detectable` is the
    smallest regression that is shown to be beyond the margin in 80 % of such comparisons. `corrected` is None without a
    calibrated judge, `outcome` without a margin.
    """

    metric: str
    baseline: float | None = None
    value: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    confidence: float
    method: Method
    p: float | None = None
    improved: int
    worsened: int
    n_expected: int
    n_completed: int
    n_clusters: int | None = None
    margin: float | None = None
    detectable: float | None = None
    corrected: CorrectedShare | None = None
    outcome: Outcome | None = None


class RegressionVerdict(Part):
    """The basis of a gate's `regression`: the baseline's name, its run, and the matched cases, if there was one.

    `pooled` are the ids of its runs, if there are several.
    """

    baseline: str
    run_id: str | None = None
    pooled: list[str] = []
    matched: str | None = None
    metrics: list[DifferenceVerdict] = []
    warnings: list[str] = []


class TopUpVerdict(Part):
    """The size that a topped-up run reached: `reached` of at most `maximum` repeats, or test cases, by its `limit`.

    It made `calls` of at most `max_calls`. `summary` says so in words.
    """

    limit: Literal["max_repeats", "max_cases"]
    reached: int
    maximum: int
    calls: int
    max_calls: int
    summary: str


class LooksVerdict(Part):
    """The `number` of the run among the suite's runs on this version of its target, and the outcomes of the others.

    `version` is None without a name. `pooled` are the ids of the runs that are judged together with this one, at
    `confidence`, which is None if each is judged alone. `summary` says so in words.
    """

    number: int
    version: str | None = None
    passed: int = 0
    failed: int = 0
    inconclusive: int = 0
    pooled: list[str] = []
    confidence: float | None = None
    summary: str


class MetricChange(Part):
    """A metric's value now and in the baseline, each None if it is missing, and the difference."""

    id: str
    value: float | None = None
    baseline: float | None = None
    difference: float | None = None


class Comparison(Part):
    """A run beside its baseline: that run's id and outcome, each metric, and whether only this run fails.

    `summary` says in words what was compared.
    """

    run_id: str
    outcome: Outcome
    worsened: bool
    summary: str = ""
    metrics: list[MetricChange]


class ModelCosts(Part):
    """The known cost of the models of a run's checks and simulated users; cached answers cost nothing.

    `requests` includes those without an answer, but not those that were cut off at the run's deadline: their checks
    have no result. The cost of `without_usd` answers is unknown, and is not in `usd`.
    """

    requests: int = 0
    answers: int = 0
    tokens: int = 0
    usd: float = 0.0
    without_usd: int = 0

    def __str__(self) -> str:
        if self.answers == 0:
            return f"no answer, to {self.requests} requests" if self.requests else "no new answer"
        known = f"{self.usd:.4f} usd" if self.answers > self.without_usd else "cost not known"
        unknown = f" and {self.without_usd} of unknown cost" if 0 < self.without_usd < self.answers else ""
        return f"{self.answers} {'answer' if self.answers == 1 else 'answers'}: {known}{unknown}"


class RuleOutcome(Part):
    """A rule of the gate and its outcome.

    `rule` is a short text that is the same in every run of the suite ("acc: at least 0.9"). `metric` and `check` are
    the rule's subject, None if it is the whole run. `reason` is a sentence with the figures.
    """

    rule: str
    metric: str | None = None
    check: str | None = None
    outcome: Outcome
    reason: str


class Verdict(Part):
    """The outcome of a run; `gate` is the rule that was applied and `reasons` why it came out so, worst first.

    `rules` are the outcomes of the gate's rules, worst first: the first one decided. `not_judged` names the checks
    and metrics that no rule is about. `slices` are the metrics' estimates by slice, if the suite asks for them.
    `blocks` says whether the outcome stops a release (exit code other than 0). `thresholds_digest` is the SHA-256 of
    the thresholds that were applied, see `fepflow.evalguard.models`. `confusions` are those of `classification` checks.
    `baseline` is there if the suite names one that can be compared with, else `not_compared` says why not; `models` if
    checks call models.
    `second_tries` counts the results of a resumed run whose first try ended in an error, `reused_outputs` the outputs
    of earlier runs.
    """

    outcome: Outcome
    gate: str
    reasons: list[str]
    rules: list[RuleOutcome] = []
    not_judged: list[str] = []
    blocks: bool = False
    metrics: list[MetricVerdict]
    slices: list[SliceVerdict] = []
    confusions: list[ConfusionVerdict] = []
    warnings: list[str] = []
    thresholds_digest: str | None = None
    regression: RegressionVerdict | None = None
    top_up: TopUpVerdict | None = None
    looks: LooksVerdict | None = None
    second_tries: int | None = None
    reused_outputs: int | None = None
    baseline: Comparison | None = None
    not_compared: str | None = None
    models: ModelCosts | None = None

    @classmethod
    def stored(cls, outcome: str | None, metrics: Any, verdict: Any) -> Self | None:
        """Return the verdict in a run's columns; None for a run without one."""
        if not isinstance(verdict, dict) or outcome is None:
            return None
        fields = {name: value for name, value in verdict.items() if name in cls.model_fields}
        return cls.model_validate({"metrics": metrics or [], "outcome": outcome, **fields})

    @property
    def distinct_reasons(self) -> list[str]:
        """The reasons of the verdict, each once: that of the deciding rule, then the others."""
        return list(dict.fromkeys([*(rule.reason for rule in self.rules[:1]), *self.reasons]))
