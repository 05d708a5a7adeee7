from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import text

from checks.core.compiled import compile_checks
from checks.engine import run_checks
from fepflow.protocol.check import Check
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.large_arguments import leave_out_large
from fepflow.store.records import NewCheckResult, NewOutput, NewRun
from fepflow.store.store import Store

RUN = NewRun(id="run-1", name="weather", suite={}, suite_path=None, repeats=1)
LONG = "The weather is fine. " * 10_000
VALUES: dict[str, Any] = {
    "a text": LONG,
    "a text with what JSON escapes": "\ud800\0é" * 40_000,
    "a list": [{"word": word} for word in LONG.split()],
    "an object": {"answer": LONG, "tokens": 7},
}
CHECKS = [
    Check(type="equals", arguments={"actual": "$.output.value", "expected": "$.test_case.expected"}),
    Check(type="attribute_exists", arguments={"path": "$.output.value.answer"}),
    Check(type="is_empty", arguments={"value": "$..answer"}),
    Check(type="exact_match", arguments={"actual": "$.test_case.id", "expected": LONG}),
]


async def results_of(case: TestCase, output: Output) -> list[CheckResult]:
    answers = run_checks(case, output, compile_checks(CHECKS))
    return answers if isinstance(answers, list) else await answers


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_large_arguments_come_back_as_they_were(store: Store, value: Any) -> None:
    case, output = TestCase(id="one", input="?", expected=value), Output(value=value)
    store.create_run(RUN, [case])
    results = asyncio.run(results_of(case, output))
    stored = leave_out_large(results, case, output)
    rows = [
        NewCheckResult(0, 0, result.check_id, "a" * 64, row, result.passed)
        for result, row in zip(results, stored, strict=True)
    ]

    store.write(RUN.id, [NewOutput(0, 0, "a" * 64, output)], rows)

    found = {result.check_id: result for result in next(store.results(RUN.id)).checks}
    assert found == {result.check_id: result.model_validate_json(result.model_dump_json()) for result in results}


def test_a_large_argument_is_stored_once(store: Store) -> None:
    case, output = TestCase(id="one", input="?", expected="no"), Output(value=LONG)
    store.create_run(RUN, [case])
    (result, *_) = asyncio.run(results_of(case, output))
    (row,) = leave_out_large([result], case, output)

    store.write(RUN.id, [NewOutput(0, 0, "a" * 64, output)], [NewCheckResult(0, 0, "equals", "a" * 64, row, False)])

    with store._database.reading() as connection:
        assert connection.execute(text("SELECT max(length(result)) FROM check_result")).scalar_one() < 1_000


def test_small_arguments_stay_where_they_are() -> None:
    case, output = TestCase(id="one", input="?", expected="yes"), Output(value="yes")
    results = asyncio.run(results_of(case, output))
    assert leave_out_large(results, case, output) is results


def test_what_is_not_the_value_at_its_path_stays() -> None:
    case, output = TestCase(id="one", input="?", expected="yes"), Output(value=LONG)
    shown = {"text": {"jsonpath": "$.output.value", "value": LONG.upper()}, "limit": {"value": LONG}}
    (result, *_) = asyncio.run(results_of(case, output))
    changed = result.model_copy(update={"resolved_arguments": shown})
    assert leave_out_large([changed], case, output) == [changed]


def test_results_of_different_large_values_have_different_hashes() -> None:
    case = TestCase(id="one", input="?", expected="yes")
    hashes = set()
    for value in (LONG, LONG + "!"):
        output = Output(value=value)
        (row, *_) = leave_out_large(asyncio.run(results_of(case, output)), case, output)
        assert row.resolved_arguments is not None
        hashes.add(row.resolved_arguments["actual"]["value_sha256"])
    assert len(hashes) == 2
