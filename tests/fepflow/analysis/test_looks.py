"""Runs of one version of a target: they are counted, and with `looks: pooled` they are judged together."""

from __future__ import annotations

from typing import Any

from fepflow.store.store import Store
from fepflow.tasks.batches import Batch
from fepflow.tasks.call_target import call_target
from fepflow.tasks.create_run import RunOptions
from fepflow.tasks.decide import decide_run
from fepflow.tasks.open_run import open_run
from fepflow.tasks.run_checks import run_checks_of_batch
from fepflow.verdict.verdict import LooksVerdict, Verdict
from tests.tasks.conftest import Agent, Plan

CASES = [f"q{n}" for n in range(60)]
VERSION: dict[str, Any] = {"version": "1.4"}


async def decided(store: Store, run_id: str) -> Verdict:
    async with open_run(run_id, None, store) as context:
        work = await context.begin(Batch(0, context.run.calls))
        await call_target(context, work)
        await run_checks_of_batch(context, work)
        return await decide_run(context)


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
