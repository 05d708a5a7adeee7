"""Evaluations as pytest tests: mistakes are found before anything is called."""

from __future__ import annotations

import unittest

import pytest

from fepflow import ContainsCheck, TestCase
from fepflow.pytest import evaluate
from tests.fepflow.pytest.pytest_project import Project

WRONG = [
    ("[], CHECKS", "evaluate: test_cases: there are no test cases"),
    ("CASES", "evaluate: test_cases[0]: no check judges 'france'"),
    ("CASES, []", "evaluate: test_cases[0]: no check judges 'france'"),
    ("[*CASES, CASES[0]], CHECKS", "evaluate: test_cases[2]: the id 'france' is that of test_cases[0] too"),
    (
        "['france'], CHECKS",
        "evaluate: test_cases[0]: is a str, not a TestCase (write TestCase(input=..., expected=...))",
    ),
    ("CASES[0], CHECKS", "evaluate: test_cases: must be a list, not a single TestCase"),
    ("CASES, CHECKS[0]", "evaluate: checks: must be a list, not a single ContainsCheck"),
    ("lambda test_case: 1", "evaluate: test_cases: is a function (write @evaluate("),
    ("CASES, ['contains']", "evaluate: checks[0]: is a str, not a check"),
    ("CASES, [Check(type='contians', arguments={})]", "there is no check type contians (did you mean contains?)"),
    ("CASES, [Check(type='regex', arguments={})]", "evaluate: check regex: regex cannot take these"),
    ("CASES, CHECKS, samples=0", "evaluate: samples: 0 is not a number of samples"),
    ("CASES, CHECKS, samples=2.5", "evaluate: samples: 2.5 is not a number of samples"),
    ("CASES, CHECKS, success_threshold=90", "evaluate: success_threshold: 90 is not a share"),
    ("CASES, CHECKS, success_threshold=float('nan')", "evaluate: success_threshold: nan is not a share"),
    ("CASES, CHECKS, success_threshold=True", "evaluate: success_threshold: True is not a share"),
    (
        "CASES, CHECKS, pass_rule='any'",
        "evaluate: pass_rule: there is no 'any' (known are case, sample, each_case)",
    ),
    ("CASES, CHECKS, pass_mode='any'", "evaluate: pass_mode: there is no 'any' (known are per_test_case, sample)"),
    ("CASES, CHECKS, pass_threshold=0.5, success_threshold=0.6", "pass_threshold and pass_mode go without it"),
    ("CASES, CHECKS, pass_mode='sample', pass_rule='sample'", "pass_threshold and pass_mode go without it"),
    ("CASES, CHECKS, shown=True", "evaluate: shown: no sample can show that a rate reaches or misses 1"),
    ("CASES, CHECKS, max_concurrency=0", "evaluate: max_concurrency: 0 is not a number of calls"),
]


def test_invalid_arguments_are_an_error_at_collection(project: Project, subtests: pytest.Subtests) -> None:
    code = """
    @evaluate({arguments})
    def test_capitals(test_case):
        print("it was called")
    """
    _, errors = project.run_each(code.format(arguments=arguments) for arguments, _ in WRONG)
    for (arguments, complaint), error in zip(WRONG, errors, strict=True):
        with subtests.test(arguments):
            assert complaint in error
            assert f"@evaluate({arguments})" in error
            assert "plan.py" not in error


@pytest.mark.parametrize("prefix", ["", "async "])
def test_a_unittest_case_is_refused_at_collection_as_it_has_no_fixtures(project: Project, prefix: str) -> None:
    result = project.run(
        f"""
        import unittest

        class OfRequest:
            def __get__(self, instance, owner):
                raise RuntimeError("there is no request")

        class TestCapitals(unittest.TestCase):
            name = OfRequest()

            @evaluate(CASES, CHECKS)
            {prefix}def test_it(self, test_case):
                return "wrong"
        """
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*TestCapitals.test_it: an evaluation needs pytest's fixtures*Make it a function*"])


def test_an_async_evaluation_is_an_error_for_unittest_itself_which_awaits_nothing() -> None:
    class Capitals(unittest.TestCase):
        @evaluate([TestCase(id="france", input="Capital of France?")], [ContainsCheck(text="wrong", phrases="Paris")])
        async def test_it(self, test_case: TestCase) -> str:
            raise AssertionError("it was called")

    result = unittest.TestResult()
    Capitals("test_it").run(result)

    assert [error.splitlines()[-1] for _, error in result.errors] == [
        f"TypeError: {Capitals.test_it.__qualname__}() missing 1 required keyword-only argument: 'request'"
    ]
