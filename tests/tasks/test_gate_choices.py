"""Whole runs whose gates say how sure a pass has to be, and what missing results count as."""

from __future__ import annotations

from typing import Any

import pytest

from fepflow.tasks.batches import split_into_batches
from fepflow.tasks.call_target import call_target
from fepflow.tasks.decide import decide_run
from fepflow.tasks.open_run import open_run
from fepflow.tasks.run_checks import run_checks_of_batch
from fepflow.verdict.verdict import Verdict

from .conftest import Agent, Plan

CASES = [f"case {number}" for number in range(22)]
LOST = [f"fail 9{number}" for number in range(2)]


def gate(**choices: Any) -> dict[str, Any]:
    metrics = [{"id": "acc", "check": "exact_match"}]
    return {"metrics": metrics, "gate": {"min": {"acc": 0.85}, **choices}, "target": {"attempts": 1}}


async def decided(run_id: str) -> Verdict:
    async with open_run(run_id) as context:
        for batch in split_into_batches(context.shard_spec.calls(context.run)):
            work = await context.begin(batch)
            await call_target(context, work)
            await run_checks_of_batch(context, work)
        return await decide_run(context)


async def test_missing_results_say_how_many_of_them_would_have_to_fail(plan: Plan, agent: Agent) -> None:
    verdict = await decided(plan([*CASES, *LOST], **gate()))
    assert verdict.outcome == "inconclusive"
    assert verdict.reasons[0].endswith("; it passes unless 1 of the 2 missing failed.")


async def test_missing_results_are_left_out_where_the_gate_calls_them_random(plan: Plan, agent: Agent) -> None:
    verdict = await decided(plan([*CASES, *LOST], **gate(missing="random")))
    assert verdict.outcome == "pass"
    assert verdict.gate == "acc must be at least 0.85 (95 % intervals; what is missing is left out, as if by chance)."
    assert verdict.warnings == [
        "acc: 2 of 24 results are missing and left out: the gate states that they are a random sample "
        "(missing: random)."
    ]
    (metric,) = verdict.metrics
    assert (metric.n_expected, metric.n_completed, metric.n_error) == (24, 22, 2)
    assert metric.low == pytest.approx(22 / (22 + 1.959964**2), abs=1e-6)


async def test_nothing_but_missing_results_is_never_a_pass(plan: Plan, agent: Agent) -> None:
    verdict = await decided(plan(LOST, **gate(missing="random")))
    assert verdict.outcome == "inconclusive"
    assert "no value" in verdict.reasons[0]


async def test_a_one_sided_gate_takes_fewer_cases_and_says_what_it_promises(plan: Plan, agent: Agent) -> None:
    verdict = await decided(plan(CASES[:20], **gate(sides="one")))
    assert verdict.outcome == "pass", "20 in a row: by chance in 4 of 100 runs of an agent at 0.85"
    assert verdict.gate == (
        "acc must be at least 0.85 (90 % intervals; one-sided: an agent just below a limit passes in "
        "up to 5 % of its runs, and a fail takes the 95 % interval)."
    )
    two_sided = await decided(plan(CASES[:20], **gate()))
    assert two_sided.outcome == "inconclusive"
