from __future__ import annotations

from io import StringIO
from typing import Any

import pytest

from fepflow.protocol.test_case import Output
from fepflow.reports.junit import write_junit
from fepflow.store.records import NewOutput
from fepflow.store.store import Store
from fepflow.tasks.batches import Batch
from fepflow.tasks.call_target import call_target
from fepflow.tasks.create_run import RunOptions
from fepflow.tasks.decide import decide_run
from fepflow.tasks.open_run import open_run
from fepflow.tasks.plan_run import resume_run
from fepflow.tasks.run_checks import run_checks_of_batch
from fepflow.verdict.verdict import Verdict

from .conftest import SAME, Agent, Plan

LATENCIES = ("latency", "last_attempt")
WRONG = {"id": "wrong", "input": "wrong", "expected": "right"}


async def verdict_on(run_id: str, called: int, checked: int) -> Verdict:
    """The verdict after so many calls and checks of the first cases."""
    async with open_run(run_id) as context:
        for batch in (Batch(0, checked), Batch(checked, called)):
            work = await context.begin(batch)
            await call_target(context, work)
            if batch.stop <= checked:
                await run_checks_of_batch(context, work)
        return await decide_run(context)


@pytest.mark.parametrize(
    ("cases", "outcome"),
    [(["a", "b"], "pass"), (["a", WRONG], "fail"), (["a", "fail 9"], "inconclusive"), ([WRONG, "fail 9"], "fail")],
)
async def test_without_a_gate_every_check_has_to_pass(plan: Plan, cases: list[Any], outcome: str) -> None:
    verdict = await verdict_on(plan(cases), 2, 2)
    assert verdict.outcome == outcome


@pytest.mark.parametrize(
    ("expected", "outcome", "reason"),
    [
        ("a", "inconclusive", "1 of 2 test cases (--filter-metadata topic=x) were run, and meet the gate."),
        ("b", "fail", "Only 1 of 2 test cases (--filter-metadata topic=x) were run: this is no verdict of the suite."),
    ],
)
async def test_cases_that_a_filter_chose_fail_and_never_pass(
    plan: Plan, expected: str, outcome: str, reason: str
) -> None:
    cases = [{"id": "a", "input": "a", "expected": expected, "metadata": {"topic": "x"}}, "b"]
    verdict = await verdict_on(plan(cases, options=RunOptions(metadata={"topic": "x"})), 1, 1)
    assert (verdict.outcome, verdict.blocks) == (outcome, True)
    assert any(text.startswith(reason) for text in verdict.reasons)


async def test_a_random_sample_has_a_verdict_and_says_so(plan: Plan) -> None:
    verdict = await verdict_on(plan(["a", "b"], options=RunOptions(limit=1)), 1, 1)
    assert (verdict.outcome, verdict.warnings) == ("pass", ["A random sample of 1 of 2 test cases (seed 0)."])


async def test_calls_that_hang_and_are_retried_count_with_all_that_they_took(plan: Plan, agent: Agent) -> None:
    cases = [f"q{n}" for n in range(40)]
    agent.hanging = set(cases[::5])
    times = [{"id": name, "value": f"$.output.metadata.{name}_ms", "aggregate": "p95"} for name in LATENCIES]
    gate = {"max": {"latency": 1000}}
    run_id = plan(cases, target={"timeout": "1s", "concurrency": 50}, metrics=times, gate=gate)
    verdict = await verdict_on(run_id, 40, 40)
    whole, last = (metric.value or 0.0 for metric in verdict.metrics)
    assert (verdict.outcome, whole > 1000 > last) == ("fail", True)


async def test_a_small_slice_in_which_everything_is_wrong_fails(plan: Plan, store: Store, agent: Agent) -> None:
    cases = [{"id": f"q{n}", "input": f"q{n}", "metadata": {"topic": "rare" if n < 15 else "usual"}} for n in range(35)]
    agent.wrong = {f"q{n}" for n in range(15)}
    metrics = [{"id": "acc", "check": "exact_match"}]
    run_id = plan(cases, slices={"by": "topic", "min": 0.8, "small": "ignore"}, metrics=metrics)
    verdict = await verdict_on(run_id, 35, 35)
    assert (verdict.outcome, verdict.blocks) == ("fail", True)
    assert "1 of 2 slices is below the minimum of 0.8: rare 0 " in verdict.reasons[0]
    write_junit(store, store.runs.get(run_id), file := StringIO())
    assert '<failure message="acc by topic: 1 of 2 slices is below' in file.getvalue()


@pytest.mark.parametrize(("broken", "least", "words"), [(5, 0.8, "it would not pass"), (2, 0.5, "it would pass all")])
async def test_a_resumed_run_says_how_many_results_are_second_tries(
    plan: Plan, store: Store, broken: int, least: float, words: str
) -> None:
    cases = [f"fail 2 q{n}" if n < broken else f"q{n}" for n in range(30)]
    run_id = plan(cases, metrics=[{"id": "acc", "check": "exact_match"}], gate={"min": {"acc": least}})
    first = await verdict_on(run_id, 30, 30)
    assert (first.metrics[0].n_error, first.second_tries) == (broken, None)
    for _ in range(2):
        resume_run(store, run_id)
        again = await verdict_on(run_id, 30, 30)
        assert (again.outcome, again.second_tries, again.metrics[0].n_completed) == ("pass", broken, 30)
        assert again.warnings[0].startswith(f"{broken} of 30 results are second tries: the first ended in an error")
        assert f"If the first tries counted as errors, {words}" in again.warnings[0]


async def test_a_target_that_was_down_is_a_reason_and_no_first_try(plan: Plan, store: Store) -> None:
    run_id = plan(["a", "b"])
    error = {"type": "network_error", "kind": "circuit_open", "message": "the target is down", "recoverable": True}
    down = Output(value=None, metadata={"error": error, "attempts": 0, "attempt_log": []})
    store.results.write(run_id, [NewOutput(0, 0, "h", down)], [])
    verdict = await verdict_on(run_id, 2, 2)
    assert f"1 output of 2 could not be asked for, as the target was down: fepflow run --resume {run_id[:8]}" in str(
        verdict.reasons
    )
    resume_run(store, run_id)
    assert (await verdict_on(run_id, 2, 2)).second_tries is None


async def test_missing_results_stay_in_the_denominator(plan: Plan) -> None:
    (metric,) = (await verdict_on(plan(["a", "fail 9", "c", "d"]), 3, 3)).metrics
    assert (metric.n_expected, metric.n_completed, metric.n_error) == (4, 2, 1)
    assert metric.value == 1.0
    assert metric.low is not None
    assert metric.low < 0.5, "the two that are not known might have failed"


async def test_an_incomplete_run_never_passes(plan: Plan) -> None:
    assert (await verdict_on(plan(["a", "b"]), 1, 1)).outcome == "inconclusive"
    gated = plan(["a", "b"], metrics=[{"id": "acc", "check": "exact_match"}], gate={"min": {"acc": 0.5}})
    assert (await verdict_on(gated, 1, 1)).outcome == "inconclusive"


async def test_a_check_that_only_some_cases_have_is_expected_of_those_only(plan: Plan) -> None:
    own = {**SAME, "id": "own"}
    verdict = await verdict_on(plan(["a", {**WRONG, "checks": [own]}]), 2, 2)
    counts = {metric.id: (metric.n_expected, metric.value) for metric in verdict.metrics}
    assert counts == {"exact_match": (2, 0.5), "own": (1, 0.0)}


async def test_repeats_are_measurements_of_their_case(plan: Plan) -> None:
    (metric,) = (await verdict_on(plan(["a", WRONG], repeats=4), 8, 8)).metrics
    assert (metric.n_expected, metric.n_completed, metric.value) == (8, 8, 0.5)


async def test_a_metric_may_take_its_number_from_the_results(plan: Plan) -> None:
    metrics = [
        {"id": "answered", "check": "exact_match", "value": "$.passed"},
        {"id": "lost", "check": "exact_match", "value": "$..score"},
    ]
    answered, lost = (await verdict_on(plan(["a", WRONG], metrics=metrics), 2, 2)).metrics
    assert answered.value == 0.5
    assert (lost.value, lost.n_error) == (None, 2), "what has no number counts as an error"


async def test_the_verdict_is_in_the_store_with_its_metrics(plan: Plan, store: Store) -> None:
    run_id = plan(["a", WRONG])
    await verdict_on(run_id, 2, 2)
    record = store.runs.get(run_id)
    assert (record.status, record.outcome, record.lease_owner) == ("completed", "fail", None)
    assert record.verdict["reasons"]
    assert [(metric["id"], metric["value"], metric["n_expected"]) for metric in record.metrics] == [
        ("exact_match", 0.5, 2)
    ]


@pytest.mark.parametrize("cases", [["a", "b", WRONG], ["a", "fail 98", WRONG], ["fail 97", "fail 99"], ["a"]])
async def test_counting_results_and_reading_them_one_by_one_come_to_the_same(plan: Plan, cases: list[Any]) -> None:
    metrics = [{"id": "counted", "check": "exact_match"}, {"id": "read", "check": "exact_match", "value": "$.passed"}]
    alone = plan(cases, metrics=metrics[:1])
    (counted,) = (await verdict_on(alone, len(cases), len(cases))).metrics
    both = plan(cases, metrics=metrics)
    _, read = (await verdict_on(both, len(cases), len(cases))).metrics
    assert counted.model_dump(exclude={"id"}) == read.model_dump(exclude={"id"})
