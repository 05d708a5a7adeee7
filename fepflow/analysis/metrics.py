"""The metrics and the verdict of a run, computed from the results in the store, with the usage of models by checks.

The runs of one version of a target by one suite are looks: each of them may pass by chance. A gate that passes an agent
at its minimum one time in forty passes it one time in nine within five runs. So runs are counted, whatever has caused
them. What is the same version is known by how the target is asked, its address included, and by the version's name, if
it has one: a new deployment at the same address looks like the old one without a name.

With `looks: pooled` all runs of a version are judged together. A test case that several runs have was asked again, as
by `repeats`, and is what was sampled, once. The k-th run is judged at a confidence of which all looks together spend no
more than one look may (`confidence_of_look`), so that it does not matter how often one tries, and when one stops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fepflow.analysis.accumulation import (
    Accumulated,
    MetricAccumulator,
    SlicedCases,
    accumulate,
    cases_of,
    is_share_that_passed,
    minima_of,
    suite_of,
)
from fepflow.analysis.dependence import ClusteredCases, Groups, cluster_value, content_of, is_clustered, metadata_read
from fepflow.analysis.judge_reliability import labels_by_metric, warnings_of_own_model, with_correction
from fepflow.analysis.regressions import judge_regression
from fepflow.checks.core.declarations import model_check_types
from fepflow.evalguard.models import Thresholds
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.results import USAGE
from fepflow.protocol.test_case import REUSED_FROM
from fepflow.store.records import CheckCounts, RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import Gate, Metric, Suite
from fepflow.text import listed, ordinal, percent, plural
from fepflow.verdict.gate import at_look, decide
from fepflow.verdict.verdict import CheckTotals, LooksVerdict, ModelCosts, Outcome, Verdict


def compute_verdict(store: Store, run: RunRecord, suite: Suite, without: Collection[tuple[int, int]] = ()) -> Verdict:
    """Compute metrics and verdict from all stored results of a run, complete or not.

    Outputs in `without`, by case index and repeat, count as missing.
    """
    gate = suite.gate or Gate()
    looks = looks_of(store, run, gate)
    judging = at_look(gate, looks.number if looks else 1)
    sliced = SlicedCases(suite.slices.by) if suite.slices else None
    one_by_one = sliced is not None or gate.regression is not None or gate.looks is not None
    accumulated = accumulate(store, run, suite, sliced, one_by_one=one_by_one, without=without)
    carriers, accumulators = accumulated.carriers, accumulated.accumulators
    metrics = [accumulator.metric for accumulator in accumulators]
    labels = labels_by_metric(store, run, accumulators, {name: found.declared for name, found in carriers.items()})
    alone = [with_correction(accumulator.estimate(gate), labels) for accumulator in accumulators]
    of_models = warnings_of_own_model(store, run)
    alone = [
        replace(metric, warnings=[*metric.warnings, of_models[metric.check_id]])
        if metric.check_id in of_models
        else metric
        for metric in alone
    ]
    estimates, runs = alone, [(run, accumulated)]
    if gate.looks is not None:
        runs = pooled_runs(store, run, accumulated, looks.pooled if looks else ())
        together = pooled_metrics(store, runs)
        estimates = [
            # Labels are of this run's outputs: what they correct is judged by this run alone.
            replace(with_correction(own.estimate(judging), labels), warnings=metric.warnings)
            if metric.corrected is not None
            else replace(metric, estimate=together[metric.id].estimate(judging).estimate)
            for own, metric in zip(accumulators, alone, strict=True)
        ]
    regression = judge_regression(store, run, judging, accumulators, labels) if gate.regression else None
    thresholds = Thresholds.model_validate(suite.thresholds) if isinstance(suite.thresholds, dict) else None
    minima, of_slices = {}, []
    ignore_small = suite.slices is not None and suite.slices.small == "ignore"
    if suite.slices is not None and sliced is not None:
        minima = minima_of(suite.slices, metrics)
        of_slices = [
            replace(each, metric=with_correction(each.metric, labels, of_part=True))
            for each in sliced.estimates(accumulators, judging)
        ]
    verdict = decide(
        estimates,
        suite.gate and judging,
        thresholds,
        _totals(runs),
        of_slices,
        minima,
        regression,
        unchecked=accumulated.unchecked,
        ignore_small_slices=ignore_small,
    )
    if estimates is not alone:
        shown = [judged.over_runs(own) for judged, own in zip(verdict.metrics, alone, strict=True)]
        verdict = verdict.model_copy(update={"metrics": shown})
    confusions = [found for each in accumulated.classifications if (found := each.confusion(gate)) is not None]
    warnings = [*accumulated.warnings, *verdict.warnings]
    verdict = verdict.model_copy(update={"warnings": warnings, "confusions": confusions})
    return with_looks(verdict, looks)


def metrics_so_far(store: Store, run: RunRecord) -> list[dict[str, Any]]:
    """Return the metrics of a run's results so far, as `decide_run` stores them, without a verdict."""
    return [
        metric.model_dump(mode="json", exclude={"outcome", "reason"}, exclude_none=True)
        for metric in compute_verdict(store, run, suite_of(run)).metrics
    ]


def metrics_corrected_now(store: Store, run: RunRecord) -> list[dict[str, Any]]:
    """Return the stored metrics of a run with a verdict, corrected by the present labels of its judges."""
    corrections = {metric.id: metric.corrected for metric in compute_verdict(store, run, suite_of(run)).metrics}
    return [
        {**metric, "corrected": corrected.model_dump(mode="json", exclude_none=True)}
        if (corrected := corrections.get(metric["id"]))
        else metric
        for metric in run.metrics or ()
    ]


def _totals(runs: Sequence[tuple[RunRecord, Accumulated]]) -> list[CheckTotals]:
    """Count the results of each check, in all of the runs together."""
    totals: dict[str, CheckTotals] = {}
    for run, accumulated in runs:
        for check_id, carriers in accumulated.carriers.items():
            before = totals.get(check_id, CheckTotals(check_id, 0))
            counts = accumulated.counted.get(check_id) or CheckCounts(check_id, 0, 0, 0, 0, 0)
            expected = before.expected + len(carriers.case_indices) * run.repeats
            names = ("passed", "failed", "error", "skipped", "unjudged")
            sums = {name: getattr(before, name) + getattr(counts, name) for name in names}
            totals[check_id] = CheckTotals(check_id, expected, **sums)
    return list(totals.values())


def judged_checks(suite: Suite) -> frozenset[str] | None:
    """Return the ids of the checks that the gate judges, directly or by a metric; None means all."""
    gate = suite.gate or Gate()
    thresholds = Thresholds.model_validate(suite.thresholds) if isinstance(suite.thresholds, dict) else None
    slices = suite.slices.min if suite.slices else None
    margin = gate.regression.margin if gate.regression else None
    names = {*gate.min, *gate.max, *(thresholds.thresholds if thresholds else ())}
    of_shares = False  # a number holds for all shares that passed
    for limits in (slices, margin):
        if isinstance(limits, dict):
            names |= limits.keys()
        elif limits is not None:
            of_shares = True
    if gate.checks == "all" or not (names or of_shares or thresholds or gate.max_impact):
        return None
    if suite.metrics is None:  # each check has a metric of its name
        return None if of_shares else frozenset(names)
    return frozenset(
        metric.check
        for metric in suite.metrics
        if metric.check is not None and _is_judged(metric, names, of_shares=of_shares)
    )


def _is_judged(metric: Metric, names: set[str], *, of_shares: bool) -> bool:
    by_name = metric.id in names and metric.aggregated.kind != "error_rate"
    return by_name or (of_shares and is_share_that_passed(metric))


class CheckUsage(NamedTuple):
    """The usage of models by one check result, or by the simulated user of one conversation."""

    case_index: int
    repeat: int
    usage: dict[str, Any]


def usages(store: Store, run_id: str) -> Iterator[CheckUsage]:
    """Return the usage of all check results and simulated users of a run, by case index and repeat."""
    for row in store.results.check_rows(run_id, types=model_check_types()):
        usage = ((row.result or {}).get("metadata") or {}).get(USAGE)
        if usage is not None:
            yield CheckUsage(row.case_index, row.repeat, usage)
    run = store.runs.get(run_id)
    for start in range(0, run.n_cases, _READ_AT_ONCE) if run.suite.get("user") else ():
        stored = store.results.outputs(run_id, start, min(start + _READ_AT_ONCE, run.n_cases), whole=False)
        for (case_index, repeat), output in stored.items():
            metadata = output.output.metadata or {}
            user = None if REUSED_FROM in metadata else metadata.get("user")
            usage = user.get("usage") if isinstance(user, dict) else None
            if isinstance(usage, dict) and usage.keys() >= {"requests", "answers", "tokens", "usd"}:
                yield CheckUsage(case_index, repeat, usage)


_READ_AT_ONCE = 1_000
"""Test cases whose outputs are in memory at once."""


def costs_of(store: Store, run_id: str) -> ModelCosts:
    """Return the total model cost of a run."""
    costs = ModelCosts()
    for _, _, usage in usages(store, run_id):
        costs = ModelCosts(
            requests=costs.requests + usage["requests"],
            answers=costs.answers + usage["answers"],
            tokens=costs.tokens + (usage["tokens"] or 0),
            usd=costs.usd + (usage["usd"] or 0.0),
            without_usd=costs.without_usd + usage.get("without_usd", 0),
        )
    return costs


_WORDS: dict[Outcome | None, str] = {
    "pass": "passed",
    "fail": "failed",
    "inconclusive": "inconclusive",
    None: "under way",
}


def looks_of(store: Store, run: RunRecord, gate: Gate) -> LooksVerdict | None:
    """Count the runs of this version; None for a run of filtered cases, for the first one without a name, and for a
    rescored one, which does not look at the target."""
    if run.suite_hash is None or run.target_hash is None or run.filtered or run.rescored_from is not None:
        return None
    others = store.runs.looks(run)
    if not others and run.version is None:
        return None
    outcomes = Counter(outcome for _, outcome in others)
    number = len(others) + 1
    looks = LooksVerdict(
        number=number,
        version=run.version,
        passed=outcomes["pass"],
        failed=outcomes["fail"],
        inconclusive=outcomes["inconclusive"],
        summary=_summary(run.version, number, outcomes),
    )
    if gate.looks is None:
        return looks
    pooled = [run_id for run_id, outcome in others if outcome is not None]
    confidence = at_look(gate, number).confidence
    together = f"{plural(len(pooled) + 1, 'run')} are judged together" if pooled else "It is judged"
    summary = (
        f"{looks.summary} {together} at a confidence of {percent(confidence)} instead of {percent(gate.confidence)}, "
        "which allows for looking again and again."
    )
    return looks.model_copy(update={"pooled": pooled, "confidence": confidence, "summary": summary})


def _summary(version: str | None, number: int, others: Counter[Outcome | None]) -> str:
    parts = [f"{others[outcome]} {word}" for outcome, word in _WORDS.items() if others[outcome]]
    came_out = f": of the others, {listed(parts)}" if parts else ""
    if version is not None:
        return f"The {ordinal(number)} run of version {version}{came_out}."
    unnamed = "earlier versions may be among them, as no version is named (--version)"
    return f"The {ordinal(number)} run on this target{came_out}; {unnamed}."


def with_looks(verdict: Verdict, looks: LooksVerdict | None) -> Verdict:
    """Return the verdict with the number of its run, and a warning if it passes where other runs of the same named
    version did not."""
    if looks is None:
        return verdict
    warnings, without = verdict.warnings, looks.failed + looks.inconclusive
    if verdict.outcome == "pass" and looks.version is not None and looks.confidence is None and without:
        warning = (
            f"{without} of {looks.number} runs of version {looks.version} did not pass. A gate that is tried until it "
            "passes passes more often than promised: gate: {looks: pooled} judges all runs of a version together."
        )
        warnings = [*warnings, warning]
    return verdict.model_copy(update={"looks": looks, "warnings": warnings})


def pooled_runs(
    store: Store, run: RunRecord, accumulated: Accumulated, others: Sequence[str]
) -> list[tuple[RunRecord, Accumulated]]:
    """Return a run, and the results of the others that are judged together with it."""
    records = [store.runs.get(run_id) for run_id in others]
    read = [(record, accumulate(store, record, suite_of(record), one_by_one=True)) for record in records]
    return [*read, (run, accumulated)]


def pooled_metrics(store: Store, runs: Sequence[tuple[RunRecord, Accumulated]]) -> dict[str, MetricAccumulator]:
    """Return the metrics of several runs together, by id."""
    cases = _pooled_cases(store, runs)
    pooled: dict[str, MetricAccumulator] = {}
    offset = 0
    for run, accumulated in runs:
        for own in accumulated.accumulators:
            metric = pooled.setdefault(
                own.metric.id, MetricAccumulator(own.metric, own.scale, [], own.repeats, clusters=cases)
            )
            metric.take_in(own, offset)
        offset += run.n_cases
    return pooled


def _pooled_cases(store: Store, runs: Sequence[tuple[RunRecord, Accumulated]]) -> ClusteredCases:
    """Number the cases of all runs: the same number for the same content, and for the same cluster."""
    groups = Groups()
    contents: list[Hashable] = []
    for number, (run, accumulated) in enumerate(runs):
        path, clusters, names = suite_of(run).cluster, accumulated.clusters, metadata_read(run.suite)
        for index, case in enumerate(cases_of(store, run)):
            content = content_of(case, names) or content_hash(case.model_dump(exclude={"id"}))
            contents.append(content)
            if clusters is not None:
                groups.join((number, clusters.numbers[index]), content)
            if is_clustered(path) and (value := cluster_value(case, path)) is not None:
                groups.join((path, value), content)
    numbers: dict[Hashable, int] = {}
    of_run = runs[-1][1].clusters
    pooled = ClusteredCases(None, word=of_run.noun if of_run is not None else "test case")
    pooled.numbers.extend(numbers.setdefault(groups.first(content), len(numbers)) for content in contents)
    return pooled
