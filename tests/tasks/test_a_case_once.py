"""A test case is validated once, its request rendered once, and it travels with its batch; spies count it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from fepflow.calls.http import HttpTarget
from fepflow.protocol import test_case
from fepflow.protocol.test_case import TestCase
from fepflow.settings import settings
from fepflow.store.blobs import LARGE
from fepflow.store.results import Results
from fepflow.store.runs import Runs
from fepflow.store.store import Store
from fepflow.suite.test_cases import CasesOnDisk
from fepflow.tasks.batches import Batch
from fepflow.tasks.call_target import BatchResult, call_target, retry_call, store_output
from fepflow.tasks.decide import decide_run
from fepflow.tasks.open_run import open_run
from fepflow.tasks.plan_run import resume_run
from fepflow.tasks.run_checks import run_checks_of_batch

from .conftest import SAME, Agent, Plan

OWN = {"id": "own", "type": "regex", "arguments": {"text": "$.output.value", "pattern": "."}}


def _validated(cls: Any, data: Any) -> Any:
    return counted_validation(cls, data)  # type: ignore[name-defined]  # noqa: F821  # the spy, in the model's module


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts what the validator, the renderer and the readers of the store did."""
    counts: Counter[str] = Counter()

    def spy(owner: type, name: str) -> None:
        original = getattr(owner, name)

        def counted(*arguments: Any, **options: Any) -> Any:
            counts[name] += 1
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, counted)

    for owner, name in ((HttpTarget, "render"), (Results, "outputs_at"), (Results, "check_rows"), (Runs, "cases")):
        spy(owner, name)

    # The validator's core holds the function itself, so its code is what can be replaced.
    validator: Any = TestCase._complete.__func__
    original = FunctionType(validator.__code__, validator.__globals__)

    def counted_validation(cls: Any, data: Any) -> Any:
        counts["validate"] += 1
        return original(cls, data)

    monkeypatch.setattr(test_case, "counted_validation", counted_validation, raising=False)
    monkeypatch.setattr(validator, "__code__", _validated.__code__)
    return counts


async def work_off(run_id: str, calls: int, seen: Counter[str]) -> tuple[BatchResult, Counter[str]]:
    """Do all of a run in one batch; return also the counts before its verdict."""
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, calls))
        result = await call_target(context, work)
        for outcome in result.to_retry:
            await retry_call(context, outcome)
            store_output(context, work, outcome)
        await run_checks_of_batch(context, work)
        assert work.failures(None, by_model=False) is not None
        counts = seen.copy()
        await decide_run(context)
    return result, counts


@pytest.mark.parametrize("source", ["inline", "file"])
async def test_a_case_is_validated_rendered_and_read_once(
    plan: Plan, agent: Agent, store: Store, seen: Counter[str], tmp_path: Path, source: str
) -> None:
    cases: list[Any] = ["a", {"id": "b", "input": "b", "expected": "x", "checks": [OWN]}, "fail 1", "fail 3", "fail 9"]
    run_id = plan(cases, checks=[SAME], target={"retries": 1}, in_file=source == "file")
    assert seen["validate"] == len(cases)
    result, counts = await work_off(run_id, len(cases), seen)
    assert len(result.to_retry) == 2
    assert agent.requests["fail 9"] == 3
    assert counts == {"validate": len(cases), "render": len(cases), "cases": 1}
    assert seen["validate"] == len(cases)
    progress = store.results.progress(run_id)
    assert (progress.outputs, progress.checks) == (5, 6)


async def test_on_resume_only_outputs_that_miss_results_are_read_back_and_once_a_batch(
    plan: Plan, agent: Agent, store: Store, seen: Counter[str]
) -> None:
    run_id = plan(["a", "b", {"id": "c", "input": "c", "expected": "x"}], checks=[SAME, OWN])
    async with open_run(run_id) as context:
        await call_target(context, await context.begin(Batch(0, 2)))
        await context.finish("interrupted")
    seen.clear()
    resume_run(store, run_id)
    _, counts = await work_off(run_id, 3, seen)
    assert counts == {"render": 1, "cases": 1, "outputs_at": 1, "check_rows": 1}
    seen.clear()
    async with open_run(run_id) as context:
        work = await context.begin(Batch(0, 3))
        assert (work.missing, work.pending(by_model=False), seen) == ([], [], {"cases": 1})
        failures = work.failures(None, by_model=False)
    assert failures is not None
    assert failures.message == "1 of 3 cases failed: c (exact_match)."
    assert set(agent.requests.values()) == {1}
    assert store.results.progress(run_id).checks == 6


async def test_a_large_output_without_results_is_read_whole_on_resume(
    plan: Plan, agent: Agent, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEPFLOW_BLOBS", (tmp_path / "blobs").as_uri())
    settings.cache_clear()
    run_id = plan([{"id": "large", "input": "a" * (LARGE + 1)}, "small"])
    async with open_run(run_id) as context:
        await call_target(context, await context.begin(Batch(0, 2)))
        await context.finish("interrupted")
    resume_run(store, run_id)
    async with open_run(run_id) as context:
        await run_checks_of_batch(context, await context.begin(Batch(0, 2)))
    assert store.results.has_blobs(run_id)
    assert store.results.progress(run_id).passed == 2


def test_cases_that_wait_on_disk_are_not_validated_again(seen: Counter[str]) -> None:
    cases = [TestCase.model_validate({"id": str(number), "input": number, "checks": [OWN]}) for number in range(3)]
    assert list(CasesOnDisk(cases)) == cases
    assert seen["validate"] == 3
