"""The verdict on a report: values and standard errors that somebody else has computed, judged as those of a run.

By value ± z standard errors, 34 of 35 would be at least 0.9, and scores of which few are bad would pass one time in
three at their minimum. So a share, which its standard error tells, gets Wilson's interval, as in a run; another value
between 0 and 1 that of scores in this range, which follows from value, standard error and number of results. If the
number is not known, the wider of Wilson's and ± z counts, at either end. Without a standard error, with one of 0, which
says only that all results were the same, and of a value that is not between 0 and 1, there is no interval: only point
values can be judged then. A report that says that results of a metric are missing cannot show anything of it. A
task without thresholds is inconclusive; a metric without, of a task that has some, is named.

A report of a run of ours has the run's own verdict in it, which knows more: by the same thresholds and the same gate,
the report is no pass where the run was none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from fepflow.evalguard.models import Range, Thresholds, thresholds_digest
from fepflow.evalguard.report import EVALUATOR, MISSING, NO_VALUE, MetricResult, Report, ReportTask
from fepflow.evalguard.report_reader import FILTER
from fepflow.statistics.estimate import RANGE_UNKNOWN, Counts, Estimate
from fepflow.statistics.means import UnitSums
from fepflow.statistics.proportions import wilson_interval, z_score
from fepflow.suite.models import Gate, Impact
from fepflow.verdict.estimates import MetricEstimate
from fepflow.verdict.gate import DEFAULT_MAX_IMPACT, decide, with_rules
from fepflow.verdict.verdict import MetricVerdict, RuleOutcome, Verdict

UNNAMED = "?"
"""What a task is called of which the report does not say which it is."""

NO_STDERR = "the report has no standard error of it; judge by values, with --verdict point"
STDERR_OF_ZERO = "its standard error is 0: all results were the same, which says nothing of others"
SAME_NUMBER = 0.01
"""By how much, relatively, the number of results that a share's standard error speaks of may differ from the report's:
it may have been rounded."""

RESULTS_MISSING = "results are missing, and it is not known what they could have been"


@dataclass(frozen=True, slots=True)
class ReportedEstimate(Estimate):
    """A value with its standard error, from a report."""

    def at(self, confidence: float) -> ReportedEstimate:
        """The same at another confidence."""
        assert self.value is not None
        return reported_estimate(self.value, self.stderr, confidence, self.counts)


def reported_estimate(value: float, stderr: float | None, confidence: float, counts: Counts) -> ReportedEstimate:
    """A metric's estimate by its standard error; `counts` are 0 where the number of samples is not known."""
    n = counts.completed
    why = _why_no_interval(value, stderr, counts)
    if stderr is None or why is not None:
        return ReportedEstimate(value, stderr, None, None, confidence, "normal", counts, warning=why)
    answers = value * (1 - value) / stderr**2 + 1  # so many yes and no have this standard error
    low, high = wilson_interval(value, answers, confidence)
    if abs(answers - n) <= SAME_NUMBER * n:
        return ReportedEstimate(value, stderr, low, high, confidence, "wilson", counts)
    if not n:
        margin = z_score(confidence) * stderr
        low, high = min(low, value - margin), max(high, value + margin)
        return ReportedEstimate(value, stderr, low, high, confidence, "normal", counts)
    squares = n * value**2 + n * (n - 1) * stderr**2
    sums = UnitSums(number=n, shares=n * value, larger=0.0, within=max(n * value - squares, 0.0))
    low, high = wilson_interval(value, sums.observations(confidence), confidence)
    return ReportedEstimate(value, stderr, low, high, confidence, "bounded", counts)


def _why_no_interval(value: float, stderr: float | None, counts: Counts) -> str | None:
    if counts.missing:
        return RESULTS_MISSING
    if not stderr:
        return NO_STDERR if stderr is None else STDERR_OF_ZERO
    return None if 0 < value < 1 else RANGE_UNKNOWN


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
        for metric, each in thresholds[name].thresholds.items() if name in thresholds else ():
            ids = [found.id for found in chosen[name] if found.check_id == metric] or [f"{name}/{metric}"]
            ranges |= dict.fromkeys(ids, each)
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
    judged
    by the same thresholds and gate, else warnings."""
    said = report.metadata or {}
    if said.get("evaluator") != EVALUATOR:
        return [], []
    outcome, gate, used = said.get("outcome"), said.get("gate"), said.get("thresholds_digest")
    others = used not in (None, digest)
    warnings = [f"The run itself was judged by other thresholds (sha256 {str(used)[:12]})."] if others else []
    if verdict.outcome != "pass" or outcome == "pass":
        return [], warnings
    own = f"The run itself has {f'the verdict {outcome} (gate: {gate})' if outcome else 'no verdict'}"
    if used != digest or gate != verdict.gate:
        return [], [*warnings, f"{own}."]
    reason = f"{own}: by the same thresholds, and knowing more than its report."
    return [RuleOutcome(rule="the run's own verdict", outcome="inconclusive", reason=reason)], warnings


def _metrics_by_task(report: Report, confidence: float) -> dict[str, list[MetricEstimate]]:
    """The report's metrics; the `check_id` of each is the metric's own name."""
    found: dict[str, list[MetricEstimate]] = {}
    times: Counter[str] = Counter()
    for task, results in report.pairs():
        name = task.task_ref or UNNAMED
        metrics = found.setdefault(name, [])
        filter_name = (task.metadata or {}).get(FILTER, "none")
        for metric, estimate in _estimates(task, results, confidence):
            id_ = f"{name}/{metric}" if filter_name == "none" else f"{name}/{metric},{filter_name}"
            times[id_] += 1
            unique = id_ if times[id_] == 1 else f"{id_}#{times[id_]}"
            metrics.append(MetricEstimate(unique, metric, estimate, of_passes=False))
    return found


def _estimates(
    task: ReportTask, results: Mapping[str, MetricResult], confidence: float
) -> Iterator[tuple[str, Estimate]]:
    counts = _counts(task)
    for metric, result in results.items():
        missing = _missing(task, metric)
        yield metric, reported_estimate(result.value, result.stderr, confidence, missing or counts)
    for key, reason in (task.metadata or {}).items():
        if key.startswith(NO_VALUE):
            problem = f"the report has no value of it: {reason}"
            yield (
                key.removeprefix(NO_VALUE),
                Estimate(None, None, None, None, confidence, "none", counts, problem=problem),
            )


def _counts(task: ReportTask) -> Counts:
    """The samples of a task, where the report says how many; else 0."""
    samples = task.n_samples or {}
    n = samples.get("effective", samples.get("original", 0))
    return Counts(int(n), int(n)) if n >= 0 else Counts(0, 0)


def _missing(task: ReportTask, metric: str) -> Counts | None:
    """The results of a metric, if the report says that some are missing."""
    found = re.match(r"(\d+) of (\d+)", str((task.metadata or {}).get(f"{MISSING}{metric}", "")))
    missing, expected = (int(found[1]), int(found[2])) if found else (0, 0)
    return Counts(expected, expected - missing) if 0 < missing < expected else None


def _absence(task: str, reason: str, max_impact: Impact) -> RuleOutcome:
    return RuleOutcome(
        rule=f"{task}: impact at most {max_impact}", outcome="inconclusive", reason=f"{task} is not judged: {reason}."
    )
