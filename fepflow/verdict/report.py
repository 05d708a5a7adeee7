"""The verdict on a report: values and standard errors that somebody else has computed, judged as those of a run.

A share of yes and no, which its standard error tells, has the interval that it has in a run. A mean of values in a
known range gets one that holds for the worst values that could have this standard error. Where the range or the number
of results is not known, there is no interval to judge by, as without a standard error: value ± z standard errors is
shown and passes up to two of three that are just too bad. Only point values can be judged then. A report that says that
results of a metric are missing cannot show anything of it. A task without thresholds is inconclusive; a metric without,
of a task that has some, is named.

A report of a run of ours has the run's own verdict in it, which knows more: by the same thresholds and the same gate,
the report does not pass if the run did not.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from fepflow.evalguard.models import (
    EVALUATOR,
    MISSING,
    NO_VALUE,
    RANGE,
    MetricResult,
    Range,
    Report,
    ReportTask,
    Thresholds,
    thresholds_digest,
)
from fepflow.evalguard.report_reader import FILTER
from fepflow.statistics.estimate import PROPORTION, RANGE_UNKNOWN, Counts, Estimate, Scale
from fepflow.statistics.means import Moments, Sums, UnitSums
from fepflow.statistics.proportions import z_score
from fepflow.suite.models import Gate, Impact
from fepflow.verdict.gate import DEFAULT_MAX_IMPACT, OF_JUDGES, decide, with_rules
from fepflow.verdict.verdict import MetricEstimate, MetricVerdict, RuleOutcome, Verdict

UNNAMED = "?"
"""The name of a task of which the report does not say which it is."""

NO_STDERR = "the report has no standard error of it; judge by values, with --verdict point"
RESULTS_MISSING = "results are missing, and it is not known what they could have been"
NO_NUMBER = "the report does not say of how many results it is: give the task n_samples: {effective: N}"
NO_RANGE = (
    f"{RANGE_UNKNOWN}: give the task the metadata {RANGE}METRIC: 0 to 5, with the least and the largest value that one "
    "can have"
)
SAME_NUMBER = 0.01
"""The relative difference that may be between the number of results that a share's standard error speaks of and the
report's: it may have been rounded."""

_OF_SHARES = re.compile("(acc|accuracy|exact_match|pct)(?![A-Za-z])")
"""First words of the names that lm-evaluation-harness and EvalGuard give to metrics between 0 and 1."""


def reported_estimate(
    value: float, stderr: float | None, confidence: float, counts: Counts, scale: Scale | None = None
) -> Estimate:
    """Estimate a metric by its value and standard error; `counts` are 0 where the number of samples is not known.

    The squares of n values have the mean y² + stderr² (n - 1), so that the interval of scores with a range follows, for
    the worst of all values that have this standard error. A share of yes and no is told by it, too.
    """
    n = counts.completed
    is_share = 0 <= value <= 1 and stderr is not None and _is_share(value, stderr, n)
    scale = PROPORTION if is_share else scale
    unknown_range = scale is None or not scale.low <= value <= scale.high
    doubts = [
        (bool(counts.missing), RESULTS_MISSING),
        (stderr is None, NO_STDERR),
        (n == 0, NO_NUMBER),
        (unknown_range, NO_RANGE),
    ]
    if why := next((doubt for is_so, doubt in doubts if is_so), None):
        if not stderr or counts.missing:
            return Estimate(value, stderr, None, None, confidence, "normal", counts, warning=why)
        margin = z_score(confidence) * stderr
        return Estimate(value, stderr, value - margin, value + margin, confidence, "normal", counts, warning=why)
    assert scale is not None
    assert stderr is not None
    share, error = scale.share(value), stderr / (scale.high - scale.low)
    number, square = float(n), share**2 + error**2 * (n - 1)
    if (
        square > share and not is_share
    ):  # of repeats, for example: this many independent results have the same standard error
        number, square = max(share * (1 - share) / error**2 + 1, 1.0), share
    scores = Moments(number, share, square, None), Moments(number, 1 - share, 1 - 2 * share + square, None)
    return Sums(
        scale=scale,
        kind="wilson" if is_share else "skewed",
        counts=counts,
        cases=n,
        answered=n,
        values=n,
        repeated=False,
        value=value,
        stderr=stderr,
        least=value,
        most=value,
        share=share,
        least_share=share,
        most_share=share,
        units=UnitSums(n, n * share, 0.0, 0.0),
        scores=None if is_share else scores,
    ).estimate(confidence)


def _is_share(value: float, stderr: float, n: int) -> bool:
    """Return whether n values of 0 or 1 with this mean have this standard error."""
    if stderr == 0:
        return value in (0, 1)
    return abs(value * (1 - value) / stderr**2 + 1 - n) <= SAME_NUMBER * n


def judge_report(
    report: Report, thresholds: Mapping[str, Thresholds], gate: Gate | None = None, tasks: Collection[str] = ()
) -> Verdict:
    """Judge a report by the thresholds of its tasks, or of those of them that are named.

    Metrics are called `task/metric`, and `task/metric,filter` where they have a filter other than `none`. Raises
    ValueError if it cannot be told which task a result belongs to.
    """
    gate = gate or Gate()
    max_impact = gate.max_impact or DEFAULT_MAX_IMPACT
    by_task = _metrics_by_task(report, gate.pass_confidence)
    chosen = {name: metrics for name, metrics in by_task.items() if not tasks or name in tasks}
    judged = [metric for name, metrics in chosen.items() if name in thresholds for metric in metrics]
    others = [metric for name, metrics in chosen.items() if name not in thresholds for metric in metrics]
    ranges: dict[str, list[Range]] = {}
    for name in chosen:
        for metric, ranges_of_metric in thresholds[name].thresholds.items() if name in thresholds else ():
            ids = [estimate.id for estimate in chosen[name] if estimate.check_id == metric] or [f"{name}/{metric}"]
            ranges |= dict.fromkeys(ids, ranges_of_metric)
    table = Thresholds.model_construct(task="report", thresholds=ranges)
    gate = gate.model_copy(update={"max_impact": max_impact})
    verdict = decide(judged, gate, table, [], advice="give them thresholds")
    rules = [_absence(name, "there are no thresholds for it", max_impact) for name in chosen if name not in thresholds]
    rules += [_absence(name, "it is not in the report", max_impact) for name in tasks if name not in by_task]
    used = [thresholds[name] for name in chosen if name in thresholds]
    digest = thresholds_digest(used) if used else None
    own_rules, warnings = _own_verdict(report, with_rules(verdict, rules, gate), digest)
    return with_rules(verdict, [*rules, *own_rules], gate).model_copy(
        update={
            "metrics": [*verdict.metrics, *(MetricVerdict.of(metric) for metric in others)],
            "warnings": [*verdict.warnings, *warnings],
            "thresholds_digest": digest,
        }
    )


def _own_verdict(report: Report, verdict: Verdict, digest: str | None) -> tuple[list[RuleOutcome], list[str]]:
    """Return the objections to a pass in the verdict of the run that a report was made of: a rule if that run was
    judged by the same thresholds and gate, else warnings. A report knows nothing of judges."""
    metadata = report.metadata or {}
    if metadata.get("evaluator") != EVALUATOR:
        return [], []
    outcome, gate, used = metadata.get("outcome"), metadata.get("gate"), metadata.get("thresholds_digest")
    others = used not in (None, digest)
    warnings = [f"The run itself was judged by other thresholds (sha256 {str(used)[:12]})."] if others else []
    if verdict.outcome != "pass" or outcome == "pass":
        return [], warnings
    own = f"The run itself has {f'the verdict {outcome} (gate: {gate})' if outcome else 'no verdict'}"
    if used != digest or str(gate).replace(OF_JUDGES, "") != verdict.gate.replace(OF_JUDGES, ""):
        return [], [*warnings, f"{own}."]
    reason = f"{own}: by the same thresholds, and knowing more than its report."
    return [RuleOutcome(rule="the run's own verdict", outcome="inconclusive", reason=reason)], warnings


def _metrics_by_task(report: Report, confidence: float) -> dict[str, list[MetricEstimate]]:
    """Return the report's metrics; the `check_id` of each is the metric's own name."""
    by_task: dict[str, list[MetricEstimate]] = {}
    times: Counter[str] = Counter()
    for task, results in report.pairs():
        name = task.task_ref or UNNAMED
        metrics = by_task.setdefault(name, [])
        filter_name = (task.metadata or {}).get(FILTER, "none")
        for metric, estimate in _estimates(task, results, confidence):
            id_ = f"{name}/{metric}" if filter_name == "none" else f"{name}/{metric},{filter_name}"
            times[id_] += 1
            unique = id_ if times[id_] == 1 else f"{id_}#{times[id_]}"
            metrics.append(MetricEstimate(unique, metric, estimate, of_passes=False))
    return by_task


def _estimates(
    task: ReportTask, results: Mapping[str, MetricResult], confidence: float
) -> Iterator[tuple[str, Estimate]]:
    counts = _counts(task)
    for metric, result in results.items():
        missing = _missing(task, metric)
        scale = _scale(task, metric)
        yield metric, reported_estimate(result.value, result.stderr, confidence, missing or counts, scale)
    for key, reason in (task.metadata or {}).items():
        if key.startswith(NO_VALUE):
            problem = f"the report has no value of it: {reason}"
            yield (
                key.removeprefix(NO_VALUE),
                Estimate.unknown(confidence, counts, problem=problem),
            )


def _counts(task: ReportTask) -> Counts:
    """Count the samples of a task if the report says how many there are; else 0."""
    samples = task.n_samples or {}
    n = samples.get("effective", samples.get("original", 0))
    return Counts(int(n), int(n)) if n >= 0 else Counts(0, 0)


def _scale(task: ReportTask, metric: str) -> Scale | None:
    """Return the range of a metric's values, if the report says it, or the metric's name does."""
    ends = str((task.metadata or {}).get(f"{RANGE}{metric}", "")).split(" to ")
    try:
        low, high = map(float, ends)
    except ValueError:
        return Scale(0.0, 1.0) if _OF_SHARES.match(metric) else None
    return Scale(low, high) if low < high and math.isfinite(high - low) else None


def _missing(task: ReportTask, metric: str) -> Counts | None:
    """Count the results of a metric if the report says that some are missing."""
    match = re.match(r"(\d+) of (\d+)", str((task.metadata or {}).get(f"{MISSING}{metric}", "")))
    missing, expected = (int(match[1]), int(match[2])) if match else (0, 0)
    return Counts(expected, expected - missing) if 0 < missing < expected else None


def _absence(task: str, reason: str, max_impact: Impact) -> RuleOutcome:
    return RuleOutcome(
        rule=f"{task}: impact at most {max_impact}", outcome="inconclusive", reason=f"{task} is not judged: {reason}."
    )
