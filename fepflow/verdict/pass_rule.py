"""The verdict of a sampled test: the share of results that passed, against the required share.

Every test case is asked for the same number of samples, and each of these pairs ends in one way: *passed* (all its
checks did), *failed* (a check did not), *error* (a check, or the system under test, gave no answer), *unchecked* (it
has no check) or *skipped*. Only *passed* counts for the rate; all that was expected stays in its denominator. The
verdict is inconclusive where the pairs in error, unchecked or skipped could have decided it.

If the verdict has to be `shown`, the rate is compared by its evidence instead (`statistics.sequential`), which holds
at every look, so that samples can be added while neither side is shown. Of several cases, each is judged for itself:
that all reach the threshold needs no correction, that one misses it is shown at 1 - 0.05 / cases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output
from fepflow.statistics.estimate import PROPORTION, Clusters, Counts, Estimate
from fepflow.statistics.means import mean_estimate
from fepflow.statistics.proportions import beta_cdf
from fepflow.statistics.sequential import Values, is_shown_above, passes_in_a_row, sequential_estimate
from fepflow.text import listed, number, percent, plural
from fepflow.verdict.verdict import MetricEstimate, MetricVerdict, Outcome, RuleOutcome, Verdict

PassRule = Literal["case", "sample", "each_case"]
"""The units that are counted: pairs of test case and sample; samples of which every case passes; cases that reach the
rate."""

SampleOutcome = Literal["passed", "failed", "error", "unchecked", "skipped"]

JUDGED = "pass_rate"
"""Id of the metric that is judged."""

_MISSING: dict[SampleOutcome, str] = {"error": "in error", "unchecked": "without any check", "skipped": "skipped"}
"""Outcomes that might have been any other, and how they are said; the first decides what several are together."""

_OUTCOMES: dict[SampleOutcome, Outcome] = {"passed": "pass", "failed": "fail", "error": "inconclusive"}


@dataclass(frozen=True, slots=True)
class SampleResult:
    """A sample, counted from 0, of a test case. A skipped one has no `output` (None) and no `checks`.

    `why` says in one line what kept it from being checked: a skip, or what the system under test raised.
    """

    case_index: int
    sample: int
    output: Output | None
    checks: list[CheckResult]
    outcome: SampleOutcome
    why: str | None = None


class CaseClusters(NamedTuple):
    """The clusters of test cases: the number of its cluster by case index, and what a cluster is, such as `document`;
    None if each case stands alone."""

    numbers: Sequence[int]
    noun: str | None


class _Units(NamedTuple):
    """The outcomes that a rule counts: sample outcomes by independent cluster, their name, and the share of them
    that must pass."""

    outcomes: Sequence[Sequence[SampleOutcome]]
    noun: str
    needed: float


def outcome_of(checks: Sequence[CheckResult]) -> SampleOutcome:
    """Return the outcome of one output by its checks. A check that completes without a yes or no is an error."""
    return _worst([_outcome_of_check(check) for check in checks])


def judge_samples(
    results: Sequence[SampleResult],
    samples: int,
    rule: PassRule,
    threshold: float,
    *,
    shown: bool = False,
    clusters: CaseClusters | None = None,
) -> Verdict:
    """Judge all pairs of test case and sample, each of which is in `results` once.

    Passes when the rate is at least `threshold` (0 to 1), the interval only being shown: a test asks whether the rate
    was reached. Its metrics are the rate that was judged, and for each check the mean of its passes.

    If it has to be `shown`, the evidence decides. While it shows neither, the verdict is inconclusive and blocks
    nothing, unless the rate would be shown to be below with what is missing as failed.

    `clusters` add the interval for all such cases, which decides nothing, and make it that of the metrics. It does not
    hold where samples were added until something was shown, nor for samples of all cases: then there is none.
    """
    grid = _grid(results, samples)
    units = _units(grid, rule, threshold)
    outcomes = [outcome for cluster in units.outcomes for outcome in cluster]
    at_every_look = shown and rule != "each_case"
    estimate = _estimate(units.outcomes, at_every_look=at_every_look)
    clusters = None if shown or rule == "sample" else clusters
    such_cases = _estimate_of_such_cases(dict(enumerate(units.outcomes)), clusters) if clusters else None
    evidence: list[SampleOutcome | None] = []
    if shown:
        evidence = _shown(grid if rule == "each_case" else [outcomes], threshold)
        known = [outcome for outcome in evidence if outcome is not None]
        reached = _worst(known) if known else None
        reached = None if reached == "passed" and len(known) < len(evidence) else reached
    else:
        reached = _reached(outcomes, units.needed)
    outcome = "inconclusive" if reached is None else _OUTCOMES.get(reached, "inconclusive")
    passed, n = outcomes.count("passed"), len(outcomes)
    share = "each" if threshold == 1 else f"at least {number(threshold)}"
    did = f"passed in {share} of their samples" if rule == "each_case" else "passed"
    more = ", at every look" if at_every_look else _such_cases_in_words(such_cases)
    interval = f" ({_bounds(estimate)} for these cases{more})" if estimate.low is not None else ""
    required = "all have to" if rule == "each_case" else f"the threshold is {number(units.needed)}"
    end = _evidence_in_words(evidence, rule, samples if rule == "each_case" else n, threshold)
    gaps = listed([f"{outcomes.count(missing)} {what}" for missing, what in _MISSING.items() if missing in outcomes])
    could = ", which could decide it" if outcome == "inconclusive" and reached is not None else ""
    reason = (
        f"{passed} of {n} {units.noun} {did}: {number(passed / n, units.needed)}{interval}, {required}{end}"
        f"{f'; {gaps}{could}' if gaps else ''}."
    )
    judged = MetricEstimate(JUDGED, "all", such_cases or estimate)
    rate = MetricVerdict.of(judged, threshold=units.needed, outcome=outcome, reason=reason)
    return Verdict(
        outcome=outcome,
        gate=_gate_sentence(rule, threshold, shown=shown),
        reasons=[reason],
        rules=[
            RuleOutcome(rule=f"at least {number(threshold)}", metric=JUDGED, outcome=outcome, reason=reason),
        ],
        blocks=outcome != "pass" and reached is not None,
        metrics=[rate, *map(MetricVerdict.of, _check_estimates(results, samples, clusters, at_every_look=shown))],
    )


def chance_of_each_case(cases: int, samples: int, threshold: float, rate: float) -> float:
    """Return the chance of a pass by the rule `each_case`, if every case passes in this `rate` of its samples."""
    needed = next(passed for passed in range(samples + 1) if passed / samples >= threshold)
    of_one = beta_cdf(rate, needed, samples - needed + 1) if needed else 1.0
    return of_one**cases


def _shown(groups: Sequence[Sequence[SampleOutcome]], threshold: float) -> list[SampleOutcome | None]:
    """Return what the evidence shows of each group, whatever the missing outcomes might have been: `passed` or
    `failed`. The kind of what is missing if its rate would be shown to be below with it as failed; None while open."""
    fail_confidence = 1 - 0.05 / len(groups)

    def is_below(passed: int, failed: int) -> bool:
        return is_shown_above(Values.of_passes(failed, passed), 1 - threshold, fail_confidence)

    def show(outcomes: Sequence[SampleOutcome]) -> SampleOutcome | None:
        passed, failed = outcomes.count("passed"), outcomes.count("failed")
        missing = len(outcomes) - passed - failed
        if is_shown_above(Values.of_passes(passed, failed + missing), threshold):
            return "passed"
        if is_below(passed + missing, failed):
            return "failed"
        return _first_missing(outcomes) if is_below(passed, failed + missing) else None

    return [show(outcomes) for outcomes in groups]


def _worst(outcomes: Sequence[SampleOutcome]) -> SampleOutcome:
    if "failed" in outcomes:
        return "failed"
    return _first_missing(outcomes) or ("passed" if outcomes else "unchecked")


def _first_missing(outcomes: Sequence[SampleOutcome]) -> SampleOutcome | None:
    return next((missing for missing in _MISSING if missing in outcomes), None)


def _outcome_of_check(check: CheckResult) -> SampleOutcome:
    if check.status != "completed":
        return "skipped" if check.status == "skip" else "error"
    passed = check.passed
    if passed is None:
        return "error"
    return "passed" if passed else "failed"


def _grid(results: Sequence[SampleResult], samples: int) -> list[list[SampleOutcome]]:
    ordered = sorted(results, key=lambda result: (result.case_index, result.sample))
    outcomes = [result.outcome for result in ordered]
    return [outcomes[start : start + samples] for start in range(0, len(outcomes), samples)]


def _units(grid: list[list[SampleOutcome]], rule: PassRule, threshold: float) -> _Units:
    if rule == "sample":
        return _Units([[_worst(column)] for column in zip(*grid, strict=True)], "samples", threshold)
    if rule == "each_case":
        return _Units([[_reached(row, threshold)] for row in grid], "test cases", 1.0)
    return _Units(grid, "results", threshold)


def _reached(outcomes: Sequence[SampleOutcome], needed: float) -> SampleOutcome:
    """Return `passed` if enough outcomes passed, whatever the missing ones might have been; else why that is not
    known."""
    if outcomes.count("passed") / len(outcomes) >= needed:
        return "passed"
    missing = _first_missing(outcomes)
    if missing is None or (len(outcomes) - outcomes.count("failed")) / len(outcomes) < needed:
        return "failed"
    return missing


def _estimate(clusters: Sequence[Sequence[SampleOutcome]], *, at_every_look: bool) -> Estimate:
    """Estimate the rate of these very cases: each result is one observation, and no case stands for others."""
    outcomes = [outcome for cluster in clusters for outcome in cluster]
    values = [_values([outcome]) for outcome in outcomes]
    estimate = mean_estimate(values, _counts(outcomes), scale=PROPORTION)
    return sequential_estimate(estimate, values, 1, PROPORTION, these_cases=True) if at_every_look else estimate


def _estimate_of_such_cases(by_case: Mapping[int, Sequence[SampleOutcome]], clusters: CaseClusters) -> Estimate:
    """Estimate the rate of all cases like these: clusters of cases are what was sampled."""
    values: dict[int, list[float]] = {}
    for index, outcomes in by_case.items():
        values.setdefault(clusters.numbers[index], []).extend(_values(outcomes))
    counts = _counts([outcome for outcomes in by_case.values() for outcome in outcomes])
    if clusters.noun is not None:
        sizes = Counter(clusters.numbers[index] for index in by_case)
        counts = replace(counts, clusters=Clusters.of(sizes.values(), clusters.noun))
    return mean_estimate(list(values.values()), counts, scale=PROPORTION)


def _values(outcomes: Sequence[SampleOutcome]) -> list[float]:
    return [float(outcome == "passed") for outcome in outcomes if outcome in ("passed", "failed")]


def _counts(outcomes: Sequence[SampleOutcome]) -> Counts:
    without_answer = outcomes.count("error") + outcomes.count("unchecked")
    return Counts(len(outcomes), len(_values(outcomes)), without_answer, outcomes.count("skipped"))


def _such_cases_in_words(estimate: Estimate | None) -> str:
    """Return the interval for all such cases, which follows that for these; empty if there is none."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return ""
    counts = estimate.counts
    clusters = f" in {plural(counts.clusters.number, counts.clusters.noun)}" if counts.clusters else ""
    return f", {number(estimate.low)} to {number(estimate.high)} for all such cases: n = {counts.expected}{clusters}"


def _check_estimates(
    results: Sequence[SampleResult], samples: int, clusters: CaseClusters | None, *, at_every_look: bool
) -> list[MetricEstimate]:
    """Return for each check the mean of its passes, over the test cases that have it."""
    outcomes: dict[str, dict[int, list[SampleOutcome]]] = {}
    for result in results:
        for check in result.checks:
            outcomes.setdefault(check.check_id, {}).setdefault(result.case_index, []).append(_outcome_of_check(check))
    for by_case in outcomes.values():
        for outcomes_of_case in by_case.values():
            outcomes_of_case += ["skipped"] * (samples - len(outcomes_of_case))

    def estimate(by_case: Mapping[int, Sequence[SampleOutcome]]) -> Estimate:
        if clusters is not None:
            return _estimate_of_such_cases(by_case, clusters)
        return _estimate(list(by_case.values()), at_every_look=at_every_look)

    return [MetricEstimate(name, name, estimate(by_case)) for name, by_case in outcomes.items()]


def _bounds(estimate: Estimate) -> str:
    assert estimate.low is not None
    assert estimate.high is not None
    return f"{percent(estimate.confidence)} interval {number(estimate.low)} to {number(estimate.high)}"


def _evidence_in_words(evidence: Sequence[SampleOutcome | None], rule: PassRule, n: int, threshold: float) -> str:
    """Return what is shown, of the rate or of each case, with `n` results; empty if nothing has to be shown."""
    if not evidence:
        return ""
    needed = passes_in_a_row(threshold)
    advice = f" (to show it takes {needed} passes or more)" if n < needed and None in evidence else ""
    if rule == "each_case":
        reach, miss = evidence.count("passed"), evidence.count("failed")
        return f"; {reach} are shown to, {miss} not to, {len(evidence) - reach - miss} neither{advice}"
    if evidence[0] in ("passed", "failed"):
        return f", which is shown to be {'reached' if evidence[0] == 'passed' else 'missed'}"
    return f", which is neither shown to be reached nor to be missed{advice}"


def _gate_sentence(rule: PassRule, threshold: float, *, shown: bool) -> str:
    end = "; it fails only if fewer are shown." if shown else "."
    if threshold == 1:  # "at least 1 of the results" would read as one result
        return {
            "case": "Every result must pass.",
            "sample": "Every sample must pass, with all its test cases.",
            "each_case": "Every test case must pass in each of its samples.",
        }[rule]
    if rule == "each_case":
        return f"Every test case must pass in at least {number(threshold)} of its samples{end}"
    if rule == "sample":
        return f"At least {number(threshold)} of the samples must pass, each with all its test cases{end}"
    return f"At least {number(threshold)} of the results must pass{end}"
