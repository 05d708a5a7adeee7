"""The comparison of two runs: matched test cases, the difference of each metric over them, and flipped cases.

The base of a comparison is a run, or several of the same cases that are pooled, by an id or by a baseline's name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from fepflow.analysis.accumulation import (
    MetricAccumulator,
    accumulate,
    cases_of,
    is_of_passes,
    is_share_that_passed,
    scale_of_aggregate,
    suite_of,
)
from fepflow.analysis.judge_reliability import LabelsByMetric, labels_by_metric
from fepflow.checks.registry import CHECKS, JUDGES
from fepflow.errors import NotFoundError, UserError
from fepflow.protocol.check import Check
from fepflow.protocol.content_hash import content_hash
from fepflow.protocol.test_case import TestCase
from fepflow.statistics.estimate import Scale
from fepflow.statistics.means import CaseValue
from fepflow.statistics.paired import Pairs, corrected_difference, difference, paired_estimate
from fepflow.store.records import Baseline, RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import MAY_CHANGE, Gate, Suite, check_ids
from fepflow.suite.values import PREVIOUS, is_baseline_name
from fepflow.text import listed, listed_first, plural
from fepflow.verdict.regression_rules import MetricDifference


@dataclass(frozen=True, slots=True)
class Base:
    """Runs of the same suite and cases, the values of whose cases are averaged.

    `choice` is a warning if more such runs were there when these were chosen: a base that came out low by chance lets
    a regression pass.
    """

    runs: Sequence[RunRecord]
    choice: str | None = None


def base_of(store: Store, run: RunRecord, named: str) -> Base:
    """Return the runs of a base that `named` stands for: a run's id, a baseline of the run's suite, or `previous`.

    All have an outcome. Raises NotFoundError, UserError.
    """
    if named == PREVIOUS:
        newest = store.runs.before(run, alike=False)
        if newest is None:
            raise NotFoundError("There is no earlier run of the suite.")
        return Base([newest])
    if not is_baseline_name(named):
        base = chosen(store, [with_outcome(store, named)], run.created_at)
    elif (baseline := baseline_of(store, run.name, named)) is not None:
        base = base_of_baseline(store, baseline)
    else:
        raise NotFoundError(
            f"There is no baseline {named} of the suite {run.name} yet: `fepflow baseline set {named} {run.id[:8]}` "
            "makes this run the one that the next ones are compared with."
        )
    if run.rescored_from is not None and run.asked_in in (base_run.asked_in for base_run in base.runs):
        raise UserError(f"Run {run.id[:8]} has the same outputs as {named}, from which nothing can have become worse.")
    return base


def base_of_baseline(store: Store, baseline: Baseline) -> Base:
    """Return the runs of a baseline. Raises NotFoundError, UserError."""
    runs = [with_outcome(store, run_id) for run_id in (baseline.run_id, *baseline.others)]
    return chosen(store, runs, baseline.set_at)


def baseline_of(store: Store, suite: str, name: str) -> Baseline | None:
    """Return the suite's baseline of this name, or None."""
    return next((baseline for baseline in store.runs.baselines(name) if baseline.suite == suite), None)


def chosen(store: Store, runs: Sequence[RunRecord], before: datetime) -> Base:
    """Return runs as a base, with a warning if they were chosen from more runs with an outcome at that time."""
    first, ids = runs[0], {run.id for run in runs}
    candidates = store.runs.equal_to(first, before) | ids if first.target_hash is not None else ids
    if len(candidates) == len(ids):
        return Base(runs)
    of = f"of version {first.version}" if first.version else "on the same target"
    return Base(
        runs,
        f"The base is {len(ids)} of {plural(len(candidates), 'run')} {of}. If it was chosen because it came out low, a "
        "regression passes more often than promised; pool the runs: fepflow baseline set NAME RUN RUN ...",
    )


def require_poolable(runs: Sequence[RunRecord]) -> None:
    """Raise UserError for runs with different suites or cases."""
    first = runs[0]
    if reusing := [run for run in runs if run.reuses_outputs and len(runs) > 1]:
        raise UserError(f"Run {reusing[0].id[:8]} cannot be pooled: outputs of earlier runs would count twice.")
    if len({run.asked_in for run in runs}) < len(runs):
        raise UserError("A run and what was rescored from it cannot be pooled: their outputs are the same.")
    for run in runs[1:]:
        if run.name != first.name or run.suite_hash is None or run.suite_hash != first.suite_hash:
            raise UserError(f"Runs {first.id[:8]} and {run.id[:8]} cannot be pooled: their suites are not the same.")
        # Of the cases that both may take in, two runs that are topped up may have others, and another number.
        if (run.cases_hash, run.n_cases, run.sample) != (first.cases_hash, first.n_cases, first.sample):
            raise UserError(f"Runs {first.id[:8]} and {run.id[:8]} cannot be pooled: they have other test cases.")


def with_outcome(store: Store, run_id: str) -> RunRecord:
    """Return the run with this id, if it has an outcome and no filter chose its cases. Raises NotFoundError or
    UserError."""
    baseline = store.runs.get(run_id)
    if baseline.outcome is None:
        raise UserError(f"The run {baseline.id} has no verdict to compare with: it is {baseline.status}.")
    if baseline.filtered:
        raise UserError(
            f"The run {baseline.id} cannot be a baseline: it has only {baseline.filtered}. Use a run of all cases."
        )
    return baseline


_MODEL_SECTIONS = {**dict.fromkeys(map(str, JUDGES), "judge"), "semantic_similarity": "embedding"}
"""Sections of a suite that decide, too, what checks of a type give."""

_TELLING = ("target", "repeats", "plugins", "the code of its plugins")
"""Parts of a suite that leave its checks and metrics as they are, and may change their values all the same."""


NO_VALUE = CaseValue(None, -math.inf, math.inf)
"""The half of a case that a run has not."""


@dataclass(frozen=True, slots=True)
class Flip:
    """A case whose value of a metric of passes has changed: its share of repeats that passed, then and now."""

    metric: str
    case_id: str
    base_index: int
    new_index: int
    base: float
    new: float
    same_output: str | None = None
    """Cause of a change that is not the output, as both runs judge the same one."""


@dataclass(frozen=True, slots=True)
class RunComparison:
    """The changes from a base run to a new one. `flips` has all flipped cases, the largest changes first.

    `pooled` are further runs of the base's cases; the base's values are means over them.
    """

    base: RunRecord
    new: RunRecord
    matched: MatchedCases
    metrics: list[MetricDifference]
    worsened: list[Flip]
    improved: list[Flip]
    warnings: list[str]
    gate: Gate
    pooled: Sequence[RunRecord] = ()


@dataclass(frozen=True, slots=True)
class RunResults:
    """The compared parts of a run: its suite, its cases, its metrics by id, and labels of its judges."""

    run: RunRecord
    suite: Suite
    cases: Contents
    metrics: dict[str, MetricAccumulator]
    labels: LabelsByMetric
    pooled: Sequence[RunRecord] = ()
    choice: str | None = None
    """A warning if the run was chosen from several."""


def results_of(
    store: Store, run: RunRecord, known: tuple[Sequence[MetricAccumulator], LabelsByMetric] | None = None
) -> RunResults:
    """Read the compared parts of a run.

    `known` has its metrics, one by one, and its judges' labels, if they were read already.
    """
    suite = suite_of(run)
    if known is None:
        read = accumulate(store, run, suite, one_by_one=True)
        declared = {name: carriers.declared for name, carriers in read.carriers.items()}
        known = read.accumulators, labels_by_metric(store, run, read.accumulators, declared)
    accumulators, labels = known
    return RunResults(
        run,
        suite,
        contents_of(cases_of(store, run)),
        {accumulator.metric.id: accumulator for accumulator in accumulators},
        labels,
    )


def results_of_base(store: Store, base: Base) -> RunResults:
    """Return the results of all runs of a base together, as `results_of` does for one run."""
    first, *others = (results_with_verdict(store, run) for run in base.runs)
    for other in others:
        indices = {first.cases[case_id][0]: index for case_id, (index, _) in other.cases.items()}
        for name, accumulator in first.metrics.items():
            accumulator.pooled.append((other.metrics[name], indices))
    return replace(first, pooled=base.runs[1:], choice=base.choice)


def results_with_verdict(store: Store, run: RunRecord) -> RunResults:
    """Return the results of a run as `results_of` does. Raises UserError for a run without a verdict.

    A run in a file of another tool needs none.
    """
    if run.outcome is None and run.file is None:
        raise UserError(f"Run {run.short_name} has no verdict to compare: it is {run.status}.")
    return results_of(store, run)


def compare_results(then: RunResults, now: RunResults, *, metrics_needed: bool = True) -> RunComparison:
    """Compare two runs over the cases that both have.

    Raises UserError if nothing can be compared: no common case, or no metric if `metrics_needed`.
    """
    base, new = then.run, now.run
    if new.id in (base.id, *(run.id for run in then.pooled)):
        raise UserError(f"Run {new.short_name} would be compared with itself.")
    matched = match_cases(then.cases, now.cases)
    is_rescored = base.asked_in == new.asked_in
    if not matched.pairs and not (is_rescored and matched.changed):
        raise UserError(
            f"Runs {base.short_name} ({base.name}) and {new.short_name} ({new.name}) have no test case in common: "
            f"{matched.sentence}."
        )
    gate = now.suite.gate or Gate()
    # A case that a random sample did not draw was not removed.
    removed = () if then.run.sample or now.run.sample else matched.only_base
    absent = [then.cases[case_id][0] for case_id in (*matched.changed, *removed)]
    if len(absent) <= _may_change(gate) * (len(matched.pairs) + len(absent)):
        absent = []
    metrics: list[MetricDifference] = []
    flips: list[Flip] = []
    ids = list(now.cases)
    for name, accumulator in now.metrics.items():
        earlier = then.metrics.get(name)
        why_not = _why_not(earlier, accumulator, then, now)
        if is_rescored and earlier is not None and is_of_passes(accumulator.metric) and is_of_passes(earlier.metric):
            flips += _judged_otherwise(earlier, accumulator, then, now, why_not)
        if earlier is None or why_not is not None:
            metrics.append(_not_compared(accumulator, why_not or ""))
            continue
        try:
            difference_of_metric = _difference(earlier, accumulator, matched, gate, absent)
        except (ArithmeticError, ValueError):  # of numbers at the end of what a float can hold
            metrics.append(_not_compared(accumulator, "its values are too large to be compared"))
            continue
        metrics.append(_with_correction(difference_of_metric, now.labels))
        if is_rescored:
            continue
        if is_of_passes(accumulator.metric) and accumulator.metric.aggregated.kind != "error_rate":
            flips += _flips(earlier, accumulator, matched, ids)
    gone = "the new run does not have it"
    metrics += [_not_compared(each, gone) for name, each in then.metrics.items() if name not in now.metrics]
    if metrics_needed and all(each.why_not for each in metrics) and not is_rescored:
        reasons = "; ".join(f"{each.id}: {each.why_not}" for each in metrics) or "the new run has no metrics"
        raise UserError(f"Runs {base.short_name} and {new.short_name} have no metric that can be compared: {reasons}.")
    flips.sort(key=lambda flip: flip.new - flip.base)
    return RunComparison(
        base,
        new,
        matched,
        metrics,
        [flip for flip in flips if flip.new < flip.base],
        [flip for flip in reversed(flips) if flip.new > flip.base],
        list(_warnings(then, now, matched, absent, metrics, gate)),
        gate,
        then.pooled,
    )


def _why_not(
    earlier: MetricAccumulator | None,
    accumulator: MetricAccumulator,
    then: RunResults,
    now: RunResults,
) -> str | None:
    if earlier is None:
        return "the base does not have it"
    if earlier.metric != accumulator.metric:
        return "it is another metric in the base"
    aggregate = accumulator.metric.aggregated
    if aggregate.kind == "quantile":
        return "there is no interval for the difference of percentiles"
    if aggregate.of_labels:
        return f"there is no interval for the difference of {aggregate.kind}; that of the share that passed has one"
    if aggregate.of_cases and earlier.repeats != accumulator.repeats:
        return f"cases were repeated {earlier.repeats} times in the base, and {accumulator.repeats} times now"
    check = _check(now.suite, accumulator.metric.check)
    earlier_check = _check(then.suite, accumulator.metric.check)
    are_known = then.run.has_suite and now.run.has_suite
    if check != earlier_check and (are_known or not _may_be_same(check, earlier_check)):
        return "its check has changed"
    section = _MODEL_SECTIONS.get(check.type) if check else None
    if section and then.run.suite.get(section) != now.run.suite.get(section):
        return f"the suite's {section} has changed"
    return None


def _not_compared(accumulator: MetricAccumulator, why_not: str) -> MetricDifference:
    metric = accumulator.metric
    return MetricDifference.not_compared(metric.id, metric.check, why_not, is_share=is_share_that_passed(metric))


def _check(suite: Suite, check_id: str | None) -> Check | None:
    """Return the suite's own check of this id; those of cases are a part of their contents."""
    shared = dict(zip(check_ids(suite.checks), suite.checks, strict=True)).get(check_id or "")
    return shared.model_copy(update={"id": None}) if shared else None


def _may_be_same(check: Check | None, other: Check | None) -> bool:
    """Return whether the known parts of both checks are the same; an unknown one may be in the cases."""
    if check is None or other is None:
        return True
    shared = check.arguments.keys() & other.arguments.keys()
    return check.type == other.type and all(check.arguments[name] == other.arguments[name] for name in shared)


def _difference(
    earlier: MetricAccumulator, later: MetricAccumulator, matched: MatchedCases, gate: Gate, absent: Sequence[int]
) -> MetricDifference:
    """Return the difference of a metric over the matched cases, and the `absent` ones of the base, at their worst."""
    metric, scale = later.metric, _scale(earlier, later)
    values = case_values(earlier, later, matched)
    clusters, carried, expected = later.clusters, set(later.case_indices), len(values)
    numbers = None if clusters is None else [clusters.numbers[now] for _, now in matched.pairs if now in carried]
    if gate.missing == "random":
        known = [index for index, (base, new) in enumerate(values) if None not in (base.value, new.value)]
        values = [(_alone(values[index][0]), _alone(values[index][1])) for index in known]
        numbers = None if numbers is None else [numbers[index] for index in known]
    differences = [difference(base, new, scale) for base, new in values]
    if not differences:
        return MetricDifference.not_compared(metric.id, metric.check, "no matched case has its check")
    halves = sorted(set(earlier.case_indices).intersection(absent))
    differences += [difference(earlier.case_value(index), NO_VALUE, scale) for index in halves]
    if numbers is not None:  # by the clusters of the base, whose numbers are other ones
        numbers += [-1 - earlier.clusters.numbers[index] if earlier.clusters else -1 for index in halves]
    noun = "cluster" if clusters is None else clusters.noun
    estimate = paired_estimate(differences, gate.pass_confidence, scale, numbers, noun, unmatched=len(halves))
    left_out = expected - len(values)
    counts = replace(estimate.counts, expected=expected + len(halves), error=estimate.counts.error + left_out)
    estimate = replace(estimate, counts=counts)
    both = [(base.value, new.value) for base, new in values if base.value is not None and new.value is not None]
    less = _less_is_better(later, gate)
    changes = [new - base for base, new in both]
    up, down = sum(change > 0 for change in changes), sum(change < 0 for change in changes)
    return MetricDifference(
        metric.id,
        metric.check,
        estimate,
        base=math.fsum(base for base, _ in both) / len(both) if both else None,
        new=math.fsum(new for _, new in both) / len(both) if both else None,
        p=estimate.sample.p_value() if isinstance(estimate.sample, Pairs) else None,
        improved=down if less else up,
        worsened=up if less else down,
        less_is_better=less,
        is_share=is_share_that_passed(metric),
        largest=None if scale is None else scale.high - scale.low,
    )


def _with_correction(metric: MetricDifference, labels: LabelsByMetric) -> MetricDifference:
    """Return the difference, corrected for a judge's errors if these are known."""
    if metric.id not in labels or metric.why_not is not None:
        return metric
    known = labels[metric.id]
    if known is None or known.doubt is not None:
        return replace(metric, by_judge=True, doubt=known.doubt if known else None)
    return replace(metric, by_judge=True, corrected=corrected_difference(metric.estimate, known.labels))


def _alone(case: CaseValue) -> CaseValue:
    """Return the case's value as if no repeat were missing."""
    assert case.value is not None
    return CaseValue(case.value, case.value, case.value)


def case_values(
    earlier: MetricAccumulator, later: MetricAccumulator, matched: MatchedCases
) -> list[tuple[CaseValue, CaseValue]]:
    """Return a metric's values of each matched case that has its check, in both runs."""
    carried = set(later.case_indices)
    return [(earlier.case_value(then), later.case_value(now)) for then, now in matched.pairs if now in carried]


def _scale(earlier: MetricAccumulator, later: MetricAccumulator) -> Scale | None:
    """Return the scale of cases' values: repeats of yes and no lie between."""
    scale = scale_of_aggregate(later.metric, later.scale)
    single = (earlier.repeats == later.repeats == 1) or later.metric.aggregated.kind in ("majority", "each", "worst")
    once = single and not earlier.pooled
    return Scale(scale.low, scale.high) if scale is not None and scale.binary and not once else scale


def _less_is_better(accumulator: MetricAccumulator, gate: Gate) -> bool | None:
    """Return whether less is better; None for a number of the outputs that the gate does not mention, such as
    latency."""
    metric = accumulator.metric
    if metric.aggregated.kind == "error_rate" or metric.id in gate.max:
        return True
    return False if metric.check is not None or metric.id in gate.min else None


def _flips(
    earlier: MetricAccumulator, later: MetricAccumulator, matched: MatchedCases, ids: Sequence[str]
) -> Iterator[Flip]:
    for then, now in matched.pairs:
        base, new = earlier.case_value(then).value, later.case_value(now).value
        if base is not None and new is not None and base != new:
            yield Flip(later.metric.id, ids[now], then, now, base, new)


def _judged_otherwise(
    earlier: MetricAccumulator, later: MetricAccumulator, then: RunResults, now: RunResults, why_not: str | None
) -> Iterator[Flip]:
    """Yield the flipped cases of two runs that judge the same outputs, each with the cause."""
    if earlier.metric.aggregated.kind == "error_rate":
        return
    carried_then, carried_now = set(earlier.case_indices), set(later.case_indices)
    check = _check(now.suite, later.metric.check)
    otherwise = "its check answered otherwise"
    if check is not None and check.type not in CHECKS and then.run.suite_hash != now.run.suite_hash:
        otherwise = "its check answered otherwise, as its code may have changed"
    for case_id, (new_index, content) in now.cases.items():
        base_index, content_then = then.cases.get(case_id, (-1, content))
        if base_index not in carried_then or new_index not in carried_now:
            continue
        base, new = earlier.case_value(base_index).value, later.case_value(new_index).value
        if base is not None and new is not None and base != new:
            of_case = "what the case expects, its own data, or its own check has changed"
            cause = why_not or (otherwise if content == content_then else of_case)
            yield Flip(later.metric.id, case_id, base_index, new_index, base, new, cause)


def _may_change(gate: Gate) -> float:
    """Return the share of cases that may have been edited or removed without counting as missing."""
    return gate.regression.changed if gate.regression else MAY_CHANGE


def _warnings(
    then: RunResults,
    now: RunResults,
    matched: MatchedCases,
    absent: Sequence[int],
    metrics: Sequence[MetricDifference],
    gate: Gate,
) -> Iterator[str]:
    base, new = then.run, now.run
    if base.asked_in == new.asked_in:
        yield "Both runs judge the same outputs: what differs is how they are judged, and not what the target answered."
    for run in (base, new):
        if run.filtered:
            yield f"Run {run.short_name} has only {run.filtered}, which do not stand for the suite."
    are_variants = base.suite.get("variant") != new.suite.get("variant")
    if base.name != new.name and not are_variants:
        yield f"The runs are of different suites, {base.name} and {new.name}."
    changed = [
        part for part in changed_parts(new, base) if part in _TELLING and not (are_variants and part == "target")
    ]
    if base.suite_hash != new.suite_hash and changed:
        yield f"What else has changed of the suite, and may be the cause: {', '.join(changed)}."
    if absent:
        yield (
            f"{len(absent)} of the base's {len(matched.pairs) + len(absent)} test cases were edited or removed, more "
            f"than a share of {_may_change(gate):g}. They count as if they had become worse, and for a fail as if "
            "they had become better. If the new test cases are right, make a run of them the baseline (fepflow "
            "baseline set)."
        )
    if then.choice:
        yield then.choice
    missing = [
        f"{metric.id}: {counts.missing} of {counts.expected}"
        for metric in metrics
        if metric.why_not is None and (counts := metric.estimate.counts).missing
    ]
    if missing and gate.missing != "random":
        yield (
            "Some test cases have no result in one of the runs. Values and cases that became worse leave them out; "
            f"intervals count them at their worst ({listed_first(missing, MOST_NAMED, None)})."
        )
    if gate.missing == "random" and any(metric.estimate.counts.missing for metric in metrics):
        yield (
            "Test cases without a result in both runs are left out: the gate states that they are a random sample "
            "(missing: random)."
        )


PARTS = ("checks", "judge", "embedding", "metrics", "thresholds", "gate", "plugins")
"""Sections that say how outputs are judged."""

NEWER_PARTS = ("slices", "cluster", "variant")
"""The same, and which variant of the target is judged. Suites of before could not have them: without them a suite has
the hash that it always had."""

OF_TARGET = ("method", "body", "output", "metadata", "id", "format")
"""Fields that decide how a target is asked. Its address, retries and limits may change between compared runs."""

MOST_NAMED = 5
"""Metrics that a warning names."""

MOST_CASES = 20_000
"""Cases that are looked through to say how many two runs have in common."""


def suite_hash(snapshot: dict[str, Any], repeats: int, folder: Path) -> str:
    """Return the content hash of what a suite measures, with the code of its plugins."""
    code = [sha256((folder / name).read_bytes()).hexdigest() for name in snapshot.get("plugins") or ()]
    return content_hash(_content(snapshot, repeats), code)


def why_not(store: Store, run: RunRecord, other: RunRecord) -> str | None:
    """Return why the values of two runs cannot be compared, or None."""
    if other.suite_hash is None or other.cases_hash is None:
        return "it is of an earlier version, which did not note what it measured"
    if run.suite_hash != other.suite_hash:
        return f"the suite has changed since ({', '.join(changed_parts(run, other))})"
    if run.cases_hash != other.cases_hash:
        return f"it has other test cases ({_in_common(store, run, other)})"
    return None


def changed_parts(run: RunRecord, other: RunRecord) -> list[str]:
    """Return the parts in which two suites with different hashes differ."""
    now, then = _content(run.suite, run.repeats), _content(other.suite, other.repeats)
    parts = [name for name in {**then, **now} if now.get(name) != then.get(name)]
    return parts or ["the code of its plugins"]


def _in_common(store: Store, run: RunRecord, other: RunRecord) -> str:
    if max(run.n_cases, other.n_cases) > MOST_CASES:
        return f"{other.n_cases}, and this run {run.n_cases}"
    now, then = ({content_hash(case.model_dump()) for case in store.runs.cases(record.id)} for record in (run, other))
    return f"{len(now & then)} of its {other.n_cases} are among the {run.n_cases} of this run"


def _content(snapshot: dict[str, Any], repeats: int) -> dict[str, Any]:
    target = snapshot.get("target") or {}
    request = {kind: _only(section, OF_TARGET) for kind, section in target.items() if isinstance(section, dict)}
    parts = {name: snapshot.get(name) for name in PARTS} | _only(snapshot, NEWER_PARTS)
    return {**parts, "target": request, "repeats": repeats}


def _only(section: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: section[name] for name in names if name in section}


NAMED = 3
"""Cases that a sentence names."""


@dataclass(frozen=True, slots=True)
class MatchedCases:
    """The cases that are in both runs with the same content, as pairs of indices, and the ids of the others.

    `changed` have the same id but another content. The counts are of all cases of each run.
    """

    pairs: list[tuple[int, int]]
    changed: list[str]
    only_base: list[str]
    only_new: list[str]

    @property
    def is_complete(self) -> bool:
        """True if all cases of both runs matched."""
        return not (self.changed or self.only_base or self.only_new)

    @property
    def sentence(self) -> str:
        """The number of matched cases, and which did not match, as a part of a sentence."""
        n = len(self.pairs)
        whole = f"{n} test case{'' if n == 1 else 's'} matched"
        others = [
            f"{len(ids)} {what} ({listed_first(ids, NAMED)})"
            for ids, what in (
                (self.changed, "changed"),
                (self.only_base, "only in the base"),
                (self.only_new, "only in the new run"),
            )
            if ids
        ]
        return f"{whole}; not compared: {listed(others)}" if others else f"all {whole}"


Contents = dict[str, tuple[int, str]]
"""The index of each case of a run, and the hash of its contents, by id, in the cases' order."""


def match_cases(then: Contents, now: Contents) -> MatchedCases:
    """Match the cases of two runs by their contents."""
    pairs, changed = [], []
    for case_id, (index, content) in now.items():
        if case_id in then:
            if then[case_id][1] == content:
                pairs.append((then[case_id][0], index))
            else:
                changed.append(case_id)
    only_base = [case_id for case_id in then if case_id not in now]
    return MatchedCases(pairs, changed, only_base, [case_id for case_id in now if case_id not in then])


def contents_of(cases: Iterable[TestCase]) -> Contents:
    """Return the contents by which cases of two runs are matched."""
    return {case.id: (index, content_hash(case.model_dump())) for index, case in enumerate(cases)}
