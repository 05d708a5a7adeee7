"""Lesson 4: an evaluation is a pytest test.

A decorated function answers test cases, many times; the test passes if enough of the answers do. Each function below is
such a test, and pytest runs it as any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from fepflow import ContainsCheck, ExactMatchCheck, Output, TestCase, ThresholdCheck
from fepflow.pytest import evaluate

pytest_plugins = ["pytester"]  # for the last lesson, which runs pytest on a test that fails

CAPITALS = {"France": "Paris", "Japan": "Tokyo"}
CASES = [TestCase(id=country.lower(), input=country, expected=city) for country, city in CAPITALS.items()]
NAMES_THE_CAPITAL = ContainsCheck(text="$.output.value", phrases="$.test_case.expected")


@evaluate(CASES, [NAMES_THE_CAPITAL])
def test_a_function_answers_every_case(test_case: TestCase) -> str:
    return f"It is {CAPITALS[test_case.input]}."


@evaluate(CASES, [ThresholdCheck(value="$.output.metadata.tokens", max_value=100)])
def test_a_test_may_return_an_output_with_metadata(test_case: TestCase) -> Output:
    return Output(value=CAPITALS[test_case.input], metadata={"tokens": 12})


@pytest.fixture
def coin() -> Iterator[bool]:
    """Stands for a model that is right four times of five."""
    return iter([True, True, False, True, True] * 4)


@evaluate(CASES, [NAMES_THE_CAPITAL], samples=10, success_threshold=0.8)
def test_an_agent_need_not_be_right_every_time(test_case: TestCase, coin: Iterator[bool]) -> str:
    # The fixture is one object for all twenty calls.
    return CAPITALS[test_case.input] if next(coin) else "I do not know."


@evaluate(CASES, [NAMES_THE_CAPITAL], samples=10, success_threshold=0.6, pass_rule="sample")
def test_with_another_rule_a_sample_passes_only_with_all_its_cases(test_case: TestCase, coin: Iterator[bool]) -> str:
    return CAPITALS[test_case.input] if next(coin) else "I do not know."


@evaluate(CASES, [NAMES_THE_CAPITAL], samples=20, max_concurrency=8)
async def test_async_functions_are_called_concurrently(test_case: TestCase) -> str:
    await asyncio.sleep(0.001)
    return CAPITALS[test_case.input]


@pytest.mark.parametrize("spelling", [str.upper, str.lower])
@evaluate(CASES, [ExactMatchCheck(actual="$.output.value", expected="$.test_case.expected", case_sensitive=False)])
def test_parametrized_tests_are_evaluations_each(test_case: TestCase, spelling) -> str:
    return spelling(CAPITALS[test_case.input])


@evaluate(CASES, [NAMES_THE_CAPITAL], samples=5, success_threshold=0.9)
def test_an_exception_is_never_a_pass(test_case: TestCase, coin: Iterator[bool], request) -> str:
    if test_case.id == "france" and request.node.stash.setdefault(FIRST, True):
        request.node.stash[FIRST] = False
        raise ConnectionError("once, the agent is away")
    return CAPITALS[test_case.input]


FIRST: pytest.StashKey[bool] = pytest.StashKey()

FAILING = """
from fepflow import ContainsCheck, TestCase
from fepflow.pytest import evaluate

CASES = [TestCase(id="france", input="France", expected="Paris"), TestCase(id="japan", input="Japan", expected="Tokyo")]

@evaluate(CASES, [ContainsCheck(text="$.output.value", phrases="$.test_case.expected")], samples=2)
def test_capitals(test_case):
    return "It is Paris."
"""


def test_a_failure_shows_the_rate_and_what_was_compared(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(FAILING)

    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:hypothesispytest")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "2 of 4 results passed: 0.5 (95 % interval *), the threshold is 1.",
            '  2 × contains: "Tokyo" is not in: "It is Paris." (japan)',
            "Failed: 2 results of 1 test case",
            '  japan in 2 of 2 samples, input: "Japan"',
            '    contains, samples 1, 2; the first: "Tokyo" is not in: "It is Paris."',
        ]
    )
