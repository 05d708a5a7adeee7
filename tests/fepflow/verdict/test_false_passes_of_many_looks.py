"""Simulations of how often an agent exactly at the minimum passes if its gate is tried until it does.

With `looks: pooled` it is 2.5 % at most, whatever the number of runs; the largest allowed is what the simulations may
differ from that by chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random

import pytest

from fepflow.statistics.estimate import PROPORTION, Clusters, Counts
from fepflow.statistics.means import mean_estimate
from fepflow.suite.models import Gate
from fepflow.verdict.gate import at_look, decide
from fepflow.verdict.verdict import MetricEstimate

pytestmark = pytest.mark.battery

MINIMUM = 0.9
ALONE, POOLED = Gate(min={"m": MINIMUM}), Gate(min={"m": MINIMUM}, looks="pooled")

Look = dict[int, float]
"""The results of a run, by test case."""
Draw = Callable[[Random], Iterator[Look]]
"""The runs of a version, one after the other, without end."""


def passes(gate: Gate, look: int, runs: list[Look]) -> bool:
    by_case: dict[int, list[float]] = {}
    for run in runs:
        for case, value in run.items():
            by_case.setdefault(case, []).append(value)
    values = list(by_case.values())
    n, clusters = sum(map(len, values)), Clusters.of(list(map(len, values)), "test case")
    judging = at_look(gate, look)
    estimate = mean_estimate(values, Counts(n, n, clusters=clusters), judging.confidence, PROPORTION)
    if estimate.interval[0] < MINIMUM:  # no rule passes it, and saying why not takes most of the time
        return False
    return decide([MetricEstimate("m", "c", estimate)], judging, None, []).outcome == "pass"


def share_that_ever_pass(gate: Gate, draw: Draw, looks: int, simulations: int) -> float:
    rng, passed = Random(f"{gate.looks} {looks}"), 0
    for _ in range(simulations):
        runs: list[Look] = []
        for look, run in zip(range(1, looks + 1), draw(rng), strict=False):
            runs = [*runs, run] if gate.looks else [run]
            if passes(gate, look, runs):
                passed += 1
                break
    return passed / simulations


def same_cases(n: int, rate: float = MINIMUM) -> Draw:
    def draw(rng: Random) -> Iterator[Look]:
        while True:
            yield {case: float(rng.random() < rate) for case in range(n)}

    return draw


def cases_of_their_own_rates(n: int) -> Draw:
    """The cases are drawn once, and asked again and again."""

    def draw(rng: Random) -> Iterator[Look]:
        rates = [rng.betavariate(1.8, 0.2) for _ in range(n)]
        while True:
            yield {case: float(rng.random() < rate) for case, rate in enumerate(rates)}

    return draw


def fresh_cases(n: int) -> Draw:
    def draw(rng: Random) -> Iterator[Look]:
        first = 0
        while True:
            yield {case: float(rng.random() < MINIMUM) for case in range(first, first + n)}
            first += n

    return draw


def seeds_of_a_sample(rng: Random) -> Iterator[Look]:
    """A hundred of a thousand cases, drawn anew each time."""
    while True:
        yield {case: float(rng.random() < MINIMUM) for case in rng.sample(range(1_000), 100)}


@pytest.mark.parametrize(
    ("draw", "looks", "simulations"),
    [
        pytest.param(same_cases(100), 5, 2_000, id="same 100 cases, 5 runs"),
        pytest.param(same_cases(100), 20, 500, id="same 100 cases, 20 runs"),
        pytest.param(same_cases(300), 10, 500, id="same 300 cases, 10 runs"),
        pytest.param(cases_of_their_own_rates(100), 10, 1_000, id="cases of their own rates, 10 runs"),
        pytest.param(fresh_cases(100), 10, 1_000, id="100 fresh cases, 10 runs"),
        pytest.param(fresh_cases(35), 20, 500, id="35 fresh cases, 20 runs"),
        pytest.param(seeds_of_a_sample, 10, 1_000, id="ten seeds of a sample"),
    ],
)
def test_pooled_looks_at_the_boundary_seldom_pass(draw: Draw, looks: int, simulations: int) -> None:
    most = 0.025 + 2 * math.sqrt(0.025 * 0.975 / simulations)
    assert share_that_ever_pass(POOLED, draw, looks, simulations) <= most


@pytest.mark.parametrize(
    ("draw", "looks", "at_least"),
    [(same_cases(100), 5, 0.08), (same_cases(100), 20, 0.3), (seeds_of_a_sample, 10, 0.13)],
)
def test_looks_one_by_one_pass_far_more_often_which_is_why_they_are_counted(
    draw: Draw, looks: int, at_least: float
) -> None:
    assert share_that_ever_pass(ALONE, draw, looks, 500) >= at_least


def test_a_good_agent_passes_at_the_first_look_most_of_the_time() -> None:
    assert share_that_ever_pass(POOLED, same_cases(300, 0.95), 1, 1_000) > 0.78
