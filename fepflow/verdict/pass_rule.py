"""The verdict of a sampled test: the share of results that passed, against the required share.

Every test case is asked for the same number of samples, and each of these pairs ends in one way: *passed* (all its
checks did), *failed* (a check did not), *error* (a check, or the system under test, gave no answer), *unchecked* (it
has no check) or *skipped*. Only *passed* counts for the rate; all that was expected stays in its denominator. The
verdict is inconclusive where the pairs in error, unchecked or skipped could have decided it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output
from fepflow.statistics.estimate import PROPORTION, Counts, Estimate
from fepflow.statistics.means import mean_estimate
from fepflow.text import listed, number, percent
from fepflow.verdict.estimates import MetricEstimate
from fepflow.verdict.verdict import MetricVerdict, Outcome, RuleOutcome, Verdict

PassRule = Literal["case", "sample", "each_case"]
"""What is counted: pairs of test case and sample; samples of which every case passes; cases that reach the rate."""

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


class _Units(NamedTuple):
    """The outcomes that a rule counts: sample outcomes by independent cluster, their name, and the share of them
    that must pass."""

    outcomes: Sequence[Sequence[SampleOutcome]]
    noun: str
    needed: float


def outcome_of(checks: Sequence[CheckResult]) -> SampleOutcome:
    """The outcome of one output, by its checks. One that completes without a yes or no is no pass: an error."""
    return _worst([_outcome_of_check(check) for check in checks])


def judge_samples(results: Sequence[SampleResult], samples: int, rule: PassRule, threshold: float) -> Verdict:
    """The verdict over all pairs of test case and sample, each of which is in `results` once.

    Passes when the rate is at least `threshold` (0 to 1), the interval only being shown: a test asks whether the rate
    was reached. Its metrics are the rate that was judged, and for each check the mean of its passes.
    """
    grid = _grid(results, samples)
    units = _units(grid, rule, threshold)
    outcomes = [outcome for cluster in units.outcomes for outcome in cluster]
    reached = _reached(outcomes, units.needed)
    outcome = _OUTCOMES.get(reached, "inconclusive")
    estimate = _estimate(units.outcomes)
    reason = _reason(outcomes, units, estimate, rule, threshold, outcome)
    judged = MetricEstimate(JUDGED, "all", estimate)
    rate = MetricVerdict.of(judged, threshold=units.needed, outcome=outcome, reason=reason)
    return Verdict(
        outcome=outcome,
        gate=_gate_sentence(rule, threshold),
        reasons=[reason],
        rules=[
            RuleOutcome(rule=f"at least {number(threshold)}", metric=JUDGED, outcome=outcome, reason=reason),
        ],
        blocks=outcome != "pass",
        metrics=[rate, *map(MetricVerdict.of, _check_estimates(results, samples))],
    )


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


def _estimate(clusters: Sequence[Sequence[SampleOutcome]]) -> Estimate:
    """The rate of these very cases: each result is an observation of its own, and no case stands for others."""
    outcomes = [outcome for cluster in clusters for outcome in cluster]
    values = [[float(outcome == "passed")] if outcome in ("passed", "failed") else [] for outcome in outcomes]
    without_answer = outcomes.count("error") + outcomes.count("unchecked")
    counts = Counts(len(outcomes), sum(map(len, values)), without_answer, outcomes.count("skipped"))
    return mean_estimate(values, counts, scale=PROPORTION)


def _check_estimates(results: Sequence[SampleResult], samples: int) -> list[MetricEstimate]:
    """Return for each check the mean of its passes, over the test cases that have it."""
    outcomes: dict[str, dict[int, list[SampleOutcome]]] = {}
    for result in results:
        for check in result.checks:
            outcomes.setdefault(check.check_id, {}).setdefault(result.case_index, []).append(_outcome_of_check(check))
    for by_case in outcomes.values():
        for found in by_case.values():
            found += ["skipped"] * (samples - len(found))
    return [MetricEstimate(name, name, _estimate(list(by_case.values()))) for name, by_case in outcomes.items()]


def _reason(
    outcomes: Sequence[SampleOutcome],
    units: _Units,
    estimate: Estimate,
    rule: PassRule,
    threshold: float,
    outcome: Outcome,
) -> str:
    passed, n = outcomes.count("passed"), len(outcomes)
    did = f"passed in at least {number(threshold)} of their samples" if rule == "each_case" else "passed"
    interval = ""
    if estimate.low is not None and estimate.high is not None:
        bounds = f"{number(estimate.low)} to {number(estimate.high)}"
        interval = f" ({percent(estimate.confidence)} interval {bounds} for these cases)"
    required = "all have to" if rule == "each_case" else f"the threshold is {number(units.needed)}"
    gaps = listed([f"{outcomes.count(missing)} {what}" for missing, what in _MISSING.items() if missing in outcomes])
    decisive = ", which could decide it" if outcome == "inconclusive" else ""
    rest = f"; {gaps}{decisive}" if gaps else ""
    return f"{passed} of {n} {units.noun} {did}: {number(passed / n, units.needed)}{interval}, {required}{rest}."


def _gate_sentence(rule: PassRule, threshold: float) -> str:
    if rule == "each_case":
        return f"Every test case must pass in at least {number(threshold)} of its samples."
    if rule == "sample":
        return f"At least {number(threshold)} of the samples must pass, each with all its test cases."
    return f"At least {number(threshold)} of the results must pass."
