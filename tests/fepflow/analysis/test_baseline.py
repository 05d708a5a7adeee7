"""A run beside another one: which one, and what has changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fepflow.analysis.comparison import base_of
from fepflow.analysis.regressions import _change, compare, find_baseline, why_none
from fepflow.errors import FepflowError, UserError
from fepflow.protocol.test_case import TestCase
from fepflow.services.comparisons import trend_up_to
from fepflow.store.records import Cause, RunRecord
from fepflow.store.store import Store
from fepflow.verdict.verdict import Outcome, Verdict
from tests.tasks.conftest import SAME, Agent, Plan

from .conftest import decided


def ended(
    store: Store,
    number: int,
    outcome: Outcome | None = "pass",
    name: str = "s",
    cases: int = 2,
    cause: Cause = "command",
    suite: str | None = "1",
    options: Any = None,
) -> RunRecord:
    """A run that has ended, of so many cases; without an outcome if that is None."""
    run_id = f"{number:032x}"
    run = RunRecord(id=run_id, name=name, suite={}, repeats=1, suite_hash=suite, cause=cause, options=options)
    store.runs.create(run, [TestCase(id=str(n), input=n) for n in range(cases)])
    store.leases.acquire(run_id, "me", 60)
    store.leases.finish(run_id, "me", "completed" if outcome else "cancelled", outcome=outcome)
    return store.runs.get(run_id)


def test_the_previous_run_is_the_newest_of_the_suite_with_a_verdict(store: Store) -> None:
    first, second = ended(store, 1), ended(store, 2)
    ended(store, 3, outcome=None)
    ended(store, 4, name="another")
    run = ended(store, 5)
    ended(store, 6)
    assert find_baseline(store, run, "previous") == second
    assert find_baseline(store, second, "previous") == first
    assert find_baseline(store, first, "previous") is None


def test_a_run_whose_cases_a_filter_chose_is_no_baseline_and_no_part_of_a_trend(store: Store) -> None:
    whole = ended(store, 1)
    filtered = ended(store, 2, options={"filters": ["--case a"], "suite_cases": 9})
    run = ended(store, 3, options={"sample": {"limit": 2, "seed": 0, "cases": 2, "of": 9}})
    assert find_baseline(store, run, "previous") == whole
    assert base_of(store, run, "previous").runs == [whole]
    for find in (find_baseline, base_of):
        with pytest.raises(FepflowError, match="cannot be a baseline: it has only 2 of 9 test cases"):
            find(store, run, filtered.id)
    assert store.runs.alike(filtered, 9) == []
    with pytest.raises(UserError, match="cannot be compared with earlier runs"):
        trend_up_to(store, filtered, "acc")


def test_only_runs_of_the_same_cases_suite_and_cause_are_compared(store: Store) -> None:
    nightly = ended(store, 1, cause="schedule")
    ended(store, 2, cases=1, cause="schedule")
    ended(store, 3, cause="command")
    ended(store, 4, cause="schedule", suite="2")
    assert find_baseline(store, ended(store, 5, cause="schedule"), "previous") == nightly
    assert find_baseline(store, ended(store, 6, cases=5), "previous") is None


def test_a_run_of_an_earlier_version_is_like_no_other(store: Store) -> None:
    old = ended(store, 1, suite=None)
    run = ended(store, 2, suite=None)
    assert find_baseline(store, run, "previous") is None
    assert why_none(store, run).endswith("it is of an earlier version, which did not note what it measured.")
    with pytest.raises(FepflowError, match="earlier version"):
        find_baseline(store, run, old.id)


def test_the_same_cases_in_another_order_are_the_same_set(store: Store) -> None:
    there, back = ([TestCase(id=str(n), input=n) for n in order] for order in (range(4), range(3, -1, -1)))
    for name, cases in (("there", there), ("back", back), ("other", [*there[:3], TestCase(id="3", input="x")])):
        store.runs.create(RunRecord(id=name, name="s", suite={}, repeats=1), cases)
    hashes = [store.runs.get(name).cases_hash for name in ("there", "back", "other")]
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize(
    ("now", "says"),
    [
        ({"cases": 3}, "it has other test cases (2 of its 2 are among the 3 of this run)"),
        ({"cases": 1}, "it has other test cases (1 of its 2 are among the 1 of this run)"),
        ({"suite": "2"}, "the suite has changed since (the code of its plugins)"),
        ({"cause": "schedule"}, "it was started another way (command, and this one: schedule)"),
    ],
)
def test_without_a_baseline_the_reason_is_given(store: Store, now: dict[str, Any], says: str) -> None:
    newest = ended(store, 1)
    run = ended(store, 2, **now)
    day = newest.created_at.strftime("%Y-%m-%d")
    assert why_none(store, run) == (
        f"No earlier run can be compared with. The newest is run 00000000 of {day}: {says}."
    )
    assert why_none(store, newest) == "There is no earlier run of the suite to compare with."


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


def test_only_a_fail_after_another_outcome_is_worse(store: Store) -> None:
    for number, then in enumerate(ORDER):
        base = ended(store, number, outcome=then)
        for now in ORDER:
            verdict = Verdict(outcome=now, gate="g", reasons=[], metrics=[])
            assert compare(verdict, base).worsened is (now == "fail" and then != "fail"), (then, now)


def test_a_difference_too_large_for_a_number_is_none(store: Store) -> None:
    assert _change("m", 1.7e308, -1.7e308).difference is None


async def test_a_suite_that_names_a_baseline_stores_the_verdict_beside_it(
    plan: Plan, store: Store, agent: Agent
) -> None:
    first = plan(["a", "b"], baseline="previous")
    before = await decided(store, first)
    assert (before.baseline, before.not_compared) == (None, "There is no earlier run of the suite to compare with.")
    agent.wrong = {"b"}
    second = plan(["a", "b"], baseline="previous", description="another text", target={"concurrency": 3})
    compared = (await decided(store, second)).baseline
    assert compared is not None
    assert (compared.run_id, compared.outcome, compared.worsened) == (first, "pass", True)
    day = store.runs.get(first).created_at.strftime("%Y-%m-%d")
    assert compared.summary == f"compared with run {first[:8]} of {day}, same suite, 2 of 2 cases"
    (change,) = compared.metrics
    assert (change.value, change.baseline, change.difference) == (0.5, 1.0, -0.5)
    assert store.runs.get(second).verdict["baseline"]["outcome"] == "pass"


@pytest.mark.parametrize(
    ("now", "says"),
    [
        ({"cases": ["a", "b", "c"]}, "it has other test cases (2 of its 2 are among the 3 of this run)"),
        ({"checks": [{**SAME, "id": "other"}]}, "the suite has changed since (checks)"),
        ({"gate": {"min": {"exact_match": 0.5}}, "repeats": 2}, "the suite has changed since (gate, repeats)"),
        ({"target": {"http": {"output": "$"}}}, "the suite has changed since (target)"),
    ],
)
async def test_a_changed_suite_or_cases_are_reported_instead_of_compared(
    plan: Plan, store: Store, now: dict[str, Any], says: str
) -> None:
    first = plan(["a", "b"])
    await decided(store, first)
    for baseline in ("previous", first[:12]):
        verdict = await decided(store, plan(**{"cases": ["a", "b"], "baseline": baseline, **now}))
        assert verdict.baseline is None
        assert verdict.not_compared is not None
        assert f"run {first[:8]} of " in verdict.not_compared
        assert says in verdict.not_compared


async def test_a_missing_baseline_does_not_prevent_the_verdict(
    plan: Plan, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    verdict = await decided(store, plan(["a", "b"], baseline="abcd1234"))
    assert (verdict.outcome, verdict.baseline) == ("pass", None)
    assert "There is no run 'abcd1234'" in (verdict.not_compared or "")
    assert "no baseline to compare with: There is no run 'abcd1234'" in caplog.text
