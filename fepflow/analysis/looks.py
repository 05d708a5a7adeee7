"""The runs of one version of a target by one suite: each of them is a look, and one may pass by chance.

A gate that passes an agent at its minimum one time in forty passes it one time in nine within five runs. So runs are
counted, whatever has caused them. What is the same version is known by how the target is asked, its address included,
and by the version's name, if it has one: a new deployment at the same address looks like the old one without a name.

With `looks: pooled` all runs of a version are judged together. A test case that several runs have was asked again, as
by `repeats`, and is what was sampled, once. The k-th run is judged at a confidence of which all looks together spend no
more than one look may (`confidence_of_look`), so that it does not matter how often one tries, and when one stops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

from fepflow.analysis.accumulation import Accumulated, MetricAccumulator, accumulate, cases_of, suite_of
from fepflow.analysis.clusters import ClusteredCases, Groups, cluster_value, is_clustered
from fepflow.analysis.dependence import content_of, metadata_read
from fepflow.protocol.content_hash import content_hash
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import Gate
from fepflow.text import listed, ordinal, percent, plural
from fepflow.verdict.gate import at_look
from fepflow.verdict.verdict import LooksVerdict, Outcome, Verdict

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
