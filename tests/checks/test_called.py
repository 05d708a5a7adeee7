"""A function in place of outputs, several times for each case; and one answer asserted."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

import fepflow
from fepflow import Check, ContainsCheck, InputError, Output, TestCase, assert_case

SAME = {"type": "exact_match", "arguments": {"actual": "$.output.value", "expected": "$.test_case.expected"}}
CASES = [{"id": "a", "input": [1], "expected": 1}, {"id": "b", "input": [2], "expected": 3}]


def test_a_function_is_called_for_each_repeat_of_each_case() -> None:
    calls: list[Any] = []

    def answer(numbers: list[int]) -> int:
        calls.append(list(numbers))
        return numbers.pop()

    results = fepflow.evaluate(CASES, answer, [SAME], repeats=3)
    assert calls == [[1]] * 3 + [[2]] * 3, "what a call does to its input is not seen by the next"
    assert [(row.execution_context.test_case.id, row.metadata, row.passed) for row in results.results] == [
        ("a", {"repeat": 1}, True),
        ("a", {"repeat": 2}, True),
        ("a", {"repeat": 3}, True),
        ("b", {"repeat": 1}, False),
        ("b", {"repeat": 2}, False),
        ("b", {"repeat": 3}, False),
    ]
    assert results.results[0].execution_context.test_case.input == [1]
    assert (results.pass_rate, results.estimate().counts.expected) == (0.5, 6)
    assert results.estimate().low < 0.1, "three repeats of two cases are no six cases"


async def test_an_async_function_may_take_the_case_and_is_called_side_by_side() -> None:
    under_way = most = 0

    async def answer(test_case: TestCase) -> Output:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.01)
        under_way -= 1
        return Output(value=test_case.expected, metadata={"tokens": 3})

    results = await fepflow.evaluate_async(CASES * 1, answer, [SAME], repeats=20)
    assert (results.pass_rate, most) == (1, 16)
    assert results.results[0].execution_context.output.metadata == {"tokens": 3}


def test_what_the_function_raises_is_an_error_of_its_case_and_no_fail() -> None:
    def answer(numbers: list[int]) -> int:
        return 1 // (numbers[0] - 1)

    first, second = fepflow.evaluate(
        CASES, answer, [{"type": "exact_match", "arguments": {"actual": "$.output.value", "expected": 1}}]
    ).results
    assert (first.status, second.status, second.passed) == ("error", "completed", True)
    assert first.metadata is None
    failure = first.execution_context.output.failure
    assert failure["message"].startswith("ZeroDivisionError: ")
    assert "(test_called.py:" in failure["message"]


NOT_EMPTY = {"type": "is_empty", "value": "$.output.value", "negate": True}


async def late(number: Any) -> Any:
    return number


async def awaits_what_was_cancelled(number: Any) -> None:
    sleeping = asyncio.create_task(asyncio.sleep(60))
    sleeping.cancel()
    await sleeping


async def fails_in_a_task_group(number: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(json.loads, "{"))


async def streams(number: Any) -> AsyncIterator[str]:
    yield "a"


class MuteError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def raises_what_has_no_text(number: Any) -> None:
    raise MuteError


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda number: sys.exit(0), r"SystemExit: 0 \(test_called.py:\d+\)"),
        (lambda number: asyncio.run(awaits_what_was_cancelled(number)), r"CancelledError: no message .*"),
        (awaits_what_was_cancelled, r"CancelledError: no message \(test_called.py:\d+\)"),
        (fails_in_a_task_group, r"JSONDecodeError: Expecting .* \(test_called.py:\d+\)"),
        (lambda number: json.loads("{"), r"JSONDecodeError: Expecting .* \(test_called.py:\d+\)"),
        (raises_what_has_no_text, r"MuteError: no message \(test_called.py:\d+\)"),
        (streams, "TypeError: the function returned an async generator: .*"),
        (
            lambda number: asyncio.sleep(0, late(number)),
            "TypeError: the function returned a coroutine that nobody awaited: .*",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_what_gives_no_answer_is_an_error_that_names_the_cause(answer: Callable[..., Any], says: str) -> None:
    (result,) = fepflow.evaluate([1], answer, [NOT_EMPTY]).results
    assert (result.status, result.passed) == ("error", False)
    failure = result.execution_context.output.failure
    assert failure is not None
    assert re.fullmatch(says, failure["message"])


def test_an_answer_that_was_not_awaited_is_refused() -> None:
    pending = [late(1), late(2)]
    with pytest.raises(InputError, match=r"outputs\[1\]: is a coroutine that nobody awaited"):
        fepflow.evaluate([1, 2], pending, [NOT_EMPTY])
    with pytest.raises(InputError, match=r"outputs\[0\]: is a list_iterator that nobody has read"):
        fepflow.evaluate([1], [iter(["an", "answer"])], [NOT_EMPTY])
    with pytest.raises(InputError, match="is a coroutine that nobody awaited"):
        assert_case(1, pending[0], [NOT_EMPTY])
    for coroutine in pending:
        coroutine.close()


def test_a_generator_is_read_whole_for_all_checks() -> None:
    def answer(parts: Any) -> Iterator[Any]:
        yield from parts

    texts, others = fepflow.evaluate([["a", "b"], ["a", 1]], answer, [NOT_EMPTY, NOT_EMPTY]).results
    assert [row.execution_context.output.value for row in (texts, others)] == ["ab", ["a", 1]]


def test_what_a_function_changes_in_its_case_is_seen_by_no_check() -> None:
    def answer(test_case: TestCase) -> int:
        test_case.input.append(1)
        test_case.expected = len(test_case.input)
        return len(test_case.input)

    results = fepflow.evaluate(CASES, answer, [SAME], repeats=2)
    assert [row.passed for row in results.results] == [False] * 4
    assert [row.execution_context.output.value for row in results.results] == [2] * 4


async def in_a_loop(answer: Callable[..., Any]) -> Any:
    return fepflow.evaluate([1, 2], answer, [NOT_EMPTY])


def test_a_sync_function_may_run_a_loop_of_its_own_also_below_a_running_one() -> None:
    def answer(number: int) -> int:
        return int(asyncio.run(late(number)))

    assert fepflow.evaluate([1, 2], answer, [NOT_EMPTY]).pass_rate == 1
    assert asyncio.run(in_a_loop(answer)).pass_rate == 1


def test_what_cannot_be_repeated_is_refused_before_anything_is_called() -> None:
    arguments: Any
    for arguments, says in [
        ({"outputs": [1, 2], "repeats": 2}, "outputs that are there cannot be repeated"),
        ({"outputs": len, "repeats": 0}, "0 is not a number of repeats"),
        ({"outputs": len, "test_cases": []}, "there are no test cases"),
        ({"outputs": len, "test_cases": [CASES[0], CASES[0]]}, "appears twice"),
        ({"outputs": len, "test_cases": "cases.jsonl"}, "test_cases: must be a list, not a single str"),
        ({"outputs": len, "test_cases": {"input": [1]}}, "test_cases: must be a list, not a single dict"),
        ({"outputs": "ab"}, "outputs: must be a list, not a single str"),
        ({"outputs": len, "checks": {"type": "exact_match"}}, "checks: must be a list, not a single dict"),
    ]:
        with pytest.raises(InputError, match=says):
            fepflow.evaluate(**{"test_cases": CASES, "checks": [SAME], **arguments})


def test_an_answer_that_passes_is_returned_with_its_results() -> None:
    result = assert_case("2 + 2?", "4", [SAME], expected="4")
    assert result.passed
    assert assert_case("2 + 2?", Output(value="It is 4"), [ContainsCheck(text="$.output.value", phrases="4")]).passed


@pytest.mark.parametrize(
    ("output", "checks", "says"),
    [
        ("5", [SAME], 'exact_match: got "5", wanted "4"\n  input:  "2 \\+ 2?"\n  output: "5"'),
        (
            "5",
            [Check(type="exact_match", arguments={"actual": "$.output.x", "expected": 1})],
            ": jsonpath_error: ",
        ),
        (Output(value=None, metadata={"error": {"message": "down"}}), [SAME], "the target gave no output: down"),
        (
            "5",
            [Check(type="custom_function", arguments={"validation_function": lambda: {"score": 0.4}})],
            "neither pass nor fail",
        ),
    ],
)
def test_an_answer_that_does_not_pass_says_why(output: Any, checks: list[Any], says: str) -> None:
    with pytest.raises(AssertionError, match=says.replace("?", "[?]")):
        assert_case("2 + 2?", output, checks, expected="4")


def test_an_assertion_without_checks_is_refused() -> None:
    with pytest.raises(InputError, match="there are no checks"):
        assert_case("2 + 2?", "4", [])
