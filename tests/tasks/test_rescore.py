"""Stored outputs judged anew: by the checks and the gate as they are now, with nothing asked of the agent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fepflow.analysis.comparison import compare_results, results_of
from fepflow.checks import registry
from fepflow.errors import UserError
from fepflow.protocol.test_case import Output, TestCase
from fepflow.services.imports import read_import
from fepflow.store.records import Cause, NewOutput, RunRecord
from fepflow.store.store import Store
from fepflow.suite.variants import Replacement
from fepflow.tasks.batches import Batch
from fepflow.tasks.call_target import call_target
from fepflow.tasks.create_rescore import create_rescore, find_rescorable
from fepflow.tasks.create_run import RunOptions
from fepflow.tasks.decide import decide_run
from fepflow.tasks.open_run import open_run
from fepflow.tasks.plan_run import resume_run
from fepflow.tasks.rescore import Taken, take_outputs
from fepflow.tasks.run_checks import run_checks_of_batch
from fepflow.verdict.verdict import Verdict

from .conftest import SAME, Agent, Plan

LENIENT = {"id": "exact_match", "type": "contains", "arguments": {"text": "$.output.value", "phrases": ["a"]}}
PASSES = {"id": "any", "type": "regex", "arguments": {"text": "$.output.value", "pattern": "."}}

Rescore = Callable[..., Any]


async def ran(run_id: str) -> Verdict:
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, context.run.calls))
        await call_target(context, work)
        await run_checks_of_batch(context, work)
        return await decide_run(context)


async def rescored(run_id: str) -> tuple[Taken, int, Verdict]:
    """What was taken of the earlier run, how many checks were computed, and the verdict."""
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, context.run.calls))
        taken = await take_outputs(context, work)
        computed = await run_checks_of_batch(context, work)
        return taken, computed, await decide_run(context)


async def interrupted(run_id: str, step: Callable[..., Any]) -> None:
    """A run that breaks off after a step of its first batch."""

    async def work() -> None:
        async with open_run(run_id) as context:
            await step(context, await context.begin(Batch(0, 1)))
            raise RuntimeError("gone")

    with pytest.raises(RuntimeError):
        await work()


def new_run(store: Store, run_id: str, suite: Path | None = None, *, gate_only: bool = False) -> RunRecord:
    return create_rescore(store, find_rescorable(store, run_id, suite), gate_only=gate_only).run


@pytest.fixture
def edit(tmp_path: Path) -> Callable[..., Path]:
    """Changes sections of the suite that the last run was planned by; None removes one."""

    def change(**sections: Any) -> Path:
        path = tmp_path / "suite.json"
        document = {**json.loads(path.read_text(encoding="utf-8")), **sections}
        path.write_text(json.dumps({name: value for name, value in document.items() if value is not None}))
        return path

    return change


def cases(*ids: str, **changed: Any) -> list[dict[str, Any]]:
    return [{"id": name, "input": name, "expected": name, **changed.get(name, {})} for name in ids]


async def test_outputs_are_judged_by_the_checks_of_now_and_the_agent_is_asked_nothing(
    plan: Plan, store: Store, agent: Agent, edit: Callable[..., Path]
) -> None:
    agent.wrong = {"b"}
    first = plan(["a", "b"])
    assert (await ran(first)).outcome == "fail"
    edit(checks=[PASSES, {**SAME, "id": "exact_match"}], gate={"min": {"any": 0.1}})
    run = new_run(store, first)
    assert (run.rescored_from, run.cause, run.asked_in) == (first, "rescore", first)
    taken, computed, verdict = await rescored(run.id)
    assert taken == Taken(outputs=2, checks=2), "the results of the check that has not changed"
    assert computed == 2, "the new check"
    assert agent.requests == {"a": 1, "b": 1}
    assert verdict.metrics[0].value == 1
    assert any(f"Rescored from run {first[:8]}" in warning for warning in verdict.warnings)
    assert any("New checks: any." in warning for warning in verdict.warnings)
    before, now = store.results.outputs(first), store.results.outputs(run.id)
    assert now == before


async def test_a_check_and_a_case_that_have_changed_are_checked_again(
    plan: Plan, store: Store, edit: Callable[..., Path]
) -> None:
    first = plan(cases("a", "b"))
    assert (await ran(first)).outcome == "pass"
    edit(checks=[LENIENT])
    taken, computed, verdict = await rescored(new_run(store, first).id)
    assert (taken.checks, computed, verdict.outcome) == (0, 2, "fail"), "other arguments, and another type"
    assert any("Checks that have changed since: exact_match." in warning for warning in verdict.warnings)
    edit(checks=[SAME], test_cases=cases("a", "b", b={"expected": "B"}))
    taken, computed, verdict = await rescored(new_run(store, first).id)
    assert (taken.outputs, taken.checks, computed, verdict.outcome) == (2, 1, 1, "fail"), "what a case expects"


async def test_a_case_that_asks_something_else_counts_as_missing_and_so_does_a_new_one(
    plan: Plan, store: Store, edit: Callable[..., Path]
) -> None:
    first = plan(cases("a", "b", "c"))
    await ran(first)
    edit(test_cases=cases("a", "b", "d", b={"input": "B"}))
    run = new_run(store, first)
    taken, _, verdict = await rescored(run.id)
    assert (taken.outputs, verdict.outcome, run.n_cases) == (1, "inconclusive", 3)
    assert (verdict.metrics[0].n_expected, verdict.metrics[0].n_completed) == (3, 1)
    said = " ".join(verdict.warnings)
    assert "1 test case of run" in said
    assert "count as missing: b." in said
    assert "as new: d." in said
    assert "not in the suite any more: c." in said


async def test_what_a_request_reads_of_a_case_is_a_part_of_the_question(
    plan: Plan, store: Store, edit: Callable[..., Path]
) -> None:
    body = {"question": "$.test_case.input", "of": "$.test_case.metadata.of"}
    mine = cases("a", "b", a={"metadata": {"of": 1, "note": "x"}}, b={"metadata": {"of": 1}})
    first = plan(mine, target={"http": {"body": body}})
    await ran(first)
    edit(test_cases=cases("a", "b", a={"metadata": {"of": 1, "note": "y"}}, b={"metadata": {"of": 2}}))
    taken, _, verdict = await rescored(new_run(store, first).id)
    assert (taken.outputs, verdict.outcome) == (1, "inconclusive")
    assert "count as missing: b." in " ".join(verdict.warnings)


async def test_outputs_of_another_target_are_no_verdict_of_the_suite(
    plan: Plan, store: Store, edit: Callable[..., Path]
) -> None:
    first = plan(["a"])
    await ran(first)
    http = {"url": "http://127.0.0.1:9/other", "body": {"question": "$.test_case.input"}, "output": "$.answer"}
    edit(target={"http": http})
    for gate_only in (False, True):
        run = new_run(store, first, gate_only=gate_only)
        _, _, verdict = await rescored(run.id)
        assert verdict.outcome == "inconclusive"
        assert "another one by now (target.http.url)" in verdict.reasons[0]
    again = new_run(store, run.id)
    assert "another one by now" in (await rescored(again.id))[2].reasons[0], "rescoring twice hides nothing"


async def test_a_target_that_the_run_had_replaced_in_its_suite_holds_for_its_rescoring_by_that_file(
    plan: Plan, store: Store, agent: Agent, tmp_path: Path
) -> None:
    gone = {"http": {"url": "http://127.0.0.1:9/gone"}}
    replaced = [
        Replacement(("target", "http", "url"), agent.url),
        Replacement(("gate",), {"min": {"exact_match": 0.01}}),
    ]
    rules = {"gate": {"min": {"exact_match": 0.99}}}
    first = plan(["a"], target=gone, options=RunOptions(replacements=replaced), **rules)
    passed = await ran(first)
    assert passed.outcome == "pass"
    assert "the suite as its file has it: --set target.http.url and --set gate." in " ".join(passed.warnings)
    assert (
        "with --set target.http.url as the run had it"
        in (await asyncio.to_thread(find_rescorable, store, first, None)).told
    )
    run = await asyncio.to_thread(new_run, store, first)
    _, _, verdict = await rescored(run.id)
    assert run.suite["target"]["http"]["url"] == agent.url
    assert run.rescoring["target"] is None
    assert verdict.outcome == "inconclusive", "the gate is the file's"
    assert (await asyncio.to_thread(new_run, store, run.id)).rescoring["target"] is None
    other = tmp_path / "other.json"
    other.write_text((tmp_path / "suite.json").read_text(encoding="utf-8"), encoding="utf-8")
    by_other = await asyncio.to_thread(new_run, store, first, other)
    assert "another one by now (target.http.url)" in by_other.rescoring["target"]


async def test_the_gate_alone_needs_no_check(plan: Plan, store: Store, agent: Agent, edit: Callable[..., Path]) -> None:
    agent.wrong = {"b"}
    first = plan(["a", "b"])
    await ran(first)
    edit(gate={"min": {"exact_match": 0.01}}, checks=[LENIENT])
    run = new_run(store, first, gate_only=True)
    taken, computed, verdict = await rescored(run.id)
    assert (taken.checks, computed, verdict.outcome) == (2, 0, "pass")
    assert any("was fail by the rules that it had" in warning for warning in verdict.warnings)
    assert list(store.results.check_rows(run.id)) == list(store.results.check_rows(first))
    said = " ".join(verdict.warnings)
    assert "Its check results are taken as they are." in said
    assert "Checks that have changed since: exact_match." in said
    edit(test_cases=cases("a", "b", "d", b={"expected": "c"}))
    assert "not looked at: 1 new and 1 edited." in " ".join(new_run(store, first, gate_only=True).rescoring["notes"])
    edit(gate={"min": {"polite": 0.5}}, checks=[{**SAME, "id": "polite"}])
    with pytest.raises(UserError, match="it has none of polite: leave --gate out"):
        new_run(store, first, gate_only=True)
    edit(gate=None, checks=[{**SAME, "id": "exact_match"}, {**SAME, "id": "polite"}])
    with pytest.raises(UserError, match="it has none of polite: leave --gate out"):
        new_run(store, first, gate_only=True)
    edit(metrics=[{"id": "three", "check": "exact_match", "aggregate": "pass^3"}], repeats=3)
    with pytest.raises(UserError, match="takes 3 repeats of each case or more: the run that is rescored has 1"):
        new_run(store, first, gate_only=True)


async def test_a_check_and_a_case_that_failed_and_are_removed_are_named(
    plan: Plan, store: Store, agent: Agent, edit: Callable[..., Path]
) -> None:
    agent.wrong = {"b"}
    first = plan(cases("a", "b"), checks=[PASSES, SAME])
    assert (await ran(first)).outcome == "fail"
    edit(checks=[PASSES])
    _, _, verdict = await rescored(new_run(store, first).id)
    assert verdict.outcome == "pass"
    assert "Checks of run" in " ".join(verdict.warnings)
    assert "exact_match (1 had failed)" in " ".join(verdict.warnings)
    edit(test_cases=cases("a"))
    _, _, verdict = await rescored(new_run(store, first).id)
    assert "not in the suite any more (1 of them had not passed): b." in " ".join(verdict.warnings)


async def test_a_failing_check_of_a_case_that_is_removed_is_named(
    plan: Plan, store: Store, edit: Callable[..., Path]
) -> None:
    hard: dict[str, Any] = {"checks": [{**LENIENT, "id": "hard", "arguments": {"phrases": ["z"]}}]}
    first = plan(cases("a", "b", a=hard))
    assert (await ran(first)).outcome == "fail"
    edit(test_cases=cases("a", "b"))
    _, _, verdict = await rescored(new_run(store, first).id)
    assert verdict.outcome == "pass"
    said = " ".join(verdict.warnings)
    assert "that the suite has no more: hard (1 had failed)." in said
    assert "1 test case with other checks of their own than before: a." in said
    hard["checks"][0]["arguments"] = {"phrases": ["a"]}
    edit(test_cases=cases("a", "b", a=hard))
    run = new_run(store, first)
    await rescored(run.id)
    compared = compare_results(*(results_of(store, each) for each in (store.runs.get(first), store.runs.get(run.id))))
    assert [(flip.case_id, flip.same_output) for flip in compared.improved] == [
        ("a", "what the case expects, its own data, or its own check has changed")
    ]


async def test_a_part_of_the_suite_stays_a_part(plan: Plan, store: Store, agent: Agent) -> None:
    agent.wrong = {"b"}
    first = plan(cases("a", "b", "c"))
    await ran(first)
    agent.wrong = set()
    second = plan(cases("a", "b", "c"), options=RunOptions(failing_in=first))
    await ran(second)
    run = new_run(store, second)
    _, _, verdict = await rescored(run.id)
    assert (run.n_cases, verdict.outcome) == (1, "inconclusive"), "cases that a filter chose are no sample"
    sample = plan(cases("a", "b", "c"), options=RunOptions(limit=2))
    await ran(sample)
    run = new_run(store, sample)
    assert (run.n_cases, run.sample) == (2, store.runs.get(sample).sample)
    assert "as new" not in " ".join(run.rescoring["notes"])
    assert (await rescored(run.id))[0].outputs == 2


async def test_repeats_errors_and_reused_outputs_come_over(
    plan: Plan, store: Store, agent: Agent, edit: Callable[..., Path]
) -> None:
    first = plan(["fail 9", "a"], target={"attempts": 1}, repeats=2)
    await ran(first)
    edit(repeats=5)
    run = new_run(store, first)
    taken, _, verdict = await rescored(run.id)
    assert (taken.outputs, run.repeats, store.results.progress(run.id).failed_outputs) == (4, 2, 2)
    assert verdict.outcome == "inconclusive"
    assert "has 2 repeats of each case, not 5" in " ".join(verdict.warnings)
    again = plan(["a"], options=RunOptions(reuse_outputs=True))
    async with open_run(again) as context:
        await call_target(context, await context.begin(Batch(0, 1)))
        await decide_run(context)
    assert (await rescored(new_run(store, again).id))[2].reused_outputs == 1


async def test_an_interrupted_run_is_judged_by_what_is_there(plan: Plan, store: Store) -> None:
    first = plan(["a", "b"])
    await interrupted(first, call_target)
    taken, computed, verdict = await rescored(new_run(store, first).id)
    assert (taken.outputs, computed, verdict.outcome) == (1, 1, "inconclusive")
    assert "has 1 of 2 outputs, as it is failed" in " ".join(verdict.warnings)


async def test_a_run_under_way_one_without_outputs_and_one_of_no_suite_are_refused(plan: Plan, store: Store) -> None:
    waiting = plan(["a"])
    with pytest.raises(UserError, match="is still under way"):
        find_rescorable(store, waiting, None)
    store.runs.request_cancel(waiting)
    with pytest.raises(UserError, match="has no outputs to judge: it is cancelled"):
        find_rescorable(store, waiting, None)


SOURCES: list[tuple[dict[str, Any], Cause, str]] = [
    ({"pytest": "t"}, "pytest", "by a test"),
    ({"evaluate": "t"}, "evaluate", "by a request to evaluate outputs"),
    ({"imported": {"format": "promptfoo"}}, "import", "by an import"),
    ({"given": {}}, "network", "over the network"),
]
"""Targets of runs that have no suite file, and by what such a run was made."""


def runs_without_file(store: Store) -> Iterator[tuple[str, str]]:
    """Stores a run of each kind; yields its id, and by what it was made."""
    case, outputs = TestCase(id="a", input="a", expected="a"), [NewOutput(0, 0, "0" * 64, Output(value="a"))]
    for number, (target, cause, made) in enumerate(SOURCES):
        suite = {"name": "theirs", "target": target, "checks": []}
        run = RunRecord(id=f"{number}" * 32, name="theirs", suite=suite, repeats=1, cause=cause)
        store.runs.add_completed(run, [case], outputs, [], outcome="pass", metrics=[], verdict={})
        yield run.id, made


def test_a_run_of_no_suite_file_needs_a_suite_that_is_named(plan: Plan, store: Store, tmp_path: Path) -> None:
    plan(["a"])
    for run_id, made in runs_without_file(store):
        with pytest.raises(UserError, match=f"was made {made}, and has no suite file: name the suite"):
            find_rescorable(store, run_id, None)
        assert new_run(store, run_id, tmp_path / "suite.json").rescoring["target"] is None


async def test_a_run_of_no_suite_file_is_judged_by_the_suite_that_is_named(
    plan: Plan, store: Store, tmp_path: Path
) -> None:
    plan(["a"])
    run_id, _ = next(runs_without_file(store))
    taken, computed, verdict = await rescored(new_run(store, run_id, tmp_path / "suite.json").id)
    assert (taken.outputs, computed, verdict.outcome) == (1, 1, "pass")


async def test_an_imported_run_is_judged_by_the_suite_of_its_import_with_another_check(
    store: Store, tmp_path: Path
) -> None:
    scored = [{"name": "Polite", "score": 0.9, "success": True}]
    theirs = [
        {"input": "q", "actualOutput": "a", "expectedOutput": "a", "metricsData": scored},
        {"input": "r", "actualOutput": "b", "expectedOutput": "c", "metricsData": scored},
        {"input": "s", "expectedOutput": "c", "metricsData": scored},
    ]
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps({"testCases": theirs, "testPassed": 3}), encoding="utf-8")
    file = read_import(path)
    (imported,) = file.store_runs()
    suite = file.write_suite(tmp_path / "suite")[0]
    added = "checks:\n  - {type: exact_match, id: same}\n"
    suite.write_text(suite.read_text(encoding="utf-8").replace("checks:\n", added), encoding="utf-8")
    run = new_run(store, imported.id, suite)
    taken, _, verdict = await rescored(run.id)
    assert taken.outputs == 3
    assert verdict.outcome == "fail"
    assert run.rescoring["notes"] == ["New checks: same."], "its cases are those of the suite that was written"
    compared = compare_results(results_of(store, imported), results_of(store, store.runs.get(run.id)))
    assert len(compared.matched.pairs) == 3
    totals = {each.check_id: each for each in store.results.check_totals(run.id)}
    assert (totals["same"].passed, totals["same"].failed, totals["same"].error) == (1, 1, 1), "no answer is no pass"
    assert totals["Polite"].passed == 2


async def test_a_rescore_that_was_interrupted_or_has_errors_is_resumed(
    plan: Plan, store: Store, edit: Callable[..., Path], agent: Agent
) -> None:
    first = plan(["a", "b"])
    await ran(first)
    edit(checks=[PASSES])
    run = new_run(store, first)
    await interrupted(run.id, take_outputs)
    resumed = resume_run(store, run.id)
    taken, computed, verdict = await rescored(resumed.run.id)
    assert (taken.outputs, computed, verdict.outcome) == (1, 2, "pass")
    assert agent.requests == {"a": 1, "b": 1}
    again = resume_run(store, run.id)
    assert (await rescored(again.run.id))[2].outcome == "pass"


async def test_checks_of_a_plugin_are_computed_again_if_its_code_is_another(
    plan: Plan, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(as_it_was := PLUGIN.format(body="return {'passed': helper(text)}", helper="return text == 'a'"))
    check = {"type": "mine_rescored", "arguments": {"text": "$.output.value"}}
    first = plan(["a", "b"], checks=[check], plugins=["mine.py"])
    assert (await ran(first)).outcome == "fail"
    taken, computed, _ = await rescored(new_run(store, first).id)
    assert (taken.checks, computed) == (2, 0)
    plugin.write_text(PLUGIN.format(body="return {'passed': helper(text)}", helper="return True  # now"))
    taken, computed, verdict = await rescored(new_run(store, first).id)
    assert (taken.checks, computed, verdict.outcome) == (0, 2, "pass"), "what a plugin's check calls has changed"
    plugin.write_text(as_it_was)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.py").write_text(PLUGIN.format(body="return {'passed': helper(text)}", helper="return False"))
    (elsewhere / "suite.json").write_bytes((tmp_path / "suite.json").read_bytes())
    monkeypatch.delitem(registry._registered, "mine_rescored")
    taken, computed, verdict = await rescored(new_run(store, first, elsewhere / "suite.json").id)
    assert (taken.checks, computed, verdict.outcome) == (0, 2, "fail"), "another file with the same class"


PLUGIN = """
from fepflow.checks.base import BaseCheck, JSONPath
from fepflow.checks.registry import register

def helper(text):
    {helper}

@register("mine_rescored", "1.0.0")
class Mine(BaseCheck):
    text: str | JSONPath

    def __call__(self):
        text = self.text
        {body}
"""


async def test_a_suite_whose_file_is_gone_judges_by_the_runs_own_copy(
    plan: Plan, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = plan(["a"])
    await ran(first)
    (tmp_path / "suite.json").unlink()
    rescorable = find_rescorable(store, first, None)
    assert "own copy of its suite" in rescorable.told
    assert "not there any more" in rescorable.told
    run = create_rescore(store, rescorable).run
    taken, computed, verdict = await rescored(run.id)
    assert (taken.checks, computed, verdict.outcome) == (1, 0, "pass")


async def test_the_agents_secrets_are_not_needed(
    plan: Plan, store: Store, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RESCORED_BOT", agent.url)
    monkeypatch.setenv("RESCORED_TOKEN", "s3cret-token")
    http = {
        "url": "${RESCORED_BOT}",
        "headers": {"Authorization": "Bearer ${RESCORED_TOKEN}"},
        "body": {"question": "${RESCORED_PATH:-$.test_case.input}"},
    }
    first = plan(["a"], target={"http": http})
    await ran(first)
    monkeypatch.setenv("RESCORED_TOKEN", "another-token")
    assert new_run(store, first).rescoring["target"] is None, "the same agent is asked with it"
    monkeypatch.setenv("RESCORED_BOT", "http://127.0.0.1:9/moved")
    moved = new_run(store, first).rescoring["target"]
    assert "another one by now, by the values of RESCORED_BOT" in moved
    monkeypatch.delenv("RESCORED_BOT")
    monkeypatch.delenv("RESCORED_TOKEN")
    run = new_run(store, first)
    assert (await rescored(run.id))[2].outcome == "pass"
    # Another process reads the suite from the store.
    assert (await rescored(new_run(store, run.id).id))[2].outcome == "pass"


async def test_a_rescored_run_is_no_look_no_previous_run_and_no_point_of_a_trend(
    plan: Plan, store: Store, edit: Callable[..., Path]
) -> None:
    first = plan(["a"], options=RunOptions(version="1"))
    await ran(first)
    run = new_run(store, first)
    await rescored(run.id)
    second = plan(["a"], options=RunOptions(version="1"))
    verdict = await ran(second)
    assert verdict.looks is not None
    assert verdict.looks.number == 2
    record, new = store.runs.get(run.id), store.runs.get(second)
    assert record.version == "1"
    assert "looks" not in record.verdict
    previous = store.runs.before(new, alike=False)
    assert previous is not None
    assert previous.id == first
    assert store.runs.before(record, alike=False) is None, "not the run that has its outputs"
    assert [point.id for point in store.runs.alike(new, 10)] == [first, second]
    assert store.runs.alike(record, 10) == []
    assert store.runs.equal_to(new, new.completed_at) == {first, second}


async def test_a_regression_against_the_run_with_the_same_outputs_shows_nothing(
    plan: Plan, store: Store, edit: Callable[..., Path]
) -> None:
    first = plan(["a"])
    await ran(first)
    edit(gate={"regression": {"baseline": first, "margin": 0.5}})
    _, _, verdict = await rescored(new_run(store, first).id)
    assert verdict.outcome == "inconclusive"
    assert "has the same outputs as" in verdict.reasons[0]


async def test_runs_that_are_judged_together_are_not_rescored(
    plan: Plan, store: Store, edit: Callable[..., Path]
) -> None:
    first = plan(["a"])
    await ran(first)
    edit(
        gate={"min": {"exact_match": 0.5}, "looks": "pooled"},
        target={**json.loads(edit().read_text())["target"], "version": "1"},
    )
    with pytest.raises(UserError, match="would count twice"):
        new_run(store, first)


async def test_second_tries_stay_second_tries(plan: Plan, store: Store, agent: Agent) -> None:
    first = plan(["x", "fail 1"], target={"attempts": 1})
    await ran(first)
    resume_run(store, first)
    assert (await ran(first)).second_tries == 1
    assert (await rescored(new_run(store, first).id))[2].second_tries == 1


async def test_the_budget_is_not_spent_by_outputs_of_earlier(plan: Plan, store: Store, agent: Agent) -> None:
    agent.tokens = 900
    first = plan(["a"], budget={"tokens": 1000}, target={"http": {"metadata": {"tokens": "$.tokens"}}})
    await ran(first)
    run = new_run(store, first)
    async with open_run(run.id) as context:
        await take_outputs(context, await context.begin(Batch(0, 1)))
        await asyncio.to_thread(context.count_spending)
        assert context.target_client.budget.spent["tokens"] == 0
        await decide_run(context)
