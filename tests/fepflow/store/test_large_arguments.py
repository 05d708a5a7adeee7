from __future__ import annotations

import asyncio
import hashlib
from typing import Any

import pytest

from fepflow.checks.core.checked_output import run_checks
from fepflow.checks.core.compiled import compile_checks
from fepflow.protocol.check import Check
from fepflow.protocol.content_hash import canonical_json
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.large_arguments import leave_out_large
from fepflow.store.records import NewCheckResult, NewOutput, RunRecord
from fepflow.store.store import Store

RUN = RunRecord(id="run-1", name="weather", suite={}, repeats=1)
LONG = "The weather is fine. " * 10_000
VALUES: dict[str, Any] = {
    "a text": LONG,
    "a text with what JSON escapes": "\ud800\0é" * 40_000,
    "a list": [{"word": word} for word in LONG.split()[:4_000]],
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


def declarations() -> list[Check | None]:
    return [*CHECKS]


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_large_argument_is_its_hash_and_the_path_that_leads_to_it(store: Store, value: Any) -> None:
    case, output = TestCase(id="one", input="?", expected=value), Output(value=value)
    store.runs.create(RUN, [case])
    results = asyncio.run(results_of(case, output))
    small = leave_out_large(results, declarations())
    rows = [
        NewCheckResult(0, 0, result.check_id, "a" * 64, row, result.passed)
        for result, row in zip(results, small, strict=True)
    ]
    store.results.write(RUN.id, [NewOutput(0, 0, "a" * 64, output)], rows)

    stored = next(store.results.by_case(RUN.id))
    assert stored.output == output
    found = {result.check_id: result for result in stored.checks}
    assert found == {row.check_id: row.model_validate_json(row.model_dump_json()) for row in small}
    for path, argument in (("$.output.value", "actual"), ("$.test_case.expected", "expected")):
        hashed = hashlib.sha256(canonical_json(value)).hexdigest()
        assert (found["equals"].resolved_arguments or {})[argument] == {"jsonpath": path, "value_sha256": hashed}
    assert all(len(row.model_dump_json()) < 1_500 for row in small)


def test_literals_and_values_inside_of_arguments_are_left_out_too() -> None:
    case, output = TestCase(id="one", input="?"), Output(value={"a": LONG, "b": [LONG, "short"]})
    checks = [
        Check(type="contains", arguments={"text": "$.output.value.a", "phrases": ["fine", "$.output.value.b[0]"]}),
        Check(type="contains", arguments={"text": "$.output.value.b[1]", "phrases": [LONG]}),
        Check(type="is_empty", arguments={"value": "$..*"}),
        Check(type="is_empty", arguments={"value": "$.output.value['b'][:]"}),
    ]
    answers: Any = run_checks(case, output, compile_checks(checks))
    one, two, three, four = [
        result.resolved_arguments or {} for result in leave_out_large(asyncio.run(_awaited(answers)), [*checks])
    ]
    assert one["phrases"].pop("value_sha256")
    assert one["phrases"] == {"argument": "$.arguments.phrases", "jsonpaths": ["$.output.value.b[0]"]}
    assert two["text"] == {"jsonpath": "$.output.value.b[1]", "value": "short"}
    assert two["phrases"].keys() == {"argument", "value_sha256"}
    assert three["value"].keys() == four["value"].keys() == {"jsonpath", "value_sha256"}


async def _awaited(answers: Any) -> Any:
    return answers if isinstance(answers, list) else await answers


def test_small_arguments_stay_where_they_are() -> None:
    case, output = TestCase(id="one", input="?", expected="yes"), Output(value="yes")
    results = [result for result in asyncio.run(results_of(case, output)) if result.check_id != "exact_match"]
    assert all(left is result for left, result in zip(leave_out_large(results), results, strict=True))


def test_results_of_different_large_values_have_different_hashes() -> None:
    case = TestCase(id="one", input="?", expected="yes")
    hashes = set()
    for value in (LONG, LONG + "!"):
        (row, *_) = leave_out_large(asyncio.run(results_of(case, Output(value=value))))
        assert row.resolved_arguments is not None
        hashes.add(row.resolved_arguments["actual"]["value_sha256"])
    assert len(hashes) == 2
