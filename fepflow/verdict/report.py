"""The verdict on a report: values and standard errors that somebody else has computed, judged as those of a run.

A metric's interval is its value ± z standard errors, which is not cut off at the ends of any range. Without a standard
error, and with one of 0, which says only that all results were the same, there is no interval: only point values can
be judged then. A report that says that results of a metric are missing cannot show anything of it. A task without
thresholds is inconclusive; a metric without, of a task that has some, is named.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from fepflow.evalguard.digest import thresholds_digest
from fepflow.evalguard.lm_eval import FILTER
from fepflow.evalguard.models import Range, Thresholds
from fepflow.evalguard.report import MetricResult, Report, ReportTask
from fepflow.evalguard.reported_values import MISSING, NO_VALUE
from fepflow.statistics.estimate import Counts, Estimate
from fepflow.statistics.intervals import z_score
from fepflow.suite.models import Gate, Impact
from fepflow.verdict.gate import DEFAULT_MAX_IMPACT, decide, with_rules
from fepflow.verdict.verdict import MetricEstimate, MetricVerdict, RuleOutcome, Verdict

UNNAMED = "?"
"""What a task is called of which the report does not say which it is."""

NO_STDERR = "the report has no standard error of it; judge by values, with --verdict point"
STDERR_OF_ZERO = "its standard error is 0: all results were the same, which says nothing of others"
RESULTS_MISSING = "results are missing, and it is not known what they could have been"


@dataclass(frozen=True, slots=True)
class ReportedEstimate(Estimate):
    """A value with its standard error, from a report."""

    def at(self, confidence: float) -> ReportedEstimate:
        """The same at another confidence."""
        assert self.value is not None
        return reported_estimate(self.value, self.stderr, confidence, self.counts)


def reported_estimate(value: float, stderr: float | None, confidence: float, counts: Counts) -> ReportedEstimate:
    """A metric's estimate by the normal distribution; `counts` are 0 where the number of samples is not known."""
    if not stderr or counts.missing:
        why = RESULTS_MISSING if counts.missing else NO_STDERR if stderr is None else STDERR_OF_ZERO
        return ReportedEstimate(value, stderr, None, None, confidence, "normal", counts, warning=why)
    margin = z_score(confidence) * stderr
    return ReportedEstimate(value, stderr, value - margin, value + margin, confidence, "normal", counts)


def judge_report(
    report: Report, thresholds: Mapping[str, Thresholds], gate: Gate | None = None, tasks: Collection[str] = ()
) -> Verdict:
    """Judge a report by the thresholds of its tasks, or of those of them that are named.

    Metrics are called `task/metric`, and `task/metric,filter` where they have a filter other than `none`. Raises
    ValueError if it cannot be told which task a result belongs to.
    """
    gate = gate or Gate()
    max_impact = gate.max_impact or DEFAULT_MAX_IMPACT
    by_task = _metrics_by_task(report, gate.confidence)
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
    return with_rules(verdict, rules, gate).model_copy(
        update={
            "metrics": [*verdict.metrics, *(MetricVerdict.of(metric) for metric in others)],
            "thresholds_digest": thresholds_digest(used) if used else None,
        }
    )


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
