"""A run beside another one: which one, and what has changed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fepflow.errors import FepflowError
from fepflow.evalguard.verdict import Outcome, Verdict
from fepflow.protocol.test_case import TestCase
from fepflow.store.records import NewRun, RunRecord
from fepflow.store.store import Store
from tasks.baseline import compare, find_baseline
from tasks.batches import Batch
from tasks.call_target import call_target
from tasks.decide import decide_run
from tasks.run_checks import run_checks_of_batch
from tasks.runtime import open_runtime

from .conftest import Plan

WRONG = {"id": "b", "input": "b", "expected": "right"}


def ended(store: Store, number: int, outcome: Outcome | None = "pass", name: str = "s", cases: int = 2) -> RunRecord:
    """A run that has ended, of so many cases; without an outcome if that is None."""
    run_id = f"{number:032x}"
    store.create_run(NewRun(run_id, name, {}, None, 1), [TestCase(id=str(n), input=n) for n in range(cases)])
    store.acquire_lease(run_id, "me", 60)
    store.finish(run_id, "me", "completed" if outcome else "cancelled", outcome=outcome)
    return store.run(run_id)


def test_the_previous_run_is_the_newest_of_the_suite_with_a_verdict(store: Store) -> None:
    first, second = ended(store, 1), ended(store, 2)
    ended(store, 3, outcome=None)
    ended(store, 4, name="another")
    run = ended(store, 5)
    ended(store, 6)
    assert find_baseline(store, run, "previous") == second
    assert find_baseline(store, second, "previous") == first
    assert find_baseline(store, first, "previous") is None


def test_a_run_of_a_sample_is_compared_with_samples_and_a_new_size_with_the_newest(store: Store) -> None:
    whole, sample = ended(store, 1, cases=5), ended(store, 2, cases=1)
    assert find_baseline(store, ended(store, 3, cases=5), "previous") == whole
    assert find_baseline(store, ended(store, 4, cases=1), "previous") == sample
    assert find_baseline(store, ended(store, 5, cases=6), "previous") == store.run(f"{4:032x}")


def test_a_baseline_by_id_has_to_be_there_and_to_have_a_verdict(store: Store) -> None:
    run = ended(store, 0xABCD << 112)
    other = ended(store, 0xBCDE << 112, outcome=None)
    assert find_baseline(store, ended(store, 1), run.id) == run
    with pytest.raises(FepflowError, match="There is no run 'ffff'"):
        find_baseline(store, run, "ffff")
    with pytest.raises(FepflowError, match="has no verdict to compare with: it is cancelled"):
        find_baseline(store, run, other.id)
    with pytest.raises(FepflowError, match="is its own baseline"):
        find_baseline(store, run, run.id)


ORDER: Sequence[Outcome] = ("pass", "inconclusive", "fail")


@pytest.mark.parametrize("now", ORDER)
@pytest.mark.parametrize("then", ORDER)
def test_pass_is_better_than_inconclusive_and_that_than_fail(store: Store, now: Outcome, then: Outcome) -> None:
    verdict = Verdict(outcome=now, gate="g", reasons=[], metrics=[])
    assert compare(verdict, ended(store, 1, outcome=then)).worsened is (ORDER.index(now) > ORDER.index(then))


async def verdict_of(run_id: str) -> Verdict:
    async with open_runtime(run_id) as runtime:
        await call_target(runtime, Batch(0, 2))
        await run_checks_of_batch(runtime, Batch(0, 2))
        return await decide_run(runtime)


async def test_a_suite_that_names_a_baseline_stores_the_verdict_beside_it(plan: Plan, store: Store) -> None:
    first = plan(["a", "b"], baseline="previous")
    assert (await verdict_of(first)).baseline is None, "there is none yet"
    second = plan(["a", WRONG], baseline="previous")
    compared = (await verdict_of(second)).baseline
    assert compared is not None
    assert (compared.run_id, compared.outcome, compared.worsened) == (first, "pass", True)
    (change,) = compared.metrics
    assert (change.value, change.baseline, change.difference) == (0.5, 1.0, -0.5)
    assert store.run(second).verdict["baseline"]["outcome"] == "pass"


async def test_a_baseline_that_has_gone_keeps_no_run_from_its_verdict(
    plan: Plan, caplog: pytest.LogCaptureFixture
) -> None:
    verdict = await verdict_of(plan(["a", "b"], baseline="abcd1234"))
    assert (verdict.outcome, verdict.baseline) == ("pass", None)
    assert "no baseline to compare with: There is no run 'abcd1234'" in caplog.text
