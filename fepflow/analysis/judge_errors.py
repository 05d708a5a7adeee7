"""The errors that a run's judges are known to make, from people's labels, and what metrics are without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fepflow.analysis.judge_reliability import judges_of_run, labels_of
from fepflow.analysis.ranges import is_share_that_passed
from fepflow.checks.constants import CheckType
from fepflow.protocol.check import Check
from fepflow.statistics.judges import JudgeLabels, corrected
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import Metric
from fepflow.verdict.estimates import MetricEstimate

FIELD = "passed"


LabelsByMetric = Mapping[str, JudgeLabels | None]
"""Of each metric that is the share that a judge passed, people's labels of that judge; None if there are none."""


def labels_by_metric(
    store: Store, run: RunRecord, metrics: Sequence[Metric], declared: Mapping[str, Sequence[Check]]
) -> LabelsByMetric:
    """What is known of the judges of a run's metrics. `declared` are the checks of each id.

    Judges that test cases carry are not calibrated.
    """
    of_judges = [
        metric
        for metric in metrics
        if is_share_that_passed(metric)
        and any(check.type == CheckType.LLM_JUDGE for check in declared.get(metric.check or "", ()))
    ]
    labels = labels_of_judges(store, run) if of_judges else {}
    return {metric.id: labels.get(metric.check or "") for metric in of_judges}


def with_correction(metric: MetricEstimate, labels: LabelsByMetric, *, of_part: bool = False) -> MetricEstimate:
    """The metric; that of a judge corrected, as far as its errors are known.

    `of_part` if it is over a part of the run's cases, of which a draw from the whole run is no random sample: then its
    labels tell the judge's rates only.
    """
    if metric.id not in labels:
        return metric
    found = labels[metric.id]
    if found is not None and of_part:
        found = replace(found, drawn=False)
    return replace(metric, by_judge=True, corrected=None if found is None else corrected(metric.estimate, found))


def labels_of_judges(store: Store, run: RunRecord) -> dict[str, JudgeLabels]:
    """People's labels by the check that they are for: those drawn from this run, or else the newest."""
    found = {}
    for judge in judges_of_run(run):
        calibrations = [
            calibration
            for calibration in store.labels.calibrations_of(judge.judge, judge.rubric)
            if calibration.field == FIELD
        ]
        drawn = [each for each in calibrations if each.run_id == run.id and "draw" in each.statistics]
        if calibrations:
            found[judge.check_id] = labels_of(*(drawn or calibrations)[:1], drawn=bool(drawn))
    return found
