"""Simulations of how often gates that need fewer cases pass what is at their boundary, and what is well above it."""

from __future__ import annotations

import math
from collections import Counter
from functools import cache
from random import Random

import pytest

from fepflow.analysis.sampling import planned_sizes
from fepflow.statistics.estimate import PROPORTION, Counts, Estimate
from fepflow.statistics.means import CaseValue, mean_estimate
from fepflow.statistics.paired import paired_estimate
from fepflow.statistics.sequential import group_sequential_estimate
from fepflow.suite.models import Gate, TopUp
from fepflow.verdict.gate import decide
from fepflow.verdict.regression_rules import MetricDifference, judge_differences
from fepflow.verdict.verdict import MetricEstimate, Outcome

pytestmark = pytest.mark.battery

RUNS = 4_000


def most(promised: float) -> float:
    """The largest share of false passes that chance explains, if as many as promised are the truth."""
    return promised + 2 * math.sqrt(promised * (1 - promised) / RUNS)


def outcome(estimate: Estimate, gate: Gate) -> Outcome:
    return decide([MetricEstimate("acc", "check", estimate)], gate, None, []).outcome


def passes(rng: Random, n: int, rate: float) -> int:
    return sum(rng.random() < rate for _ in range(n))


def of_passes(passed: int, n: int, gate: Gate) -> Outcome:
    values = [[1.0]] * passed + [[0.0]] * (n - passed)
    return outcome(
        mean_estimate(values, Counts(n, n), gate.pass_confidence, PROPORTION, gate.interval or "wilson"), gate
    )


@pytest.mark.parametrize("n", [25, 46, 89, 300])
def test_a_one_sided_gate_passes_at_most_one_in_twenty_falsely(n: int) -> None:
    gate, rng = Gate(min={"acc": 0.9}, sides="one"), Random(n)
    judge = cache(lambda passed: of_passes(passed, n, gate))
    found = Counter(judge(passes(rng, n, 0.9)) for _ in range(RUNS))
    assert found["pass"] / RUNS <= most(0.05)
    assert found["fail"] / RUNS <= most(0.03), "fails are as rare as those of a two-sided gate"


@pytest.mark.parametrize("n", [60, 100, 400])
def test_a_one_sided_gate_on_regression_passes_about_one_in_twenty_falsely(n: int) -> None:
    """Ten of 100 cases flip either way, and as many more break as the margin accepts."""
    gate, rng = Gate(sides="one"), Random(n)

    @cache
    def judge(better: int, worse: int) -> Outcome:
        values = [1.0] * better + [-1.0] * worse + [0.0] * (n - better - worse)
        estimate = paired_estimate(
            [CaseValue(value, value, value) for value in values], gate.pass_confidence, PROPORTION
        )
        (rule,), _ = judge_differences(
            [MetricDifference("acc", "check", estimate, base=0.9, new=0.85)], {"acc": 0.05}, "main", gate
        )
        return rule.outcome

    def draw() -> Outcome:
        drawn = Counter("better" if (u := rng.random()) < 0.05 else "worse" if u < 0.15 else "same" for _ in range(n))
        return judge(drawn["better"], drawn["worse"])

    passed = sum(draw() == "pass" for _ in range(RUNS))
    assert passed / RUNS <= most(0.06), "Tango's interval is right on average, and not in every setting"


@pytest.mark.parametrize("looks", [2, 4, 10])
def test_few_looks_pass_seldom_what_is_at_the_minimum_and_decide_almost_as_often_as_one(looks: int) -> None:
    """A run has at most 400 cases and a look after each part; judged once, 96.9 % would be decided."""
    rng, rates = Random(looks), {0.9: Counter[str](), 0.95: Counter[str](), 0.85: Counter[str]()}
    gate = Gate(min={"acc": 0.9}, top_up=TopUp(max_cases=400, looks=looks))

    @cache
    def judge(look: int, passed: int, n: int) -> Outcome:
        values = [[1.0]] * passed + [[0.0]] * (n - passed)
        plain = mean_estimate(values, Counts(n, n), scale=PROPORTION, kind="clopper-pearson")
        return outcome(group_sequential_estimate(plain, look, looks), gate)

    for rate, found in rates.items():
        for _ in range(RUNS):
            passed, n, verdict = 0, 0, "inconclusive"
            for look, size in enumerate(planned_sizes(400, looks), start=1):
                passed, n = passed + passes(rng, size - n, rate), size
                verdict = judge(look, passed, n)
                if verdict != "inconclusive":
                    break
            found[verdict] += 1
    assert rates[0.9]["pass"] / RUNS <= most(0.03)
    assert rates[0.9]["fail"] / RUNS <= most(0.03)
    assert rates[0.95]["pass"] / RUNS >= 0.93
    assert rates[0.95]["fail"] == 0
    assert rates[0.85]["pass"] == 0


def test_missing_results_that_are_a_random_sample_cost_no_more_than_their_number() -> None:
    """Three of 100 results are lost by chance; the gate leaves them out, and 254 others still show 0.9 of 0.95."""
    gate, passed, rng = Gate(min={"acc": 0.9}, missing="random"), {}, Random(3)
    judge = cache(lambda passes, n: of_passes(passes, n, gate))
    for rate in (0.9, 0.95):
        sizes = [passes(rng, 262, 0.97) for _ in range(RUNS)]
        passed[rate] = sum(judge(passes(rng, n, rate), n) == "pass" for n in sizes)
    assert passed[0.9] / RUNS <= most(0.03)
    assert passed[0.95] / RUNS >= 0.77
