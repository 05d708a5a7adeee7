"""The errors that a run's judges are known to make, from people's labels, and what metrics are without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from checks.constants import CheckType
from fepflow.protocol.check import Check
from fepflow.statistics.estimate import Estimate
from fepflow.statistics.judge_correction import JudgeLabels, corrected
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import Metric
from fepflow.verdict.verdict import MetricEstimate
from tasks.analysis.judge_reliability import judges_of_run, labels_of
from tasks.analysis.ranges import is_share_that_passed

FIELD = "passed"


def corrected_metrics(
    store: Store,
    run: RunRecord,
    metrics: Sequence[tuple[Metric, MetricEstimate]],
    declared: Mapping[str, Sequence[Check]],
) -> list[MetricEstimate]:
    """The metrics, of which those that are the share that a judge passed have it corrected, as far as that is known.

    `declared` are the checks of each id. Judges that test cases carry are not calibrated.
    """
    of_judges = [
        is_share_that_passed(metric)
        and any(check.type == CheckType.LLM_JUDGE for check in declared.get(metric.check or "", ()))
        for metric, _ in metrics
    ]
    labels = labels_of_judges(store, run) if any(of_judges) else {}
    return [
        replace(estimate, by_judge=True, corrected=_corrected(estimate, labels.get(metric.check or "")))
        if by_judge
        else estimate
        for (metric, estimate), by_judge in zip(metrics, of_judges, strict=True)
    ]


def labels_of_judges(store: Store, run: RunRecord) -> dict[str, JudgeLabels]:
    """People's labels by the check that they are for: those drawn from this run, or else the newest."""
    found = {}
    for judge in judges_of_run(run):
        calibrations = [
            calibration
            for calibration in store.calibrations_of(judge.judge, judge.rubric)
            if calibration.field == FIELD
        ]
        drawn = [each for each in calibrations if each.run_id == run.id and "draw" in each.statistics]
        if calibrations:
            found[judge.check_id] = labels_of(*(drawn or calibrations)[:1], drawn=bool(drawn))
    return found


def _corrected(metric: MetricEstimate, labels: JudgeLabels | None) -> Estimate | None:
    return None if labels is None else corrected(metric.estimate, labels)
