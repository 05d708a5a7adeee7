"""`gate: {regression: ...}`: no metric may be worse than in a baseline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from fepflow.analysis.regressions import find_baseline
from fepflow.diagnose.validate_suite import validate_suite
from fepflow.errors import InfrastructureError
from fepflow.statistics.estimate import Scale
from fepflow.statistics.means import CaseValue
from fepflow.statistics.paired import paired_estimate
from fepflow.store.store import Store
from fepflow.suite.models import Gate
from fepflow.tasks.create_run import RunOptions
from fepflow.verdict.regression_rules import MetricDifference, detectable, in_words
from tests.tasks.conftest import SAME, Agent, Plan

from .conftest import decided

CASES = [f"q{n}" for n in range(40)]
GATE: dict[str, Any] = {"regression": {"margin": 0.1}}


async def test_without_a_baseline_it_is_inconclusive_and_says_how_to_make_one(store: Store, plan: Plan) -> None:
    run_id = plan(["a"], gate=GATE)
    verdict = await decided(store, run_id)
    assert (verdict.outcome, verdict.blocks) == ("inconclusive", True)
    assert f"`fepflow baseline set main {run_id[:8]}` makes this run" in verdict.reasons[0]
    assert verdict.regression is not None
    assert (verdict.regression.run_id, verdict.regression.metrics) == (None, [])
    assert not (await decided(store, plan(["a"], gate={**GATE, "inconclusive": "allow"}))).blocks


async def test_the_interval_of_the_difference_decides(store: Store, plan: Plan, agent: Agent) -> None:
    first = plan(CASES)
    await decided(store, first)
    store.runs.set_baseline("s", "main", first)
    for wrong, outcome in ((0, "pass"), (4, "inconclusive"), (25, "fail")):
        agent.wrong.update(CASES[:wrong])
        verdict = await decided(store, plan(CASES, gate=GATE))
        assert verdict.outcome == outcome, verdict.reasons
        assert verdict.gate == "exact_match must be not worse than main by more than 0.1 (95 % intervals)."
        assert verdict.regression is not None
        (metric,) = verdict.regression.metrics
        assert (metric.worsened, metric.n_completed, metric.margin, metric.outcome) == (wrong, 40, 0.1, outcome)
        assert verdict.regression.matched == "all 40 test cases matched"


async def test_a_baseline_that_measured_something_else_is_no_pass(store: Store, plan: Plan) -> None:
    other: Any = {**SAME, "arguments": {"actual": "$.output.value", "expected": "$.test_case.input"}}
    first = plan(CASES[:5], checks=[other])
    await decided(store, first)
    store.runs.set_baseline("s", "main", first)
    verdict = await decided(store, plan(CASES[:5], gate=GATE))
    assert (verdict.outcome, "its check has changed" in verdict.reasons[0]) == ("inconclusive", True)
    verdict = await decided(store, plan(["another"], gate=GATE))
    assert (verdict.outcome, "no test case in common" in verdict.reasons[0]) == ("inconclusive", True)


async def test_cases_that_broke_and_were_edited_are_not_left_out(store: Store, plan: Plan, agent: Agent) -> None:
    many = [f"q{n}" for n in range(100)]
    first = plan(many)
    await decided(store, first)
    store.runs.set_baseline("s", "main", first)
    agent.wrong = {f"edited q{n}" for n in range(20)}
    for edited, gate, outcome in (
        (2, {"margin": 0.05}, "pass"),
        (20, {"margin": 0.05, "changed": 0.2}, "pass"),
        (20, {"margin": 0.05}, "inconclusive"),
    ):
        cases = [{"id": case, "input": f"edited {case}" if n < edited else case} for n, case in enumerate(many)]
        verdict = await decided(store, plan([*cases, "new"], gate={"regression": gate}))
        assert (verdict.outcome, verdict.blocks) == (outcome, outcome != "pass"), (edited, gate)
    assert "n = 80 of 100: 20 not matched) is within the margin" in verdict.reasons[0]
    assert any(
        "20 of the base's 100 test cases were edited or removed, more than a share of 0.02." in warning
        for warning in verdict.warnings
    )


async def test_a_random_sample_is_compared_over_what_it_has_and_cases_that_do_not_match_are_said(
    store: Store, plan: Plan
) -> None:
    first = plan(CASES)
    await decided(store, first)
    store.runs.set_baseline("s", "main", first)
    gate: dict[str, Any] = {"regression": {"margin": 0.1}}
    assert (await decided(store, plan(CASES, gate=gate, options=RunOptions(limit=36)))).outcome == "pass"
    assert (await decided(store, plan(CASES[:36], gate=gate))).outcome == "inconclusive"
    gate["regression"]["changed"] = 0.2
    verdict = await decided(store, plan([*CASES[:36], "new"], gate=gate))
    assert verdict.outcome == "pass"
    assert verdict.warnings == [
        f"Compared with main (run {first[:8]}): 36 test cases matched; not compared: 4 only in the base "
        "(q36, q37, q38 and 1 more) and 1 only in the new run (new)."
    ]


async def test_a_store_that_cannot_be_read_is_no_verdict(store: Store, plan: Plan) -> None:
    run_id = plan(["a"], gate=GATE)
    store._database.write(lambda connection: connection.execute(text("DROP TABLE baseline")))
    with pytest.raises(InfrastructureError):
        await decided(store, run_id)
    assert store.runs.get(run_id).outcome is None


async def test_missing_results_are_no_pass(store: Store, plan: Plan) -> None:
    first = plan(CASES)
    await decided(store, first)
    store.runs.set_baseline("s", "main", first)
    lost = [{"id": name, "input": f"fail 9 {name}", "expected": name} for name in CASES[:6]]
    again = plan([*lost, *CASES[6:]])
    await decided(store, again)
    store.runs.set_baseline("s", "main", again)
    verdict = await decided(store, plan([*lost, *CASES[6:]], gate=GATE))
    assert (verdict.outcome, "34 of 40" in verdict.reasons[0]) == ("inconclusive", True)


async def test_the_suites_baseline_may_be_a_name_too(store: Store, plan: Plan) -> None:
    first = plan(["a"])
    await decided(store, first)
    verdict = await decided(store, plan(["a"], baseline="main"))
    assert "There is no baseline main of the suite s yet" in str(verdict.not_compared)
    store.runs.set_baseline("s", "main", first)
    verdict = await decided(store, plan(["a"], baseline="main"))
    assert verdict.baseline is not None
    assert verdict.baseline.run_id == first
    assert find_baseline(store, store.runs.get(plan(["a"])), "main") == store.runs.get(first)


@pytest.mark.parametrize(
    ("gate", "says"),
    [
        ({"regression": {"margin": -1}}, "gate.regression.margin: must be at least 0"),
        ({"regression": {"margin": {"nothing": 0.1}}}, "there is no metric nothing"),
        ({"regression": {"margin": {}}}, "there is no metric that it is for"),
        ({"regression": {"margin": 0.1, "baseline": "a b"}}, "the name of a baseline"),
        ({"regression": {"baseline": "main"}}, "margin"),
        (
            {"regression": {"margin": 0.02}},
            "10 test cases cannot show a regression of at most 0.02, even if none changes",
        ),
        ({"regression": {"margin": 0}}, "no number of them shows a margin of 0"),
        ({"regression": {"margin": 0.3}}, "there is no baseline main of the suite s yet"),
    ],
)
def test_mistakes_are_found_before_anything_is_called(store: Store, tmp_path: Path, gate: Any, says: str) -> None:
    document = {
        "name": "s",
        "target": {"http": {"url": "http://127.0.0.1:9"}},
        "test_cases": [{"id": str(n), "input": n, "expected": n} for n in range(10)],
        "checks": [SAME],
        "gate": gate,
    }
    path = tmp_path / "suite.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    assert says in "\n".join(map(str, validate_suite(path).problems))


async def test_the_worst_of_several_runs_as_the_baseline_is_warned_of_and_all_of_them_together_are_not(
    store: Store, plan: Plan, agent: Agent
) -> None:
    runs = []
    for wrong in (0, 0, 8):
        agent.wrong = set(CASES[:wrong])
        runs.append(plan(CASES, target={"version": "1.4"}))
        await decided(store, runs[-1])
    store.runs.set_baseline("s", "main", runs[2])
    alone = await decided(store, plan(CASES, gate=GATE, target={"version": "1.5"}))
    assert alone.outcome == "pass"
    assert any("The base is 1 of 3 runs of version 1.4." in warning for warning in alone.warnings)

    store.runs.set_baseline("s", "main", runs[0], runs[1:])
    together = await decided(store, plan(CASES, gate=GATE, target={"version": "1.5"}))
    assert together.outcome == "inconclusive"
    assert not any("The base is" in warning for warning in together.warnings)
    assert together.regression is not None
    assert together.regression.pooled == runs
    (metric,) = together.regression.metrics
    assert metric.baseline == pytest.approx(1 - 8 / 120)
    assert metric.difference == pytest.approx(-16 / 120)
    assert metric.method == "paired-bounded"


def test_no_regression_is_promised_that_is_larger_than_the_range_of_the_scores() -> None:
    changes = [CaseValue(change, change, change) for change in (-0.9, -0.8, -0.9, -0.7)]
    scores = MetricDifference("s", "c", estimate=paired_estimate(changes, 0.95, Scale(0, 1)), is_share=False, largest=1)
    least = detectable(scores, 0, Gate(), 1)
    assert least is not None
    assert least > 1
    assert in_words(scores, least, 0) == "s: 4 test cases cannot be relied on to show any regression."
