"""Runs of one version of a target: they are counted, and with `looks: pooled` they are judged together."""

from __future__ import annotations

from typing import Any

import pytest

from fepflow.errors import InputError, UserError
from fepflow.store.store import Store
from fepflow.tasks.create_run import RunOptions
from fepflow.tasks.open_run import open_run
from fepflow.verdict.verdict import LooksVerdict
from tests.tasks.conftest import Agent, Plan

from .conftest import decided

CASES = [f"q{n}" for n in range(40)]
VERSION: dict[str, Any] = {"version": "1.4"}


async def looks(store: Store, run_id: str) -> LooksVerdict | None:
    return (await decided(store, run_id)).looks


async def test_runs_of_a_version_are_counted_whatever_came_of_them(store: Store, plan: Plan, agent: Agent) -> None:
    gate = {"min": {"exact_match": 0.9}}
    first = await decided(store, plan(CASES, gate=gate, target=VERSION))
    assert first.looks == LooksVerdict(number=1, version="1.4", summary="The 1st run of version 1.4.")
    agent.wrong.update(CASES[:4])
    second = await decided(store, plan(CASES, gate=gate, target=VERSION))
    assert (second.outcome, second.warnings) == ("inconclusive", [])
    agent.wrong.clear()
    third = await decided(store, plan(CASES, gate=gate, target=VERSION))
    assert third.outcome == "pass"
    assert third.looks is not None
    assert third.looks.summary == "The 3rd run of version 1.4: of the others, 1 passed and 1 inconclusive."
    assert third.warnings == [
        "1 of 3 runs of version 1.4 did not pass. A gate that is tried until it passes passes more often than "
        "promised: gate: {looks: pooled} judges all runs of a version together."
    ]


async def test_a_new_version_is_counted_afresh_and_the_commands_name_comes_before_the_suites(
    store: Store, plan: Plan
) -> None:
    await decided(store, plan(["a"], target=VERSION))
    other = await looks(store, plan(["a"], target=VERSION, options=RunOptions(version="1.5")))
    assert other is not None
    assert (other.version, other.number) == ("1.5", 1)
    again = await looks(store, plan(["a"], options=RunOptions(version="1.4")))
    assert again is not None
    assert (again.version, again.number) == ("1.4", 2)


async def test_without_a_name_runs_on_the_same_target_are_counted(store: Store, plan: Plan, agent: Agent) -> None:
    assert await looks(store, plan(["a"])) is None
    agent.wrong.add("a")
    await decided(store, plan(["a"]))
    agent.wrong.clear()
    third = await decided(store, plan(["a"]))
    assert (third.outcome, third.warnings) == ("pass", [])
    assert third.looks is not None
    assert third.looks.summary == (
        "The 3rd run on this target: of the others, 1 passed and 1 failed; earlier versions may be among them, as no "
        "version is named (--version)."
    )
    agent.url = agent.url.replace("127.0.0.1", "localhost")
    assert await looks(store, plan(["a"])) is None


async def test_samples_are_looks_and_runs_of_chosen_cases_are_not(store: Store, plan: Plan) -> None:
    cases = [{"id": name, "input": name, "metadata": {"part": str(n % 3)}} for n, name in enumerate(CASES)]
    for seed in range(3):
        seen = await looks(store, plan(cases, target=VERSION, options=RunOptions(limit=10, seed=seed)))
        assert seen is not None
        assert seen.number == seed + 1
    assert await looks(store, plan(cases, target=VERSION, options=RunOptions(metadata={"part": "1"}))) is None
    whole = await looks(store, plan(cases, target=VERSION))
    assert whole is not None
    assert whole.number == 4


async def test_a_run_under_way_that_began_earlier_is_a_look(store: Store, plan: Plan) -> None:
    earlier, run_id = plan(["a"], target=VERSION), plan(["a"], target=VERSION)
    async with open_run(earlier, None, store):
        seen = await looks(store, run_id)
    assert seen is not None
    assert (seen.number, seen.summary) == (2, "The 2nd run of version 1.4: of the others, 1 under way.")


POOLED: dict[str, Any] = {"min": {"exact_match": 0.9}, "looks": "pooled"}


async def test_a_run_that_is_tried_until_it_passes_stays_inconclusive(store: Store, plan: Plan, agent: Agent) -> None:
    """Each time some of 100 answers are wrong, once by chance only 3 of them: alone that one passes."""
    cases = [f"q{n}" for n in range(100)]
    verdicts = []
    for first, wrong in ((0, 9), (30, 10), (60, 3)):
        agent.wrong = set(cases[first : first + wrong])
        verdicts.append(await decided(store, plan(cases, gate=POOLED, target=VERSION)))
    assert [verdict.outcome for verdict in verdicts] == ["inconclusive"] * 3
    assert (await decided(store, plan(cases, gate={"min": POOLED["min"]}, target=VERSION))).outcome == "pass"
    last = verdicts[-1]
    (metric,) = last.metrics
    assert metric.pooled is not None
    assert (metric.value, metric.n_completed, metric.confidence) == (0.97, 100, 0.95)
    assert (round(metric.pooled.value or 0, 4), metric.pooled.n_completed) == (0.9267, 300)
    assert metric.pooled.low is not None
    assert metric.pooled.low < 0.9
    assert "n = 300 in 100 test cases" in last.reasons[0]
    assert last.gate == "exact_match must be at least 0.9 (99.662 % intervals over all runs of this version)."
    assert last.looks is not None
    assert (last.looks.number, len(last.looks.pooled)) == (3, 2)
    assert last.looks.summary == (
        "The 3rd run of version 1.4: of the others, 2 inconclusive. 3 runs are judged together at a confidence of "
        "99.662 % instead of 95 %, which allows for looking again and again."
    )


async def test_samples_of_one_version_are_pooled_by_their_test_cases(store: Store, plan: Plan, agent: Agent) -> None:
    agent.wrong = set(CASES[:3])
    for seed in range(3):
        options = RunOptions(limit=20, seed=seed)
        verdict = await decided(store, plan(CASES, gate=POOLED, target=VERSION, options=options))
    (metric,) = verdict.metrics
    assert metric.pooled is not None
    assert metric.pooled.n_completed == 60
    assert "n = 60 in 38 test cases" in verdict.reasons[0]


async def test_a_case_whose_notes_were_edited_is_the_same_in_the_next_run(store: Store, plan: Plan) -> None:
    """Neither the request nor a check reads the metadata, nor does the agent see another space."""
    for space, note in ((" ", "new"), ("  ", "reviewed")):
        cases = [
            {"id": name, "input": f"question{space}{name}", "metadata": {"note": note}, "expected": f"question {name}"}
            for name in CASES
        ]
        verdict = await decided(store, plan(cases, gate=POOLED, target=VERSION))
    assert "n = 80 in 40 test cases" in verdict.reasons[0]


async def test_a_check_that_failed_in_any_run_of_a_version_fails_it(store: Store, plan: Plan, agent: Agent) -> None:
    gate = {"looks": "pooled"}
    agent.wrong = {"a"}
    assert (await decided(store, plan(["a", "b"], gate=gate, target=VERSION))).outcome == "fail"
    agent.wrong.clear()
    again = await decided(store, plan(["a", "b"], gate=gate, target=VERSION))
    assert (again.outcome, again.reasons) == ("fail", ["exact_match: 1 of 4 results failed."])
    fixed = await decided(store, plan(["a", "b"], gate=gate, target={"version": "1.5"}))
    assert fixed.outcome == "pass"


async def test_what_is_missing_in_an_earlier_run_could_have_been_wrong(store: Store, plan: Plan, agent: Agent) -> None:
    """All that came is right in both runs, but of the first one 12 of 80 results never did."""
    cases = [{"id": f"q{n}", "input": f"fail 2 {n}" if n < 12 else f"q{n}", "expected": None} for n in range(80)]
    cases = [{**case, "expected": case["input"]} for case in cases]
    first = await decided(store, plan(cases, gate=POOLED, target=VERSION))
    assert first.outcome == "inconclusive"
    second = await decided(store, plan(cases, gate=POOLED, target=VERSION))
    assert second.metrics[0].n_completed == 80
    assert second.outcome == "inconclusive"
    assert "n = 148 of 160 in 80 test cases: 12 errors" in second.reasons[0]


async def test_pooled_runs_need_a_version(store: Store, plan: Plan) -> None:
    with pytest.raises(UserError, match=r"none is named: give --version NAME, or target.version"):
        plan(CASES, gate=POOLED)
    with pytest.raises(UserError, match=r"leave out --verdict point, or gate.looks"):
        plan(CASES, gate=POOLED, target=VERSION, options=RunOptions(verdict_mode="point"))
    for other in ({"top_up": {"max_cases": 50}}, {"verdict": "point"}):
        with pytest.raises(InputError, match=r"gate\.looks"):
            plan(CASES, gate={**POOLED, **other}, target=VERSION)
