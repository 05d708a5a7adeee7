"""What is printed of a run beside its tables."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from fepflow.cli.run_view import first_inconclusive
from fepflow.protocol.test_case import TestCase
from fepflow.statistics.estimate import RANGE_UNKNOWN
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.verdict.metric_rules import UNCHECKED

SETTLES = "m: 0.9 reaches the minimum, but …, and about 28 test cases like these would settle it in 4 of 5 runs."


def finished(store: Store, number: int, outcome: Any = "inconclusive", reason: str = SETTLES, **more: Any) -> RunRecord:
    run_id = f"{number:08x}feedbeef"
    suite_name, metrics = more.pop("name", "s"), more.pop("metrics", [])
    of_run = {name: more.pop(name, None) for name in ("options", "rescored_from", "suite_path")}
    suite = {"name": "s", "gate": {"min": {"m": 0.65}, **more}}
    store.runs.create(
        RunRecord(id=run_id, name=suite_name, suite=suite, repeats=1, **of_run),
        [TestCase(id=str(n), input=n) for n in range(10)],
    )
    store.leases.acquire(run_id, "me", 30)
    store.leases.finish(run_id, "me", "completed", outcome=outcome, verdict={"reasons": [reason]}, metrics=metrics)
    return store.runs.get(run_id)


def test_the_first_inconclusive_run_of_a_suite_says_once_what_helps(store: Store) -> None:
    finished(store, 1, "pass")
    first = "\n".join(first_inconclusive(store, finished(store, 2)))
    helps = ["18 more test cases like these, 28 in all", "{inconclusive: allow}", "{top_up: {max_repeats: 5}}"]
    places = [first.index(text) for text in helps]
    assert places == sorted(places), "the most useful first"
    assert list(first_inconclusive(store, finished(store, 3))) == []
    assert list(first_inconclusive(store, finished(store, 4, "fail"))) == []


def test_a_run_of_chosen_cases_is_no_first_and_a_rescored_run_wants_a_new_one(store: Store) -> None:
    chosen = finished(store, 1, options={"filters": ["--first 3"], "suite_cases": 12})
    assert chosen.filtered
    assert list(first_inconclusive(store, chosen)) == []
    first = finished(store, 2, reason="m: 1 never came.", rescored_from=chosen.id, suite_path="my suite.yaml")
    text = "\n".join(first_inconclusive(store, first))
    assert "  - a new run, as nobody was asked this time: fepflow run 'my suite.yaml'" in text
    assert "--resume" not in text


def test_results_that_never_came_are_advised_and_not_more_cases(store: Store) -> None:
    never_came = [{"n_error": 0, "n_completed": 4, "n_expected": 12}]
    late = finished(store, 1, reason="m: 8 never came.", metrics=never_came)
    lines = list(first_inconclusive(store, late))
    assert lines[1:] == ["  - the results that are missing, once their cause is gone: fepflow run --resume 00000001"]
    reason = "8 of 12 outputs are missing: the run reached the budget of 20 tokens (budget.tokens; 21 spent)."
    spent = "\n".join(first_inconclusive(store, finished(store, 2, name="b", reason=reason, metrics=never_came)))
    assert ("--resume" in spent, "larger budget" in spent) == (False, True)


def test_what_a_suite_has_already_is_not_advised(store: Store) -> None:
    run = finished(store, 1, reason="m: no value.", inconclusive="allow", top_up={"max_repeats": 3})
    text = "\n".join(first_inconclusive(store, run))
    assert "  - more test cases: fepflow plan says how many" in text
    assert "allow" not in text
    assert "top_up" not in text


def test_more_cases_are_not_advised_where_no_number_of_them_would_help(store: Store) -> None:
    lines = first_inconclusive(store, finished(store, 1, reason=f"m: 0.9, but {RANGE_UNKNOWN}: declare one."))
    text = "\n".join(Text.from_markup(line).plain for line in lines)
    assert "  - range: [least, most] of that metric" in text
    assert "more test cases" not in text
    assert "top_up" not in text
    text = "\n".join(first_inconclusive(store, finished(store, 2, name="u", reason=f"2 test cases have {UNCHECKED}.")))
    assert "  - checks for these test cases" in text
    assert "more test cases" not in text
