"""The runs of a suite's variants beside each other: their metrics, and how each differs from the first.

Differences are paired over the test cases, as those of any two runs are (`comparison`). All metrics of all variants are
one family: with a dozen comparisons one looks better by chance, so a difference counts only if it is shown by Holm's
method over all of them. Nothing else is said to be better or worse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from fepflow.analysis.comparison import RunComparison, compare_results, results_with_verdict
from fepflow.analysis.regressions import adjusted_p_values
from fepflow.errors import NotFoundError, UserError
from fepflow.page_links import link, run_page, variants_page
from fepflow.statistics.estimate import Estimate
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import Gate
from fepflow.suite.variants import label_of
from fepflow.text import cell, escape_markdown, interval_cell, markdown_table, number, one_line, p_cell, percent, plural
from fepflow.verdict.metric_rules import as_judged
from fepflow.verdict.regression_rules import MetricDifference, judge_differences
from fepflow.verdict.verdict import Outcome

Way = Literal["better", "worse", "higher", "lower"]
"""The direction of a difference; higher or lower where it is not known which is better."""

MAX_REASON = 300


@dataclass(frozen=True, slots=True)
class VariantDifference:
    """A metric of a variant beside that of the first one. `way` is None if no difference is shown, or nothing could be
    compared; `estimate` is of the variant's value minus the first one's."""

    run: RunRecord
    metric: MetricDifference
    estimate: Estimate | None
    p_adjusted: float | None
    way: Way | None

    @property
    def sentence(self) -> str:
        """Return what is shown, in a sentence."""
        label, estimate = _label(self.run), self.estimate
        if estimate is None or estimate.low is None or estimate.high is None:
            why = self.metric.why_not or "there are too few results"
            return f"{self.metric.id} of {label} is not compared: {why}."
        if self.way is None:
            bounds = f"{number(estimate.low)} to {number(estimate.high)}"
            return f"{self.metric.id} of {label}: no difference from the first is shown (interval {bounds})."
        less, more = sorted((abs(estimate.low), abs(estimate.high)))
        return f"{self.metric.id} of {label} is {self.way} than the first by {number(less)} to {number(more)}."


@dataclass(frozen=True, slots=True)
class VariantTable:
    """The runs of variants that were begun together, and the differences from the first one.

    `remarks` say why there is nothing to compare, where that is so, and what else a comparison warns of.
    """

    id: str
    runs: Sequence[RunRecord]
    differences: Sequence[VariantDifference] = ()
    remarks: Sequence[str] = ()
    confidence: float = 0.95

    @property
    def suite(self) -> str:
        """The suite's name."""
        return str(self.runs[0].suite.get("name", self.runs[0].name))

    @property
    def is_live(self) -> bool:
        """True while a run of a variant is under way or waits."""
        return any(run.is_under_way for run in self.runs)

    @property
    def outcome(self) -> Outcome | None:
        """The worst outcome; None if a variant has none."""
        outcomes = [run.outcome for run in self.runs]
        worst: tuple[Outcome, ...] = ("fail", "inconclusive", "pass")
        return None if None in outcomes else next(outcome for outcome in worst if outcome in outcomes)

    @property
    def blocks(self) -> bool:
        """True if the outcome of a variant stops a release."""
        return any(run.outcome is None or (run.verdict or {}).get("blocks", run.outcome != "pass") for run in self.runs)

    @property
    def shown(self) -> list[VariantDifference]:
        """The differences that are shown."""
        return [difference for difference in self.differences if difference.way is not None]

    @property
    def compared(self) -> int:
        """The number of differences that were judged together."""
        return sum(_has_value(difference.metric) for difference in self.differences)

    @property
    def sentences(self) -> list[str]:
        """Return sentences about variants without a verdict, and about those that differ from the first one."""
        sentences = [f"{_label(run)} {_why_none(run)}" for run in self.runs if run.outcome is None]
        sentences += [f"No call of {_label(run)} was answered." for run in self.runs if _has_no_value(run)]
        sentences += [difference.sentence for difference in self.shown]
        unshown = [difference for difference in self.differences if difference.way is None]
        if unshown and not self.shown:
            sentences.append(f"No difference from the first variant, {_label(self.runs[0])}, is shown.")
        if self.shown:
            chances = plural(self.compared, "comparison")
            sentences.append(f"These differences hold at {percent(self.confidence)} over {chances} (Holm).")
        if reused := sum((run.verdict or {}).get("reused_outputs") or 0 for run in self.runs):
            why = "the target was not called for them (--reuse-outputs)"
            sentences.append(f"{plural(reused, 'output')} from earlier runs: {why}.")
        return [*sentences, *self.remarks]

    @property
    def summary(self) -> str:
        """Return the outcomes of all variants on one line."""
        parts = []
        if without := [run for run in self.runs if run.outcome is None]:
            cause = one_line(_cause(without[0]), MAX_REASON)
            parts.append(f"{len(without)} could not be evaluated ({_names(without)}: {cause})")
        words: dict[Outcome, str] = {"fail": "failed", "inconclusive": "inconclusive", "pass": "passed"}
        for outcome, word in words.items():
            if runs := [run for run in self.runs if run.outcome == outcome]:
                parts.append(f"{len(runs)} {word}" + (f" ({_names(runs)})" if outcome != "pass" else ""))
        return f"Of {plural(len(self.runs), 'variant')}: {', '.join(parts)}."


def _has_value(metric: MetricDifference) -> bool:
    return metric.estimate.value is not None


def _names(runs: Sequence[RunRecord]) -> str:
    return "; ".join([*(_label(run) for run in runs[:3]), *(["…"] if len(runs) > 3 else [])])


def _label(run: RunRecord) -> str:
    return label_of(run.variant or {})


def _cause(run: RunRecord) -> str:
    return run.error or f"it is {run.status}"


def _why_none(run: RunRecord) -> str:
    if run.is_under_way:
        return f"has no verdict yet: it is {run.status}."
    return f"could not be evaluated: {one_line(_cause(run), MAX_REASON)}"


def _has_no_value(run: RunRecord) -> bool:
    return run.outcome is not None and bool(run.metrics) and not any(row.get("n_completed") for row in run.metrics)


def variant_table(store: Store, variants_id: str) -> VariantTable:
    """Return the present table of the runs with this id. Raises NotFoundError."""
    runs = store.runs.of_variants(variants_id)
    if not runs:
        raise NotFoundError(f"There are no variants {variants_id!r}: `fepflow list` shows all runs.")
    table = VariantTable(str(runs[0].variants_id), runs)
    if len(runs) == 1:
        return table
    first, *others = runs
    if first.outcome is None:
        return replace(table, remarks=[f"Nothing is compared: the first variant, {_label(first)}, has no verdict."])
    then = results_with_verdict(store, first)
    comparisons, remarks = [], list[str]()
    for run in others:
        if run.outcome is None:
            continue
        try:
            comparisons.append(compare_results(then, results_with_verdict(store, run)))
        except UserError as error:
            remarks.append(f"{_label(run)} is not compared: {error}")
    warnings = dict.fromkeys(warning for comparison in comparisons for warning in comparison.warnings)
    gate = then.suite.gate or Gate()
    differences = judge_variants(comparisons, gate)
    return replace(table, differences=differences, remarks=[*remarks, *warnings], confidence=gate.confidence)


def judge_variants(comparisons: Sequence[RunComparison], gate: Gate) -> list[VariantDifference]:
    """Return the differences of all metrics of all variants, judged together by Holm's method, both ways."""
    family = sum(_has_value(metric) for comparison in comparisons for metric in comparison.metrics)
    rules = Gate(confidence=gate.confidence, judge=gate.judge)
    judged = []
    for comparison, p_values in zip(comparisons, adjusted_p_values(comparisons), strict=True):
        lower, higher = (_worse(comparison.metrics, rules, family, less_is_better=less) for less in (False, True))
        for metric in comparison.metrics:
            p = p_values.get(metric.id)
            # Of a yes or no, test and interval may differ by a hair: both have to show it.
            counts = p is None or p <= 1 - gate.confidence
            way: Literal["lower", "higher"] | None = None
            if counts and metric.id in lower | higher:
                way = "lower" if metric.id in lower else "higher"
            judged.append(VariantDifference(comparison.new, metric, _estimate(metric, gate), p, _in_words(metric, way)))
    return judged


def _worse(metrics: Sequence[MetricDifference], gate: Gate, family: int, *, less_is_better: bool) -> set[str]:
    """Return the metrics that are shown to be lower, or higher if less is to be better."""
    turned = [replace(metric, less_is_better=less_is_better) for metric in metrics if _has_value(metric)]
    rules, _ = judge_differences(turned, {metric.id: 0.0 for metric in turned}, "the first", gate, family)
    return {str(rule.metric) for rule in rules if rule.outcome == "fail"}


def _estimate(metric: MetricDifference, gate: Gate) -> Estimate | None:
    return None if metric.why_not else as_judged(metric, gate.judge).estimate


def _in_words(metric: MetricDifference, way: Literal["lower", "higher"] | None) -> Way | None:
    if way is None or metric.less_is_better is None:
        return way
    return "better" if (way == "lower") is metric.less_is_better else "worse"


COLUMNS = ("variant", "metric", "value", "interval", "n", "difference", "its interval", "p (Holm)", "shown")
"""Columns of the table, with the difference from the first variant."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """A metric of a variant as it is shown; the cells are those of `COLUMNS` but for the first one."""

    run: RunRecord
    label: str
    cells: Sequence[str]


def rows_of(table: VariantTable) -> Iterator[TableRow]:
    """Yield the rows of the table. A variant without metrics has one row with the reason."""
    differences = {(difference.run.id, difference.metric.id): difference for difference in table.differences}
    for run in table.runs:
        metrics = run.metrics or ()
        if run.outcome is None or not metrics:
            yield TableRow(run, _label(run), ["·", *["·"] * 6, _status(run)])
        for metric in metrics if run.outcome is not None else ():
            difference = differences.get((run.id, metric["id"]))
            yield TableRow(run, _label(run), _cells(metric, difference, is_first=run is table.runs[0]))


def _status(run: RunRecord) -> str:
    if run.outcome is not None:
        return run.outcome
    return run.status if run.is_under_way else "could not be evaluated"


def _cells(metric: dict[str, Any], difference: VariantDifference | None, *, is_first: bool) -> list[str]:
    value = [
        metric["id"],
        cell(metric.get("value")),
        interval_cell(metric.get("low"), metric.get("high")),
        f"{metric.get('n_completed', 0)} of {metric.get('n_expected', 0)}",
    ]
    if is_first:
        return [*value, "·", "·", "·", "the first"]
    if difference is None or difference.estimate is None or not _has_value(difference.metric):
        return [*value, "·", "·", "·", "not compared"]
    estimate, p = difference.estimate, difference.p_adjusted
    bounds = interval_cell(estimate.low, estimate.high)
    return [*value, cell(estimate.value, "+"), bounds, p_cell(p), difference.way or "no difference"]


def as_markdown(table: VariantTable) -> str:
    """Return the table as markdown, for the artifact of the parent flow run; what suites say stays text."""
    lines = [f"# {escape_markdown(table.suite)}: {escape_markdown(table.summary)}", ""]
    if page := variants_page(table.id):
        lines += [link("All variants beside each other", page), ""]
    lines += [f"- {escape_markdown(sentence)}" for sentence in table.sentences]
    rows = (
        [link(f"`{row.run.id[:8]}`", run_page(row.run.id)), *map(escape_markdown, (row.label, *row.cells))]
        for row in rows_of(table)
    )
    return "\n".join([*lines, "", *markdown_table(("run", *COLUMNS), rows)])
