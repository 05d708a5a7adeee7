"""Simulations of how often a gate passes by a judge that errs: at most about as often as it promises.

The truth is 0.84, or just below the minimum. Nominal is 2.5 %. The largest allowed is 3 %, and what the number of
simulations may differ from the truth by chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import pytest

from fepflow.analysis.labels import draw_of_both
from fepflow.statistics.estimate import PROPORTION, Counts, Estimate
from fepflow.statistics.judges import Design, JudgeLabels, corrected, doubt_of_labels
from fepflow.statistics.means import CaseValue, Sums, mean_estimate
from fepflow.statistics.paired import corrected_difference, difference, paired_estimate
from fepflow.suite.models import Gate, JudgeValue
from fepflow.verdict.gate import decide
from fepflow.verdict.regression_rules import MetricDifference, judge_differences
from fepflow.verdict.verdict import MetricEstimate

pytestmark = pytest.mark.battery

RUNS = 2_000
MOST = 0.03 + 2.5 * math.sqrt(0.03 * 0.97 / RUNS)
TRUTH = 0.84

Judged = tuple[bool, bool]
"""An output: True if it is right, and True if the judge passes it."""


def outputs_of(rng: Random, n: int, rates: tuple[float, float], truth: float = TRUTH) -> list[Judged]:
    """Outputs, judged with a true positive and a true negative rate."""
    right = [rng.random() < truth for _ in range(n)]
    return [(is_right, rng.random() < (rates[0] if is_right else 1 - rates[1])) for is_right in right]


def labels_of(labelled: Sequence[Judged], design: Design, *, of_run: bool, share: float | None = None) -> JudgeLabels:
    return JudgeLabels(
        sum(is_right for is_right, _ in labelled),
        sum(is_right and passed for is_right, passed in labelled),
        sum(not is_right for is_right, _ in labelled),
        sum(not is_right and not passed for is_right, passed in labelled),
        design,
        of_run,
        share,
    )


def drawn(rng: Random, outputs: Sequence[Judged], size: int, *, of_run: bool = True) -> JudgeLabels:
    """Return labels of the outputs that `fepflow calibrate --sample` draws."""
    ids = {passed: [str(i) for i, output in enumerate(outputs) if output[1] is passed] for passed in (True, False)}
    chosen = draw_of_both(ids[True], ids[False], size, rng.randrange(10**9))
    share = len(ids[True]) / len(outputs)
    return labels_of([outputs[int(i)] for i in chosen], "by_verdict", of_run=of_run, share=share)


def picked(outputs: Sequence[Judged], *, of_run: bool, only_agreed: bool) -> JudgeLabels:
    """Fifty that the judge passed, and fifty that it failed; as they come, or those on which people agree with it."""
    wanted = [output for output in outputs if output[0] is output[1] or not only_agreed]
    passed, failed = ([output for output in wanted if output[1] is verdict][:50] for verdict in (True, False))
    return labels_of([*passed, *failed], "by_hand", of_run=of_run)


def raw_share(outputs: Sequence[Judged]) -> Estimate:
    return mean_estimate(
        [[float(passed)] for _, passed in outputs], Counts(len(outputs), len(outputs)), 0.95, PROPORTION
    )


def metric_of(outputs: Sequence[Judged], labels: JudgeLabels) -> MetricEstimate:
    raw = raw_share(outputs)
    assert isinstance(raw.sample, Sums)
    doubt = doubt_of_labels(labels, raw.sample.share, raw.sample.effective(0.95))
    return MetricEstimate(
        "m", "c", raw, by_judge=True, doubt=doubt, corrected=None if doubt else corrected(raw, labels)
    )


def passes(metric: MetricEstimate, minimum: float, judge: JudgeValue | None = None) -> bool:
    return decide([metric], Gate(min={"m": minimum}, judge=judge), None, []).outcome == "pass"


JUDGES = [(1.0, 0.5), (0.95, 0.9), (0.8, 1.0), (0.85, 0.75)]


@pytest.mark.parametrize("only_agreed", [True, False])
@pytest.mark.parametrize("of_run", [True, False])
@pytest.mark.parametrize("rates", JUDGES)
@pytest.mark.parametrize("n", [500, 2_000])
def test_labels_picked_by_the_judges_verdict_pass_nothing(
    n: int, rates: tuple[float, float], of_run: bool, only_agreed: bool
) -> None:
    """Labels of this run correct nothing; those of an earlier run with the same agent have to fit this one."""
    rng, passed, runs = Random(f"{n} {rates} {of_run}"), 0, 200
    for _ in range(runs):
        outputs = outputs_of(rng, n, rates)
        labels = picked(outputs if of_run else outputs_of(rng, n, rates), of_run=of_run, only_agreed=only_agreed)
        passed += passes(metric_of(outputs, labels), 0.9)
        passed += passes(metric_of(outputs, labels), 0.9, "corrected")
    assert passed == 0


@pytest.mark.parametrize("rates", JUDGES)
@pytest.mark.parametrize(("n", "size"), [(500, 60), (2_000, 100)])
def test_labels_drawn_by_verdict_hold_what_they_promise(n: int, size: int, rates: tuple[float, float]) -> None:
    rng = Random(f"{n} {size} {rates}")
    at_boundary = above = covered = 0
    for _ in range(RUNS):
        outputs = outputs_of(rng, n, rates)
        metric = metric_of(outputs, drawn(rng, outputs, size))
        at_boundary += passes(metric, TRUTH) + passes(metric, TRUTH, "raw")
        above += passes(metric, 0.9)
        assert metric.corrected is not None
        low, high = metric.corrected.interval
        covered += low <= TRUTH <= high
    assert at_boundary / 2 / RUNS <= MOST
    assert above / RUNS <= 0.005
    assert covered / RUNS >= 0.95 - 2.5 * math.sqrt(0.05 * 0.95 / RUNS)


@pytest.mark.parametrize("rates", JUDGES)
@pytest.mark.parametrize(("n", "truth_then"), [(500, 0.84), (1_000, 0.88)])
def test_labels_drawn_from_an_earlier_run_hold_what_they_promise(
    n: int, truth_then: float, rates: tuple[float, float]
) -> None:
    """The agent may have been better then; where the labels do not fit, nothing passes."""
    rng = Random(f"{n} {truth_then} {rates}")
    at_boundary = 0
    for _ in range(RUNS):
        labels = drawn(rng, outputs_of(rng, n, rates, truth_then), 100, of_run=False)
        at_boundary += passes(metric_of(outputs_of(rng, n, rates), labels), TRUTH)
    assert at_boundary / RUNS <= MOST


@pytest.mark.parametrize("rates", JUDGES)
def test_labels_of_the_same_agent_seldom_fail_to_fit(rates: tuple[float, float]) -> None:
    rng, doubted = Random(f"fit {rates}"), 0
    for _ in range(RUNS):
        labels = drawn(rng, outputs_of(rng, 1_000, rates), 100, of_run=False)
        doubted += metric_of(outputs_of(rng, 1_000, rates), labels).doubt is not None
    assert doubted / RUNS <= 0.05 + 2.5 * math.sqrt(0.05 * 0.95 / RUNS)


@pytest.mark.parametrize("judge", ["raw", None, "corrected"])
@pytest.mark.parametrize("of_run", [True, False])
def test_a_regression_by_a_judge_that_sees_six_tenths_of_it_seldom_passes(
    judge: JudgeValue | None, of_run: bool
) -> None:
    """True positive rate 0.9, true negative rate 0.7; 300 cases, worse by the margin of 0.1."""
    rng, rates, runs, margin, passed = Random(f"{judge} {of_run}"), (0.9, 0.7), 1_000, 0.1, 0
    for _ in range(runs):
        base = outputs_of(rng, 300, rates, 0.9)
        right = [is_right and rng.random() >= margin / 0.9 for is_right, _ in base]
        new = [outputs_of(rng, 1, rates, float(is_right))[0] for is_right in right]
        labels = drawn(rng, new if of_run else outputs_of(rng, 1_000, rates, 0.85), 100, of_run=of_run)
        pairs = [
            (CaseValue(*[float(was)] * 3), CaseValue(*[float(now)] * 3))
            for (_, was), (_, now) in zip(base, new, strict=True)
        ]
        estimate = paired_estimate([difference(*pair, PROPORTION) for pair in pairs], 0.95, PROPORTION)
        doubt = doubt_of_labels(labels, sum(now for _, now in new) / 300, 300)
        right_difference = None if doubt else corrected_difference(estimate, labels)
        metric = MetricDifference("m", "c", estimate=estimate, by_judge=True, doubt=doubt, corrected=right_difference)
        # By `judge: raw` labels that do not fit tell nothing, and the raw value decides, as without labels.
        gate = Gate(judge=None if doubt else judge)
        (rule,), _ = judge_differences([metric], {"m": margin}, "main", gate)
        passed += rule.outcome == "pass"
    assert passed / runs <= 0.03 + 2.5 * math.sqrt(0.03 * 0.97 / runs)
