"""Options that choose among a suite's cases: each leaves the right ones, and says on the run's row that it did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fepflow.diagnose.validate_suite import validate_suite
from fepflow.errors import UserError
from fepflow.store.store import Store
from fepflow.tasks.batches import Batch
from fepflow.tasks.call_target import call_target
from fepflow.tasks.create_run import RunOptions, create_run
from fepflow.tasks.open_run import open_run
from fepflow.tasks.run_checks import run_checks_of_batch
from tests.tasks.conftest import Agent, Plan

IDS = ["refund-1", "refund-2", "ship-1", "ship[1]", "other"]


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    document = {
        "name": "s",
        "target": {"http": {"url": "http://127.0.0.1:9/"}},
        "test_cases": [{"id": name, "input": name, "metadata": {"long": len(name) > 5}} for name in IDS],
        "checks": [{"type": "is_empty", "arguments": {"value": "$.output.value"}}],
    }
    (tmp_path / "suite.json").write_text(json.dumps(document))
    return tmp_path / "suite.json"


@pytest.mark.parametrize(
    ("options", "left", "filters"),
    [
        ({"case_patterns": ["refund-*"]}, ["refund-1", "refund-2"], ["--case refund-*"]),
        ({"case_patterns": ["other", "ship-?"]}, ["ship-1", "other"], ["--case other", "--case ship-?"]),
        ({"case_patterns": ["ship[1]"]}, ["ship[1]"], ["--case ship[1]"]),
        ({"first": 2}, ["refund-1", "refund-2"], ["--first 2"]),
        ({"first": 2, "metadata": {"long": "true"}}, IDS[:2], ["--filter-metadata long=true", "--first 2"]),
        ({"first": 1, "case_patterns": ["ship*"]}, ["ship-1"], ["--case ship*", "--first 1"]),
    ],
)
async def test_what_is_left_is_run_and_said(
    store: Store, suite: Path, options: dict[str, Any], left: list[str], filters: list[str]
) -> None:
    run = create_run(store, validate_suite(suite), RunOptions(**options)).run
    assert [case.id for case in store.runs.cases(run.id)] == left
    assert run.filtered == f"{len(left)} of 5 test cases ({', '.join(filters)})"


async def test_options_that_leave_every_case_leave_the_whole_suite(store: Store, suite: Path) -> None:
    run = create_run(store, validate_suite(suite), RunOptions(first=5, case_patterns=["*"])).run
    assert (run.filtered, run.n_cases) == (None, 5)


async def test_an_id_that_no_case_has_is_refused_with_a_similar_one(store: Store, suite: Path) -> None:
    with pytest.raises(UserError, match=r"--case refnd-1: no test case has such an id .did you mean refund-1"):
        create_run(store, validate_suite(suite), RunOptions(case_patterns=["other", "refnd-1"]))


async def test_only_cases_in_error_are_run_again_and_not_those_that_failed(
    agent: Agent, plan: Plan, store: Store
) -> None:
    agent.wrong = {"wrong"}
    cases = [{"id": word, "input": word, "expected": word} for word in ("right", "wrong", "fail 9")]
    first = plan(cases)
    async with open_run(first) as context:
        work = await context.begin(Batch(0, 3))
        await call_target(context, work)
        await run_checks_of_batch(context, work)
    again = plan(cases, options=RunOptions(errors_in=first))
    assert [case.id for case in store.runs.cases(again)] == ["fail 9"]
    assert store.runs.get(again).filtered == f"1 of 3 test cases (--errors {first[:8]})"
