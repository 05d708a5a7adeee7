"""Simulations of how often a gate on regression passes what is worse by exactly the margin: at most 3 %, and what the
number of simulations may differ from the truth by chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

import pytest

from fepflow.statistics.estimate import PROPORTION, Scale
from fepflow.statistics.means import CaseValue
from fepflow.statistics.paired import difference, paired_estimate
from fepflow.suite.models import Gate
from fepflow.verdict.regression_rules import MetricDifference, NotWorse, judge_differences

pytestmark = pytest.mark.battery

RUNS = 2_000
MOST = 0.03 + 2.5 * math.sqrt(0.03 * 0.97 / RUNS)
SHARES = Scale(0.0, 1.0)

Half = Sequence[float]
Draw = Callable[[Random, float], tuple[Half, Half]]
"""One case's values in both runs, which are worse by the margin on average."""


def once(rng: Random, margin: float) -> tuple[Half, Half]:
    """A tenth of the cases flips either way, and of the others as many break as the margin says."""
    u = rng.random()
    if u < 0.05:
        return [0.0], [1.0]
    if u < 0.10 + margin:
        return [1.0], [0.0]
    same = float(rng.random() < 0.9)
    return [same], [same]


def few_break(rng: Random, margin: float) -> tuple[Half, Half]:
    """All is stable, but for the cases that break."""
    return [1.0], [float(rng.random() >= margin)]


def repeats(rng: Random, margin: float) -> tuple[Half, Half]:
    """Three repeats; each case has a rate of its own, and loses the same part of it."""
    rate = rng.betavariate(1.8, 0.2)
    now = rate * (1 - margin / 0.9)
    return [float(rng.random() < rate) for _ in range(3)], [float(rng.random() < now) for _ in range(3)]


def repeats_that_break(rng: Random, margin: float) -> tuple[Half, Half]:
    """Five repeats of mostly sure cases, of which a few break altogether."""
    rate = rng.choices((1.0, 0.95, 0.6), (0.6, 0.3, 0.1))[0]
    now = 0.0 if rng.random() < margin / 0.945 else rate
    return [float(rng.random() < rate) for _ in range(5)], [float(rng.random() < now) for _ in range(5)]


def scores(rng: Random, margin: float) -> tuple[Half, Half]:
    """Many gain a little, and some lose all."""
    u = rng.random()
    return ([0.9], [1.0]) if u < 0.5 else ([1.0], [0.0]) if u < 0.55 + margin else ([0.7], [0.7])


KINDS: dict[str, tuple[Draw, Scale]] = {
    "once": (once, PROPORTION),
    "few break": (few_break, PROPORTION),
    "repeats": (repeats, SHARES),
    "repeats that break": (repeats_that_break, SHARES),
    "scores": (scores, SHARES),
}


def half(rng: Random, values: Half, missing: float) -> CaseValue:
    kept = [value for value in values if rng.random() >= missing]
    lost = len(values) - len(kept)
    least, most = sum(kept) / len(values), (sum(kept) + lost) / len(values)
    return CaseValue(sum(kept) / len(kept) if kept else None, least, most)


def drawn(rng: Random, kind: str, n: int, margin: float, missing: float) -> MetricDifference:
    draw, scale = KINDS[kind]
    pairs = [draw(rng, margin) for _ in range(n)]
    differences = [difference(half(rng, base, missing), half(rng, new, missing), scale) for base, new in pairs]
    return MetricDifference("m", "c", estimate=paired_estimate(differences, scale=scale))


@pytest.mark.parametrize("missing", [0.0, 0.05])
@pytest.mark.parametrize("margin", [0.02, 0.1])
@pytest.mark.parametrize("n", [35, 100, 300])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_worse_by_the_margin_seldom_passes(kind: str, n: int, margin: float, missing: float) -> None:
    rng, passed = Random(f"{kind} {n} {margin} {missing}"), 0
    for _ in range(RUNS):
        estimate = drawn(rng, kind, n, margin, missing).estimate
        assert estimate is not None
        passed += NotWorse.by(margin, "main", less_is_better=False).judge(*estimate.interval) == "pass"
    assert passed / RUNS <= MOST


@pytest.mark.parametrize("edited", [7, 15, 60])
def test_cases_that_broke_and_were_edited_seldom_let_it_pass(edited: int) -> None:
    """As many of 300 cases break as the margin says, or `edited` if more; edited ones are in one run only."""
    rng, passed, margin = Random(edited), 0, 0.05
    broken = max(edited, round(300 * margin))
    one, other, none = CaseValue(1.0, 1.0, 1.0), CaseValue(0.0, 0.0, 0.0), CaseValue(None, 0.0, 1.0)
    for _ in range(RUNS):
        matched = [
            difference(one, other if n < broken - edited or rng.random() < 0.02 else one, PROPORTION)
            for n in range(300 - edited)
        ]
        gone = [difference(one, none, PROPORTION)] * edited
        estimate = paired_estimate([*matched, *gone], scale=PROPORTION, unmatched=edited)
        rules, _ = judge_differences([MetricDifference("m", "c", estimate=estimate)], {"m": margin}, "main", Gate())
        passed += rules[0].outcome == "pass"
    assert passed / RUNS <= MOST


@pytest.mark.parametrize("metrics", [1, 10])
@pytest.mark.parametrize("kind", ["once", "repeats"])
def test_runs_that_are_worse_by_no_more_than_the_margin_seldom_fail(kind: str, metrics: int) -> None:
    """By Holm's method all of them together, whatever their number."""
    rng, failed, runs = Random(f"{kind} {metrics}"), 0, 1_000 // metrics
    for _ in range(runs):
        found = [drawn(rng, kind, 100, 0.1, 0.0) for _ in range(metrics)]
        named = [MetricDifference(str(k), "c", estimate=each.estimate) for k, each in enumerate(found)]
        rules, _ = judge_differences(named, {each.id: 0.1 for each in named}, "main", Gate())
        failed += any(rule.outcome == "fail" for rule in rules)
    assert failed / runs <= 0.03 + 2.5 * math.sqrt(0.03 * 0.97 / runs)


def runs_of_one_agent(rng: Random, rates: Sequence[float], runs: int) -> list[list[float]]:
    return [[float(rng.random() < rate) for rate in rates] for _ in range(runs)]


def test_a_baseline_of_ten_runs_pooled_seldom_passes_what_is_worse_by_the_margin() -> None:
    """The worst of the ten alone passes one time in ten, which is why a choice is warned of."""
    rng, worst_passed, pooled_passed, runs, margin = Random("ten runs"), 0, 0, 4_000, 0.05
    rates = [0.98] * 75 + [0.8] * 25
    now = [rate - margin for rate in rates]

    def passes(base: Sequence[float], new: Sequence[float], scale: Scale) -> bool:
        halves = [
            (CaseValue(then, then, then), CaseValue(value, value, value)) for then, value in zip(base, new, strict=True)
        ]
        estimate = paired_estimate([difference(*pair, scale) for pair in halves], scale=scale)
        rules, _ = judge_differences([MetricDifference("m", "c", estimate=estimate)], {"m": margin}, "main", Gate())
        return rules[0].outcome == "pass"

    for _ in range(runs):
        bases, (new,) = runs_of_one_agent(rng, rates, 10), runs_of_one_agent(rng, now, 1)
        worst_passed += passes(min(bases, key=sum), new, PROPORTION)
        pooled_passed += passes([sum(case) / 10 for case in zip(*bases, strict=True)], new, SHARES)
    assert worst_passed / runs > 0.08
    assert pooled_passed / runs <= 0.03 + 2 * math.sqrt(0.03 * 0.97 / runs)
