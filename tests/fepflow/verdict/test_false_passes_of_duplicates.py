"""Simulations of how often a gate passes an agent at its boundary where the same questions stand under several ids.

The agent answers a question right or wrong, whatever its id. Counted by ids, 20 questions under ten ids each pass 39 %
of the time, 50 under four 11 %, 100 under two 5.6 %.
"""

from __future__ import annotations

import math
from random import Random

import pytest

from fepflow.analysis.accumulation import MetricAccumulator
from fepflow.analysis.dependence import Dependence
from fepflow.protocol.test_case import TestCase
from fepflow.statistics.estimate import PROPORTION
from fepflow.store.records import CheckRow
from fepflow.suite.models import Gate, Metric
from fepflow.verdict.gate import decide

pytestmark = pytest.mark.battery

RUNS = 2_000
MOST = 0.03 + 2 * math.sqrt(0.03 * 0.97 / RUNS)
GATE = Gate(min={"m": 0.9})


@pytest.mark.parametrize("steady", [1.0, 0.5])
@pytest.mark.parametrize(("questions", "ids"), [(20, 10), (50, 4), (100, 2)])
def test_duplicates_at_the_boundary_seldom_pass(questions: int, ids: int, steady: float) -> None:
    """Each answer is that of its question with the chance `steady`, else one of its own."""
    dependence = Dependence({}, None, GATE)
    for number in range(questions * ids):
        dependence.add(TestCase(id=str(number), input=f"question {number % questions}"))
    rng, passed = Random(f"{questions} {steady}"), 0
    for _ in range(RUNS):
        metric = MetricAccumulator(
            Metric(id="m", check="c"), PROPORTION, range(questions * ids), 1, dependence.clusters
        )
        known = [rng.random() < 0.9 for _ in range(questions)]
        for number in range(questions * ids):
            right = known[number % questions] if rng.random() < steady else rng.random() < 0.9
            metric.add(CheckRow(number, 0, "c", "completed", right, None))
        passed += decide([metric.estimate(GATE)], GATE, None, []).outcome == "pass"
    assert passed / RUNS <= MOST
