"""The runs of a suite's variants: what they share, and that none is taken for another's."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from fepflow.analysis.comparison import base_of
from fepflow.analysis.regressions import find_baseline
from fepflow.analysis.variants import as_markdown, judge_variants, rows_of, variant_table
from fepflow.diagnose.validate_suite import validate_suite
from fepflow.errors import NotFoundError, UserError
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import Gate
from fepflow.tasks.batches import Batch
from fepflow.tasks.call_target import call_target
from fepflow.tasks.create_run import RunOptions, create_run, create_variants
from fepflow.tasks.decide import decide_run
from fepflow.tasks.flow_state import variants_state
from fepflow.tasks.local_run import LocalRun, local_run
from fepflow.tasks.open_run import open_run
from fepflow.tasks.plan_run import _variants_begun_before

from .conftest import SAME, Agent
from .test_decide import verdict_on

LONG = "4f" * 16
GONE = "another-host/1/x"


@pytest.fixture
def suite(agent: Agent, tmp_path: Path) -> Any:
    def write(*, cases: int = 2, variants: Any = None, **sections: Any) -> Path:
        rows = [{"id": f"q{n}", "input": f"q{n}", "expected": f"q{n}"} for n in range(cases)]
        http = {"url": agent.url, "body": {"question": "$.test_case.input", "of": "${variant.v}"}, "output": "$.answer"}
        target = {"http": http, "attempts": 1, "retries": 0, **sections.pop("target", {})}
        variants = variants or {"v": ["a", "b"]}
        document = {"name": "s", "variants": variants, "target": target, "test_cases": rows, "checks": [SAME]}
        path = tmp_path / "suite.json"
        path.write_text(json.dumps({**document, **sections}), encoding="utf-8")
        return path

    return write


def create(store: Store, path: Path, variants_id: str, **options: Any) -> list[RunRecord]:
    return [run.run for run in create_variants(store, validate_suite(path), RunOptions(**options), variants_id)]


async def finished(store: Store, runs: list[RunRecord]) -> list[RunRecord]:
    for run in runs:
        await verdict_on(run.id, run.n_cases, run.n_cases)
    return [store.runs.get(run.id) for run in runs]


async def test_a_variant_is_never_compared_with_another_ones_runs_as_if_it_had_run_before(
    store: Store, suite: Any
) -> None:
    path = suite()
    first_a, first_b = await finished(store, create(store, path, "1" * 32))
    assert (first_a.name, first_b.name) == ("s [v=a]", "s [v=b]")
    assert first_b.suite_hash != first_a.suite_hash
    # Of the newest run, that of b, nothing is there before it.
    assert store.runs.before(first_b, alike=False) is None
    assert [run.id for run in store.runs.alike(first_b, 10)] == [first_b.id]
    assert store.runs.looks(first_b) == []
    assert find_baseline(store, first_b, "previous") is None
    with pytest.raises(NotFoundError):
        base_of(store, first_b, "previous")
    assert store.runs.equal_to(first_b, first_b.completed_at or first_b.created_at) == {first_b.id}

    later_a, later_b = await finished(store, create(store, path, "2" * 32))
    for later, first in ((later_a, first_a), (later_b, first_b)):
        before = store.runs.before(later, alike=False)
        assert before is not None
        assert before.id == first.id
        assert [run_id for run_id, _ in store.runs.looks(later)] == [first.id]
        assert [run.id for run in store.runs.alike(later, 10)] == [first.id, later.id]
        assert [run.id for run in base_of(store, later, "previous").runs] == [first.id]


async def test_a_baseline_is_one_of_its_variant(store: Store, suite: Any) -> None:
    path = suite()
    first_a, _ = await finished(store, create(store, path, "1" * 32))
    store.runs.set_baseline(first_a.name, "main", first_a.id)
    later_a, later_b = await finished(store, create(store, path, "2" * 32))
    assert base_of(store, later_a, "main").runs[0].id == first_a.id
    with pytest.raises(NotFoundError, match="There is no baseline main"):
        base_of(store, later_b, "main")


def test_runs_of_variants_are_found_by_their_id_or_its_beginning(store: Store, suite: Any) -> None:
    path = suite(variants={"v": list("abcdefghijkl")})
    created = create(store, path, LONG)
    assert [run.variant for run in store.runs.of_variants(LONG)] == [{"v": letter} for letter in "abcdefghijkl"]
    assert [run.id for run in store.runs.of_variants(LONG[:8])] == [run.id for run in created]
    create(store, path, f"{LONG[:30]}00", variants=[("v", "b")])
    assert store.runs.of_variants(LONG[:8]) == [], "the beginning of two ids names neither"
    assert [run.variant for run in store.runs.of_variants(f"{LONG[:30]}00")] == [{"v": "b"}]
    assert store.runs.of_variants("4f4") == store.runs.of_variants("variants") == store.runs.of_variants("%%%%") == []


def test_a_run_of_the_suite_alone_is_refused(store: Store, suite: Any) -> None:
    with pytest.raises(UserError, match="has variants"):
        create_run(store, validate_suite(suite()))
    assert store.runs.newest() == []


async def test_what_one_variant_spent_is_missing_to_the_next(store: Store, suite: Any, agent: Agent) -> None:
    path = suite(cases=4, budget={"tokens": 25}, target={"concurrency": 1, "http": {
        "url": agent.url, "body": {"question": "$.test_case.input", "of": "${variant.v}"}, "output": "$.answer",
        "metadata": {"tokens": "$.tokens"}}})  # fmt: skip
    agent.tokens = 5
    first, second = await finished(store, create(store, path, LONG))
    answered = [store.results.progress(run.id).outputs for run in (first, second)]
    assert answered == [4, 1], "20 of 25 tokens were spent before the second one began"
    assert any("the run reached" in reason for reason in (second.verdict or {})["reasons"]), second.verdict


async def test_the_table_claims_a_difference_only_where_it_is_shown_over_all(
    store: Store, suite: Any, agent: Agent
) -> None:
    path = suite(cases=16, variants={"v": ["a", "good", "same", "down"]})
    agent.wrong_for = {"a": 8, "same": 8}
    runs = create(store, path, LONG)
    agent.down_for = {"down"}
    await finished(store, runs)
    table = variant_table(store, LONG)
    ways = {(difference.run.variant or {})["v"]: difference.way for difference in table.differences}
    assert ways == {
        "good": "better",
        "same": None,
        "down": None,
    }
    assert table.outcome == "fail"
    assert table.blocks
    sentences = "\n".join(table.sentences)
    assert "No call of v=down was answered." in sentences
    assert "exact_match of v=good is better than the first by" in sentences
    assert "v=same" not in sentences
    assert variants_state(table).name == "Failed"
    assert str(variants_state(table).message).startswith("FAIL: Of 4 variants: 2 failed (v=a; v=same), 1 inconclusive")
    shown = [row.cells[-1] for row in rows_of(table)]
    assert shown == ["the first", "better", "no difference", "not compared"]
    assert as_markdown(table).count("\n|") == 6


async def test_a_variant_without_a_verdict_is_said_and_the_others_stand(store: Store, suite: Any) -> None:
    runs = create(store, suite(variants={"v": ["a", "b", "c"]}), LONG)
    await finished(store, [runs[0], runs[2]])
    store.leases.acquire(runs[1].id, "me", 10)
    store.leases.finish(runs[1].id, "me", "failed", error="no such function")
    table = variant_table(store, LONG)
    assert table.outcome is None
    assert table.blocks
    assert table.summary == "Of 3 variants: 1 could not be evaluated (v=b: no such function), 2 passed."
    assert [difference.run.id for difference in table.differences] == [runs[2].id]
    assert variants_state(table).name == "Failed"
    assert str(variants_state(table).message).startswith("could not be evaluated: ")


async def test_nothing_is_compared_without_the_first(store: Store, suite: Any) -> None:
    runs = create(store, suite(), LONG)
    await finished(store, runs[1:])
    table = variant_table(store, LONG)
    assert not table.differences
    assert "Nothing is compared: the first variant, v=a, has no verdict." in table.sentences


async def test_many_comparisons_are_held_to_more_than_one(store: Store, suite: Any, agent: Agent) -> None:
    """A difference that one comparison shows is none among twenty."""
    from fepflow.analysis.comparison import compare_results, results_with_verdict

    path = suite(cases=16, variants={"v": ["a", "good"]})
    agent.wrong_for = {"a": 7}
    first, good = await finished(store, create(store, path, LONG))
    comparison = compare_results(results_with_verdict(store, first), results_with_verdict(store, good))
    alone, together = judge_variants([comparison], Gate()), judge_variants([comparison] * 20, Gate())
    assert [difference.way for difference in alone] == ["better"]
    assert {difference.way for difference in together} == {None}


async def test_variants_have_one_deadline(store: Store, suite: Any, agent: Agent) -> None:
    (run,) = create(store, suite(variants={"v": ["a"]}, deadline="1h"), LONG)
    token = local_run.set(LocalRun(run, store, ends_at=store.now() - timedelta(seconds=1)))
    try:
        async with open_run(run.id, store=store) as context:
            await call_target(context, await context.begin(Batch(0, 2)))
            verdict = await decide_run(context)
    finally:
        local_run.reset(token)
    assert not agent.requests
    assert any("the run reached the deadline of 3600 s" in reason for reason in verdict.reasons), verdict.reasons


def test_no_run_is_named_after_a_secret_of_its_variant(
    store: Store, suite: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "canary-4711-of-a")
    monkeypatch.setenv("B_KEY", "canary-0815-of-b-which-is-longer-than-a-label")
    variants = {"key": ["${A_KEY}", "${B_KEY}"], "v": [1]}
    target = {"http": {"url": "http://127.0.0.1:9", "headers": {"x": "${variant.key}"}, "body": "${variant.v}"}}
    runs = create(store, suite(variants=variants, target=target), LONG)
    assert [run.name for run in runs] == ["s [key=${A_KEY}, v=1]", "s [key=${B_KEY}, v=1]"]
    assert runs[0].tags == ["variant:key=${A_KEY}", "variant:v=1"]
    with pytest.raises(UserError) as error:
        create(store, suite(variants=variants, target=target), LONG, variants=[("key", "x")])
    assert "canary" not in "".join(run.model_dump_json() for run in runs) + str(error.value)


async def test_the_table_says_how_many_outputs_are_of_earlier_runs(store: Store, suite: Any) -> None:
    first, second = await finished(store, create(store, suite(), LONG))
    table = variant_table(store, LONG)
    assert not any("earlier runs" in sentence for sentence in table.sentences)
    reused = [run.model_copy(update={"verdict": {**(run.verdict or {}), "reused_outputs": 2}}) for run in table.runs]
    assert [run.id for run in reused] == [first.id, second.id]
    assert "4 outputs from earlier runs" in replace(table, runs=reused).sentences[-1]


def test_a_takeover_resumes_no_variant_that_a_person_cancelled(store: Store, suite: Any) -> None:
    flow_run_id = uuid4()
    validation = validate_suite(suite())
    created = create_variants(store, validation, RunOptions(), flow_run_id.hex, takeovers=2)
    first, second = (run.run.id for run in created)
    store.leases.acquire(first, GONE, 0)
    store.runs.request_cancel(first)
    store.leases.claim(second, GONE, 0)
    assert store.leases.reap() == sorted([first, second])
    assert [store.runs.get(run_id).status for run_id in (first, second)] == ["cancelled", "pending"]

    assert _variants_begun_before(store, None, str(flow_run_id)) is not None
    assert store.runs.cancel_requested(first)
    store.requests.end_unbegun(second, "cancelled", "why")
    assert _variants_begun_before(store, None, str(flow_run_id)) is not None, "somebody retries the flow run"
    assert not store.runs.cancel_requested(first)
