"""The page about pytest: its examples pass, its tables are complete, its sample of a failure is what is printed."""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path

import pytest

from fepflow.pytest import evaluate

PAGE = (Path(__file__).parents[2] / "docs" / "pytest.md").read_text(encoding="utf-8")
INI = "[pytest]\nasyncio_default_fixture_loop_scope = function\n"
WITHOUT = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-p", "no:schemathesis")

SAMPLE = """
from fepflow import ContainsCheck, TestCase
from fepflow.pytest import evaluate
import pytest

CASES = [TestCase(id="france", input="France", expected="Paris"), TestCase(id="japan", input="Japan", expected="Tokyo")]

@pytest.fixture
def answers():
    return iter(["Kyoto", "Tokyo", "Kyoto", "Kyoto"])

@evaluate(
    CASES,
    [ContainsCheck(text="$.output.value", phrases="$.test_case.expected")],
    samples=5,
    success_threshold=0.9,
)
def test_capitals(test_case, answers):
    if test_case.id == "france":
        return "The capital of France is Paris."
    answer = next(answers, None)
    if answer is None:
        raise ConnectionError("the agent is away")
    return f"The capital of Japan is {answer}."
"""


def test_every_argument_of_the_decorator_is_documented() -> None:
    for name in signature(evaluate).parameters:
        assert f"`{name}`" in PAGE, name


def test_the_python_examples_pass(pytester: pytest.Pytester) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert blocks
    pytester.makeini(INI)
    pytester.makepyfile("\n\n".join(blocks))
    result = pytester.runpytest_inprocess(*WITHOUT)
    result.assert_outcomes(passed=5)  # one of them is parametrized


def test_the_failure_on_the_page_is_what_is_printed(pytester: pytest.Pytester) -> None:
    pytester.makeini(INI)
    pytester.makepyfile(test_agent=SAMPLE)
    printed = pytester.runpytest_inprocess(*WITHOUT).outlines
    shown = PAGE.partition("## A failure")[2].split("```")[1].strip().splitlines()[1:]
    start = printed.index(shown[0])
    assert printed[start : start + len(shown)] == shown
