"""Recorded outputs stand in for a live system."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from fepflow.calls.base import Target as OpenTarget
from fepflow.calls.base import output_hash, totals_of
from fepflow.calls.client import RetryPolicy, TargetClient
from fepflow.calls.factory import open_target
from fepflow.errors import InputError, TargetError
from fepflow.protocol.test_case import TestCase
from fepflow.suite.target import Target
from tests.fepflow.calls.conftest import ask, ignore_retries

FIRST, SECOND = TestCase(id="a", input=1), TestCase(id="2", input=2)


@pytest.fixture
def opened(tmp_path: Path) -> Any:
    def opened(records: list[Any], *, cases: tuple[str, ...] = ("a", "2"), **recorded: Any) -> OpenTarget:
        (tmp_path / "outputs.jsonl").write_text("\n".join(json.dumps(record) for record in records), encoding="utf-8")
        config = Target.model_validate({"recorded": {"path": "outputs.jsonl", **recorded}})
        return open_target(config, folder=tmp_path, case_ids=lambda: cases)

    return opened


async def test_records_belong_to_the_cases_in_order(opened: Any) -> None:
    target = opened([{"value": "one"}, {"value": None}])
    assert (await target.call(target.render(FIRST))).value == "one"
    assert (await target.call(target.render(SECOND))).value is None


async def test_records_belong_to_the_cases_by_id_whatever_their_order(opened: Any) -> None:
    records = [{"q": 2, "said": "two", "cost": 5}, {"q": "a", "said": "one"}, {"q": "other", "said": "none"}]
    target = opened(records, id="$.q", output="$.said", metadata={"cost": "$.cost"})
    first, second = await target.call(target.render(FIRST)), await target.call(target.render(SECOND))
    assert (first.value, first.metadata) == ("one", {})
    assert (second.value, second.metadata) == ("two", {"cost": 5})


async def test_an_actual_output_is_the_output_where_no_other_is_named(opened: Any) -> None:
    target = opened([{"actual_output": "one"}, {"value": 2, "actual_output": "two"}])
    assert [(await target.call(target.render(case))).value for case in (FIRST, SECOND)] == ["one", 2]


async def test_a_time_that_was_recorded_stands_in_place_of_the_one_that_reading_takes(opened: Any) -> None:
    target = opened([{"value": 1, "took": 90_000}, {"value": 2}], metadata={"latency_ms": "$.took"})
    first = await ask(target, FIRST, RetryPolicy(1, 1), ignore_retries)
    second = await ask(target, SECOND, RetryPolicy(1, 1), ignore_retries)
    assert (first.metadata or {})["latency_ms"] == 90_000
    assert not {"latency_ms", "last_attempt_ms"} & (second.metadata or {}).keys(), "nobody knows how long it took"


def test_by_order_the_numbers_must_agree(opened: Any) -> None:
    with pytest.raises(InputError, match=r"outputs\.jsonl: holds 3 records, but there are 2 test cases"):
        opened([{"value": 1}] * 3)


async def test_a_case_without_a_record_is_a_missing_output(opened: Any) -> None:
    target = opened([{"id": "a", "value": 1}], id="$.id")
    with pytest.raises(TargetError, match=r"no record for this test case \(by \$\.id\)") as raised:
        target.render(SECOND)
    assert (raised.value.kind, raised.value.retryable) == ("missing_output", False)
    output = await ask(target, SECOND, RetryPolicy(5, 1), ignore_retries)
    assert output.failure is not None
    assert output.metadata is not None
    assert output.metadata["attempts"] == 1


async def test_records_of_repeats_answer_their_repeats_and_one_that_lacks_is_a_missing_output(opened: Any) -> None:
    records = [{"id": "a", "n": 2, "value": "second"}, {"id": "a", "n": "1", "value": "first"}]
    target = opened([*records, {"id": "2", "n": 2, "value": "only"}], id="$.id", repeat="$.n")
    client = TargetClient(target, RetryPolicy(1, 1))
    asked = [(FIRST, 0), (FIRST, 1), (SECOND, 0), (SECOND, 1)]
    outputs = [(await client.ask(case, repeat)).output() for case, repeat in asked]
    assert [output.value for output in outputs] == ["first", "second", None, "only"]
    assert "no record for repeat 1 of this test case" in str(outputs[2].failure)
    other = opened([*records, {"id": "2", "n": 2, "value": "other"}], id="$.id", repeat="$.n")
    assert output_hash(target, FIRST, 0) == output_hash(other, FIRST, 0)
    assert output_hash(target, SECOND, 1) != output_hash(other, SECOND, 1)


@pytest.mark.parametrize("number", [0, -1, 1.5, True, None, "x", [1]])
def test_a_repeat_is_a_number_from_one_and_stands_once(opened: Any, number: Any) -> None:
    with pytest.raises(InputError, match=r"outputs\.jsonl:1: has no number from 1 at \$\.n"):
        opened([{"id": "a", "n": number, "value": 1}], id="$.id", repeat="$.n")
    with pytest.raises(InputError, match=r"outputs\.jsonl:2: the id 'a' with repeat 1 stands in line 1 already"):
        opened([{"id": "a", "n": 1, "value": 1}] * 2, id="$.id", repeat="$.n")
    with pytest.raises(ValueError, match="repeat needs id"):
        opened([], repeat="$.n")


async def test_a_record_without_an_output_says_where_it_is_and_what_it_has(opened: Any) -> None:
    target = opened([{"value": 1}, {"text": 2}])
    with pytest.raises(TargetError, match=r"outputs\.jsonl:2 has nothing at \$\.value.*the keys text"):
        target.render(SECOND)


@pytest.mark.parametrize(
    "failed",
    [
        {"value": None, "metadata": {"error": {"type": "timeout_error", "message": "no answer in 30 s"}}},
        {"value": None, "metadata": {"error": "no answer in 30 s"}},
        {"value": None, "error": "no answer in 30 s"},
        {"value": "", "error": "no answer in 30 s"},
        {"metadata": {"error": {"message": "no answer in 30 s"}}},
        {"value": {"steps": []}, "metadata": {"error": {"message": "no answer in 30 s", "partial": True}}},
    ],
)
async def test_a_record_of_a_failed_call_is_an_error_and_no_answer_of_null(opened: Any, failed: dict[str, Any]) -> None:
    target = opened([failed, {"value": "one", "metadata": {"error": "of the agent's tool"}}])
    output = await ask(target, FIRST, RetryPolicy(5, 1), ignore_retries)
    assert output.failure is not None
    assert output.failure["message"] == "outputs.jsonl:1 records a call that failed: no answer in 30 s"
    assert (await target.call(target.render(SECOND))).value == "one"
    for outputs, path in [(failed, "$.context.output.value"), ([failed], "$.context.output[0].value")]:
        reported = opened([{"context": {"output": outputs}}, {"context": {"output": outputs}}], output=path)
        with pytest.raises(TargetError, match="records a call that failed: no answer in 30 s"):
            reported.render(FIRST)


async def test_negative_costs_are_left_out_as_every_limit_on_them_would_pass(opened: Any) -> None:
    paths = {name: f"$.{name}" for name in ("tokens", "usd", "change")}
    target = opened([{"value": 1, "tokens": -1, "usd": 0, "change": -1}, {"value": 2, "usd": -0.5}], metadata=paths)
    answers = [await target.call(target.render(case)) for case in (FIRST, SECOND)]
    assert [answer.metadata for answer in answers] == [{"usd": 0, "change": -1}, {}]
    steps = [{"usage": {"input_tokens": -1, "output_tokens": 9}}, {"usage": {"total_tokens": 5, "usd": -1}}]
    assert totals_of(steps) == {"usage": {"output_tokens": 9, "total_tokens": 5}, "tokens": 5}


def test_an_output_path_that_fits_no_record_is_refused_at_once(opened: Any) -> None:
    with pytest.raises(InputError, match=r"outputs\.jsonl:1: no record has anything at \$\.answer.*the keys value"):
        opened([{"value": 1}, {"value": 2}], output="$.answer")


def test_a_duplicate_id_names_both_lines(opened: Any) -> None:
    with pytest.raises(InputError, match=r"outputs\.jsonl:2: the id 'a' stands in line 1 already"):
        opened([{"id": "a", "value": 1}, {"id": "a", "value": 2}], id="$.id")


def test_a_record_without_an_id_is_named(opened: Any) -> None:
    with pytest.raises(InputError, match=r"outputs\.jsonl:2: has no id at \$\.id"):
        opened([{"id": "a", "value": 1}, {"value": 2}], id="$.id")


def test_the_content_hash_follows_what_the_record_says(opened: Any) -> None:
    first = output_hash(opened([{"value": 1}, {"value": 2}]), FIRST, 1)
    assert output_hash(opened([{"value": 1}, {"value": 3}]), FIRST, 1) == first
    assert output_hash(opened([{"value": 9}, {"value": 2}]), FIRST, 1) != first


def test_a_file_outside_of_the_suite_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "suite").mkdir()
    (tmp_path / "secret.jsonl").write_text('{"value": 1}')
    config = Target.model_validate({"recorded": {"path": "../secret.jsonl"}})
    with pytest.raises(InputError, match="leads out of the suite's folder"):
        open_target(config, folder=tmp_path / "suite", case_ids=lambda: ["a"])
    target = open_target(config, folder=tmp_path / "suite", case_ids=lambda: ["a"], roots=[tmp_path])
    assert target.render(FIRST) == {"value": 1, "metadata": {}}


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    config = Target.model_validate({"recorded": {"path": "nowhere.jsonl"}})
    with pytest.raises(InputError, match=r"nowhere\.jsonl: there is no such file"):
        open_target(config, folder=tmp_path, case_ids=list)


@pytest.mark.skipif("FEPFLOW_TEST_DATA" not in os.environ, reason="FEPFLOW_TEST_DATA names no folder with test data")
async def test_the_recorded_answers_of_gsm8k() -> None:
    folder = Path(os.environ["FEPFLOW_TEST_DATA"]) / "data" / "gsm8k"
    recorded = {
        "path": "solutions.jsonl",
        "output": "$['175b_verification'].solution",
        "metadata": {"correct": "$['175b_verification'].is_correct"},
    }
    ids = [str(number) for number in range(1319)]
    config = Target.model_validate({"recorded": recorded})
    target = open_target(config, folder=folder, case_ids=lambda: ids)
    answers = [await target.call(target.render(TestCase(id=case_id, input=None))) for case_id in ids]
    assert answers[0].value.endswith("A: 18")
    assert sum(answer.metadata["correct"] for answer in answers) == 742
