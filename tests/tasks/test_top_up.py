"""Runs that are topped up while their verdict is open: how far they go, what they ask for, and what they rest on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fepflow.diagnose.validate_suite import validate_suite
from fepflow.settings import settings
from fepflow.store.maintenance import check_integrity
from fepflow.store.store import Store
from fepflow.tasks.batches import Batch, split_into_batches
from fepflow.tasks.call_target import call_target
from fepflow.tasks.context import RunContext
from fepflow.tasks.decide import decide_run, top_up
from fepflow.tasks.open_run import open_run
from fepflow.tasks.run_checks import run_checks_of_batch
from fepflow.verdict.verdict import Verdict

from .conftest import SAME, Agent, Plan

PERFECT = [f"case {number}" for number in range(40)]
METRIC = {"id": "acc", "check": "exact_match"}


def wrong(*numbers: int) -> list[Any]:
    """Three cases, of which those with these numbers are answered wrongly."""
    return [
        {"id": case, "input": case, "expected": "x" if n in numbers else case} for n, case in enumerate(PERFECT[:3])
    ]


def gate(least: float = 0.5, **top_up: int) -> dict[str, Any]:
    return {"metrics": [METRIC], "gate": {"min": {"acc": least}, "top_up": top_up}}


async def run_batches(context: RunContext, batches: list[Batch]) -> None:
    for batch in batches:
        work = await context.begin(batch)
        await call_target(context, work)
        await run_checks_of_batch(context, work)


async def decided(run_id: str) -> tuple[Verdict, list[str]]:
    """The verdict of a run, and what was said each time that it was looked at."""
    async with open_run(run_id) as context:
        batches, said = split_into_batches(context.shard_spec.calls(context.run)), []
        while batches:
            await run_batches(context, batches)
            batches, words = await top_up(context)
            said.append(words)
        return await decide_run(context), said


async def test_repeats_are_added_until_the_results_suffice(store: Store, plan: Plan, agent: Agent) -> None:
    run_id = plan(PERFECT[:2], **gate(max_repeats=6))
    verdict, said = await decided(run_id)
    assert verdict.outcome == "pass"
    assert set(agent.requests.values()) == {4}, "8 passes in a row show 0.5, and 6 do not"
    assert [words.partition(". ")[0] for words in said] == [
        "Open; next: repeat 2",
        "Open; next: repeat 3",
        "Open; next: repeat 4",
        "Decided after 4 of at most 6 repeats: 8 of 12 calls; 4 were not needed.",
    ]
    assert verdict.top_up is not None
    assert (verdict.top_up.calls, verdict.top_up.max_calls, verdict.top_up.summary) == (8, 12, said[-1])
    (metric,) = verdict.metrics
    assert (metric.n_expected, metric.n_completed, metric.method) == (8, 8, "sequential-these-cases")
    assert metric.low is not None
    assert 0.5 <= metric.low < 0.56
    assert "about these test cases alone" in verdict.gate
    assert store.runs.get(run_id).repeats == 4
    assert len(list(store.results.by_case(run_id))) == 8


async def test_cases_are_added_in_random_order(store: Store, plan: Plan, agent: Agent) -> None:
    run_id = plan(PERFECT, **gate(max_cases=30))
    assert store.runs.get(run_id).n_cases == 8, "so many passes in a row are the first to show 0.5"
    verdict, said = await decided(run_id)
    assert verdict.outcome == "pass"
    assert said == ["Decided after 8 of at most 30 test cases: 8 of 30 calls; 22 were not needed."]
    assert agent.requests.total() == 8
    assert verdict.metrics[0].method == "sequential"
    asked = [case.id for case in store.runs.cases(run_id)]
    assert len(asked) == 8
    assert set(asked) != set(PERFECT[:8]), "a sorted file is sampled from all over"
    assert "a random sample of 8 of 40" in str(store.runs.get(run_id).sample)
    assert check_integrity(settings().store_address).problems == []


CLUSTER = "$.test_case.metadata.document"


def questions(documents: int, each: int) -> list[Any]:
    """So many questions about each document, by turns."""
    return [
        {"id": f"{document}-{n}", "input": f"{document}-{n}", "metadata": {"document": document}}
        for n in range(each)
        for document in range(documents)
    ]


async def test_clusters_are_drawn_and_looked_at_as_a_whole(store: Store, plan: Plan, agent: Agent) -> None:
    run_id = plan(questions(20, 4), cluster=CLUSTER, **gate(max_cases=70))
    run = store.runs.get(run_id)
    assert run.options["sample"]["cases"] == 68, "17 whole documents; another one would be more than 70 cases"
    assert run.n_cases == 32, "8 documents in a row are the first to show 0.5"
    agent.wrong |= {case.input for case in store.runs.cases(run_id)[:4]}
    verdict, said = await decided(run_id)
    assert verdict.outcome == "pass"
    (metric,) = verdict.metrics
    assert metric.method == "sequential-clustered"
    sizes = [int(words.rpartition(" to ")[2].partition(".")[0]) for words in (s.partition(". ")[0] for s in said[:-1])]
    assert sizes
    assert all(size % 4 == 0 for size in sizes)
    documents = [(case.metadata or {})["document"] for case in store.runs.cases(run_id)]
    assert len(set(documents)) * 4 == len(documents) == metric.n_expected
    assert metric.n_clusters == len(set(documents))
    assert [documents[n] for n in range(0, len(documents), 4)] != list(range(len(documents) // 4)), "in random order"


async def test_the_same_question_under_several_ids_is_drawn_and_looked_at_as_one(store: Store, plan: Plan) -> None:
    cases = [{"id": f"{number}", "input": f"question {number % 4}"} for number in range(20)]
    run_id = plan(cases, **gate(max_cases=20))
    assert store.runs.get(run_id).n_cases == 20, "8 questions in a row are the first to show 0.5"
    verdict, _ = await decided(run_id)
    (metric,) = verdict.metrics
    assert (verdict.outcome, metric.method, metric.n_clusters) == ("inconclusive", "sequential-clustered", 4)
    assert "20 of 20 test cases are only 4 different ones" in verdict.warnings[0]


async def test_clusters_do_not_matter_to_a_verdict_about_these_cases(plan: Plan, agent: Agent) -> None:
    verdict, _ = await decided(plan(questions(1, 2), cluster=CLUSTER, **gate(max_repeats=6)))
    (metric,) = verdict.metrics
    assert (verdict.outcome, metric.method, metric.n_clusters) == ("pass", "sequential-these-cases", None)


async def test_one_wrong_case_takes_more_cases(store: Store, plan: Plan, agent: Agent) -> None:
    run_id = plan(PERFECT, **gate(max_cases=40))
    agent.wrong.add(store.runs.cases(run_id)[3].input)
    verdict, said = await decided(run_id)
    assert verdict.outcome == "pass"
    assert len(said) > 1
    assert 8 < agent.requests.total() < 40
    assert store.runs.get(run_id).n_cases == agent.requests.total()
    assert set(agent.requests.values()) == {1}


async def test_few_looks_are_at_equal_parts_of_the_cases(store: Store, plan: Plan, agent: Agent) -> None:
    """The last of four looks is almost as sharp as a single one: 35 of 40 show 0.7, and one by one they do not."""
    run_id = plan(PERFECT, **gate(0.7, max_cases=40, looks=4))
    agent.wrong |= set(PERFECT[5::7])
    verdict, said = await decided(run_id)
    assert [words.partition(". ")[0] for words in said] == [
        "Open; next: test cases 11 to 20",
        "Open; next: test cases 21 to 30",
        "Open; next: test cases 31 to 40",
        "Decided after all 40 test cases.",
    ]
    assert verdict.gate == "acc must be at least 0.7 (95 % intervals that hold at all 4 looks)."
    (metric,) = verdict.metrics
    assert (verdict.outcome, metric.method, metric.confidence) == ("pass", "sequential-few-looks", 0.95)
    assert (metric.value, metric.low) == pytest.approx((0.875, 0.7279), abs=1e-4)


async def test_a_bad_agent_fails_at_the_first_look(plan: Plan, agent: Agent) -> None:
    verdict, said = await decided(plan(wrong(0, 1, 2), **gate(0.9, max_repeats=20)))
    assert verdict.outcome == "fail"
    assert said == ["Decided after 1 of at most 20 repeats: 3 of 60 calls; 57 were not needed."]
    assert agent.requests.total() == 3


async def test_what_is_not_decided_at_the_limit_is_inconclusive(plan: Plan, agent: Agent) -> None:
    verdict, said = await decided(plan(wrong(0), **gate(max_repeats=2)))
    assert verdict.outcome == "inconclusive"
    assert said[-1] == "Still open after all 2 repeats."
    assert set(agent.requests.values()) == {2}


async def test_an_open_verdict_that_more_results_cannot_decide_is_left(plan: Plan, agent: Agent) -> None:
    """The metric has passed, and a check that every case must pass has an error."""
    suite = gate(max_repeats=6)
    suite["gate"]["checks"] = "all"
    verdict, said = await decided(plan([*PERFECT[:12], "fail 9"], **suite))
    assert verdict.outcome == "inconclusive"
    assert said == ["Still open after 1 of at most 6 repeats."]


async def test_what_is_missing_counts_at_its_worst(plan: Plan, agent: Agent) -> None:
    """Two cases that pass and one without an answer: 8 passes beside four results that may have failed."""
    verdict, _ = await decided(plan([*PERFECT[:2], "fail 99"], target={"attempts": 1}, **gate(max_repeats=4)))
    (metric,) = verdict.metrics
    assert verdict.outcome == "inconclusive"
    assert (metric.value, metric.n_completed, metric.n_expected) == (1, 8, 12)


async def test_a_run_without_time_left_asks_for_nothing(plan: Plan, agent: Agent) -> None:
    verdict, said = await decided(plan(PERFECT[:3], deadline="1ms", **gate(max_repeats=6)))
    assert verdict.outcome == "inconclusive"
    assert len(said) == 1
    assert agent.requests.total() == 0


async def test_a_run_that_broke_off_goes_on_where_it_was(store: Store, plan: Plan, agent: Agent) -> None:
    run_id = plan(PERFECT[:2], **gate(max_repeats=6))

    async def first_round() -> None:
        async with open_run(run_id) as context:
            await run_batches(context, split_into_batches(context.shard_spec.calls(context.run)))
            await top_up(context)
            raise KeyError("as a crash would, in the second round")

    with pytest.raises(KeyError):
        await first_round()
    assert store.runs.get(run_id).repeats == 2
    verdict, _ = await decided(run_id)
    assert (verdict.outcome, verdict.metrics[0].n_completed) == ("pass", 8)
    assert set(agent.requests.values()) == {4}, "nothing was asked twice"


@pytest.mark.parametrize(
    ("sections", "says"),
    [
        ({"gate": {"top_up": {"max_repeats": 3}}}, "gate.top_up: there is no limit that more results could decide"),
        ({"gate": {"min": {"acc": 0.9}, "top_up": {}}}, "give max_repeats or max_cases"),
        (
            {"gate": {"min": {"acc": 0.9}, "top_up": {"max_repeats": 3, "max_cases": 9}}},
            "give max_repeats or max_cases",
        ),
        ({"gate": {"min": {"acc": 0.9}, "top_up": {"max_repeats": 1}}}, "gate.top_up.max_repeats"),
        ({**gate(0.9, max_repeats=3), "repeats": 3}, "the suite begins with 3 repeats"),
        ({**gate(0.9, max_repeats=3), "shards": 2}, "a run that is topped up is executed whole"),
        ({**gate(0.9, max_repeats=9), "cluster": CLUSTER}, "cluster: the verdict is about these test cases only"),
        ({**gate(0.9, max_cases=9), "slices": {"by": "topic", "min": 0.5}}, "slices.min: minima of slices"),
        ({"gate": {**gate(0.9, max_cases=9)["gate"], "verdict": "point"}}, "gate.verdict: verdict is not judged"),
        ({"gate": {**gate(0.9, max_cases=9)["gate"], "fail": "value"}}, "gate.fail: fail is not judged"),
        (
            {"gate": {**gate(0.9, max_cases=9)["gate"], "regression": {"margin": 0.1}}},
            "gate.regression: regression is not",
        ),
        (
            {**gate(0.9, max_cases=9), "metrics": [{**METRIC, "aggregate": "p95", "value": "$.score"}]},
            "acc is a p95, and top_up is for means and rates (a limit on p95 is aggregate: rate",
        ),
        ({**gate(0.9, max_cases=9), "metrics": [{**METRIC, "value": "$.score"}]}, "the range of acc is not known"),
        (
            gate(0.9, max_cases=9),
            "2 test cases cannot show acc of at least 0.9, however good they are (it takes 52 at 95%)",
        ),
        (gate(0.9, max_repeats=9, looks=3), "looks are those of max_cases"),
        (gate(0.9, max_cases=9, looks=11), "gate.top_up.looks"),
        (
            gate(0.9, max_cases=9, looks=3),
            "acc of at least 0.9, however good they are (it takes 36 at 95%)",
        ),
        (gate(0.9, max_repeats=9), "18 results of 2 test cases cannot show acc of at least 0.9"),
        (gate(0.9, max_cases=9), "there are 2 test cases, so there cannot be 9"),
    ],
)
def test_mistakes_are_found_before_anything_is_called(tmp_path: Path, sections: dict[str, Any], says: str) -> None:
    cases = [{"id": str(n), "input": n, "metadata": {"topic": "a"}} for n in range(2)]
    target = {"http": {"url": "http://127.0.0.1:9"}}
    document = {"name": "s", "target": target, "test_cases": cases, "checks": [SAME], "metrics": [METRIC], **sections}
    (tmp_path / "suite.json").write_text(json.dumps(document))
    assert says in "\n".join(map(str, validate_suite(tmp_path / "suite.json").problems))
