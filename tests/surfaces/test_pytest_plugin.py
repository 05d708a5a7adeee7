"""Evaluations as pytest tests: every test here runs pytest itself on a small project."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

# Loaded here, they are not loaded anew for each of the sessions that run in this process.
import surfaces.pytest_evaluate.decorator  # noqa: F401
import tasks.store_results  # noqa: F401
from fepflow.store.store import Store

pytest_plugins = ["pytester"]

HEAD = """
import asyncio
import pytest
from fepflow import Check, ContainsCheck, ExactMatchCheck, Output, TestCase, ThresholdCheck
from fepflow.pytest import evaluate

CASES = [
    TestCase(id="france", input="What is the capital of France?", expected="Paris"),
    TestCase(id="japan", input="What is the capital of Japan?", expected="Tokyo"),
]
CHECKS = [ContainsCheck(text="$.output.value", phrases="$.test_case.expected")]
"""

# Neither is what is tested, and the second one is loaded anew by every session.
WITHOUT = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")


class Project:
    """A folder with tests, on which pytest is run."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.folder = pytester.path
        pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = default\n")

    def write(self, code: str, name: str = "test_agent") -> None:
        self.pytester.makepyfile(**{name: HEAD + textwrap.dedent(code)})

    def run(self, code: str, *options: str) -> pytest.RunResult:
        """pytest in this process."""
        self.write(code)
        # What other tests in this process have imported is no business of this one.
        ours = ("-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning")
        return self.pytester.runpytest_inprocess(*WITHOUT, *ours, *options)

    def run_alone(self, code: str, *options: str) -> pytest.RunResult:
        """pytest in a process of its own."""
        self.write(code)
        return self.pytester.runpytest_subprocess(*WITHOUT, *options)


@pytest.fixture
def project(pytester: pytest.Pytester) -> Project:
    return Project(pytester)


def text_of(result: pytest.RunResult) -> str:
    return "\n".join(result.outlines)


# What is called, and with what


def test_the_function_answers_every_sample_of_every_case(project: Project) -> None:
    result = project.run(
        """
        asked = []

        @evaluate(CASES, CHECKS, samples=3)
        def test_capitals(test_case):
            asked.append(test_case.id)
            return f"It is {test_case.expected}."

        def test_it_was_asked_sample_by_sample():
            assert asked == ["france", "japan"] * 3
        """
    )
    result.assert_outcomes(passed=2)


def test_the_case_is_passed_by_name_or_as_the_first_argument(project: Project) -> None:
    result = project.run(
        """
        @pytest.fixture
        def agent():
            return {"france": "Paris", "japan": "Tokyo"}

        @evaluate(CASES, CHECKS)
        def test_by_name(agent, test_case):
            return agent[test_case.id]

        @evaluate(CASES, CHECKS)
        def test_as_the_first(case, agent):
            return agent[case.id]

        @evaluate(CASES, CHECKS)
        def test_with_the_request_too(test_case, request):
            return request.getfixturevalue("agent")[test_case.id]

        @evaluate([TestCase(id="a", input="?")], [ExactMatchCheck(actual="$.output.value", expected=1)])
        def test_without_parameters():
            return 1
        """
    )
    result.assert_outcomes(passed=4)


def test_methods_parametrized_arguments_and_marks_work(project: Project) -> None:
    result = project.run(
        """
        class TestCapitals:
            capitals = {"france": "Paris", "japan": "Tokyo"}

            @pytest.mark.parametrize("polite", [True, False])
            @evaluate(CASES, CHECKS)
            def test_it(self, polite, test_case):
                return self.capitals[test_case.id] + ("!" if polite else "")

            @evaluate(CASES, CHECKS)
            @pytest.mark.parametrize("town", ["Paris", "Tokyo"])
            async def test_async(self, test_case, town):
                return town if town == test_case.expected else self.capitals[test_case.id]

            @staticmethod
            @evaluate(CASES, CHECKS)
            def test_static(test_case):
                return test_case.expected

        @pytest.mark.xfail(strict=True)
        @evaluate(CASES, CHECKS)
        def test_that_is_known_to_fail(test_case):
            return "Paris"
        """
    )
    result.assert_outcomes(passed=5, xfailed=1)


def test_a_fixture_is_the_same_object_for_all_calls_of_a_test(project: Project) -> None:
    result = project.run(
        """
        @pytest.fixture
        def numbers():
            return iter(range(100))

        @evaluate([TestCase(id="a", input="?")], [ThresholdCheck(value="$.output.value", max_value=4)], samples=5)
        def test_counting(test_case, numbers):
            return next(numbers)

        @evaluate([TestCase(id="a", input="?")], [ExactMatchCheck(actual="$.output.value", expected=0)])
        def test_another_test_gets_its_own(test_case, numbers):
            return next(numbers)
        """
    )
    result.assert_outcomes(passed=2)


def test_outputs_are_copied_when_they_are_returned(project: Project) -> None:
    result = project.run(
        """
        @pytest.fixture
        def history():
            return []

        @evaluate([TestCase(id="a", input="?")], [ExactMatchCheck(actual="$.output.value", expected=["turn"])])
        def test_one_sample(test_case, history):
            history.append("turn")
            return history

        @evaluate([TestCase(id="a", input="?")], [ExactMatchCheck(actual="$.output.value[0]", expected="turn")],
                  samples=3)
        def test_that_clears_what_it_returned_before(test_case, history):
            history[:] = ["turn", *history[:1]]
            return history
        """
    )
    result.assert_outcomes(passed=2)


def test_a_value_becomes_an_output_and_an_output_is_taken_as_it_is(project: Project) -> None:
    result = project.run(
        """
        CASE = [TestCase(id="a", input="?")]

        @evaluate(CASE, [ExactMatchCheck(actual="$.output.value.answer[0]", expected=7),
                         ThresholdCheck(value="$.output.metadata.latency_ms", min_value=0)])
        def test_value(test_case):
            return {"answer": [7]}

        @evaluate(CASE, [ExactMatchCheck(actual="$.output.metadata.tokens", expected=12)])
        def test_output(test_case):
            return Output(value="x", metadata={"tokens": 12})
        """
    )
    result.assert_outcomes(passed=2)


# Async functions

ASYNC = """
import pytest_asyncio

@pytest_asyncio.fixture
async def loop_of_fixture():
    return asyncio.get_running_loop()

@evaluate(CASES, CHECKS, samples=2)
async def test_it_shares_the_loop_of_async_fixtures(test_case, loop_of_fixture):
    await asyncio.sleep(0)
    return test_case.expected if asyncio.get_running_loop() is loop_of_fixture else "another loop"

class TestMethods:
    @evaluate(CASES, CHECKS)
    async def test_too(self, test_case, loop_of_fixture):
        return test_case.expected if asyncio.get_running_loop() is loop_of_fixture else "another loop"

@evaluate(CASES, CHECKS)
async def test_that_fails(test_case):
    return "nothing"
"""


@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_async_functions_run_with_pytest_asyncio_in_every_mode(project: Project, mode: str) -> None:
    result = project.run(ASYNC, f"--asyncio-mode={mode}")
    result.assert_outcomes(passed=2, failed=1)


def test_async_functions_run_without_pytest_asyncio(project: Project) -> None:
    result = project.run(
        """
        @evaluate(CASES, CHECKS, samples=2)
        async def test_capitals(test_case, tmp_path):
            await asyncio.sleep(0)
            return test_case.expected

        @evaluate(CASES, CHECKS)
        async def test_that_fails(test_case):
            return "nothing"
        """,
        "-p",
        "no:asyncio",
    )
    result.assert_outcomes(passed=1, failed=1)


def test_async_functions_run_with_anyio_where_they_are_marked_for_it(project: Project) -> None:
    result = project.run(
        """
        pytestmark = pytest.mark.anyio

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        @pytest.fixture
        async def loop_of_fixture():
            return asyncio.get_running_loop()

        @evaluate(CASES, CHECKS)
        async def test_capitals(test_case, loop_of_fixture):
            return test_case.expected if asyncio.get_running_loop() is loop_of_fixture else "another loop"
        """
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(("given", "most"), [("", 16), ("max_concurrency=3", 3)])
def test_a_bounded_number_of_async_calls_is_under_way(project: Project, given: str, most: int) -> None:
    result = project.run(
        f"""
        under_way = [0]
        seen = []

        @evaluate(CASES, CHECKS, samples=20, {given})
        async def test_capitals(test_case):
            under_way[0] += 1
            seen.append(under_way[0])
            await asyncio.sleep(0.001)
            under_way[0] -= 1
            return test_case.expected

        def test_the_bound():
            assert max(seen) == {most}
        """
    )
    result.assert_outcomes(passed=2)


def test_a_bound_for_a_sync_function_is_warned_of(project: Project) -> None:
    result = project.run(
        """
        @evaluate(CASES, CHECKS, max_concurrency=3)
        def test_capitals(test_case):
            return test_case.expected
        """
    )
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*max_concurrency: test_capitals is not async, so its calls come one after another"])


# The verdict


def test_the_rate_decides_and_is_shown_for_passed_tests_too(project: Project) -> None:
    result = project.run(
        """
        @evaluate(CASES, CHECKS, samples=5, success_threshold=0.5)
        def test_half(test_case):
            return "Paris"

        @evaluate(CASES, CHECKS, samples=5, success_threshold=0.51)
        def test_more_than_half(test_case):
            return "Paris"
        """
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "5 of 10 results passed: 0.5 (95 % interval 0.2* to 0.7* for these cases), the threshold is 0.51.",
            "*= evaluations =*",
            "test_agent.py::test_half: pass, 5 of 10 results passed: 0.5 (*), the threshold is 0.5.",
            "test_agent.py::test_more_than_half: fail, 5 of 10 results passed*",
        ]
    )


RULES = """
@pytest.fixture
def calls():
    return iter(range(100))

# Of five samples, the first is wrong about Japan and the second about France.
@evaluate(CASES, CHECKS, samples=5, {arguments})
def test_capitals(test_case, calls):
    return "I do not know" if next(calls) in (1, 2) else test_case.expected
"""


@pytest.mark.parametrize(
    ("arguments", "passes"),
    [
        ("success_threshold=0.8", True),
        ("success_threshold=0.81", False),
        ("success_threshold=0.6, pass_rule='sample'", True),
        ("success_threshold=0.61, pass_rule='sample'", False),
        ("success_threshold=0.8, pass_rule='each_case'", True),
        ("success_threshold=0.81, pass_rule='each_case'", False),
        ("pass_threshold=0.8", True),
        ("pass_threshold=0.81", False),
        ("pass_threshold=0.8, pass_mode='per_test_case'", True),
        ("pass_threshold=0.6, pass_mode='sample'", True),
        ("pass_threshold=0.61, pass_mode='sample'", False),
        ("pass_mode='sample'", False),
        ("success_threshold=0", True),
        ("", False),
    ],
)
def test_each_rule_counts_what_it_says(project: Project, arguments: str, passes: bool) -> None:
    result = project.run(RULES.format(arguments=arguments))
    result.assert_outcomes(passed=int(passes), failed=int(not passes))


def test_each_case_has_to_reach_the_rate_under_the_rule_each_case(project: Project) -> None:
    # Wrong in every sample of one case of twenty: 95 % of all results are right.
    code = """
    MANY = [TestCase(id=f"c{{n}}", input=n, expected=str(n)) for n in range(20)]

    @evaluate(MANY, CHECKS, samples=4, {arguments})
    def test_numbers(test_case):
        return "wrong" if test_case.input == 7 else test_case.expected
    """
    project.run(code.format(arguments="success_threshold=0.9")).assert_outcomes(passed=1)
    result = project.run(code.format(arguments="success_threshold=0.9, pass_rule='each_case'"))
    result.assert_outcomes(failed=1)
    assert "19 of 20 test cases passed in at least 0.9 of their samples: 0.95" in text_of(result)


# What is raised


def test_an_exception_never_passes(project: Project) -> None:
    result = project.run(
        """
        @evaluate(CASES, [ExactMatchCheck(actual="$.output.value", expected="x", negate=True)])
        def test_capitals(test_case):
            raise ConnectionError("the agent is away")
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "0 of 2 results passed: 0, the threshold is 1; 2 in error, which could decide it.",
            "Errors: *: 2 results of 2 test cases",
            '  france, input: "What is the capital of France?"',
            "    ConnectionError: the agent is away (test_agent.py:*)",
        ]
    )
    assert "Traceback" not in text_of(result)
    assert "calls.py" not in text_of(result)


def test_a_rate_can_be_reached_in_spite_of_an_exception(project: Project) -> None:
    result = project.run(
        """
        @evaluate(CASES, CHECKS, samples=5, success_threshold=0.9)
        def test_capitals(test_case, tmp_path):
            if not (tmp_path / "tried").exists():
                (tmp_path / "tried").touch()
                raise SystemExit("an agent that leaves")
            return test_case.expected
        """
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*: pass, 9 of 10 results passed: 0.9 *, the threshold is 0.9; 1 in error."])


@pytest.mark.parametrize("how", ["assert test_case.id == 'france'", "pytest.fail('not this one')"])
def test_an_assertion_in_the_function_is_a_failed_sample(project: Project, how: str) -> None:
    result = project.run(
        f"""
        @evaluate(CASES, CHECKS, success_threshold=0.5)
        def test_half(test_case):
            if test_case.id == "japan":
                {how}
            return test_case.expected

        @evaluate(CASES, CHECKS)
        def test_all(test_case):
            if test_case.id == "japan":
                {how}
            return test_case.expected
        """
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["Failed: 1 result of 1 test case", "  japan, input: *"])


def test_a_skip_is_about_its_sample_and_about_the_test_where_all_skip(project: Project) -> None:
    result = project.run(
        """
        @evaluate(CASES, CHECKS)
        def test_one_skips(test_case):
            if test_case.id == "japan":
                pytest.skip("no key for Japan")
            return test_case.expected

        @evaluate(CASES, CHECKS)
        async def test_all_skip(test_case):
            pytest.skip("no key at all")
        """,
        "-rs",
    )
    result.assert_outcomes(failed=1, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "1 of 2 results passed: 0.5 *; 1 skipped, which could decide it.",
            "*no key for Japan",
            "SKIPPED*no key at all",
        ]
    )


@pytest.mark.parametrize(("prefix", "wait"), [("", ""), ("async ", ""), ("async ", "await asyncio.sleep(0.001)")])
def test_outcomes_of_the_whole_test_end_it_at_once(project: Project, prefix: str, wait: str) -> None:
    result = project.run(
        f"""
        asked = []

        @evaluate(CASES, CHECKS, samples=50)
        {prefix}def test_known(test_case):
            asked.append(1)
            {wait}
            pytest.xfail("known to be wrong")

        def test_it_was_not_asked_on():
            assert len(asked) <= 16
        """
    )
    result.assert_outcomes(xfailed=1, passed=1)


@pytest.mark.parametrize(
    ("prefix", "how"),
    [("", "raise KeyboardInterrupt"), ("async ", "raise KeyboardInterrupt"), ("async ", "pytest.exit('enough')")],
)
def test_the_user_can_stop_it(project: Project, prefix: str, how: str) -> None:
    result = project.run_alone(
        f"""
        @evaluate(CASES, CHECKS, samples=50)
        {prefix}def test_capitals(test_case):
            {how}

        def test_afterwards():
            pass
        """
    )
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert "passed" not in text_of(result)


@pytest.mark.parametrize("prefix", ["", "async "])
def test_a_time_limit_of_pytest_timeout_ends_the_test(project: Project, prefix: str) -> None:
    result = project.run(
        f"""
        import time

        asked = []

        @pytest.mark.timeout(0.2)
        @evaluate(CASES, CHECKS, samples=100)
        {prefix}def test_capitals(test_case):
            asked.append(1)
            time.sleep(0.01)
            return test_case.expected

        def test_it_was_not_asked_on():
            assert len(asked) < 100
        """
    )
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*Timeout*0.2s*"])


# What keeps a check from judging


def test_a_check_that_cannot_answer_is_an_error_and_never_a_pass(project: Project) -> None:
    result = project.run(
        """
        @evaluate(CASES, [*CHECKS, ThresholdCheck(value="$.output.metadata.tokens", max_value=9)], samples=2)
        def test_capitals(test_case):
            return test_case.expected
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "0 of 4 results passed: 0, *; 4 in error, which could decide it.",
            "Errors: *: 4 results of 2 test cases",
            "  france in 2 of 2 samples, input: *",
            "    threshold, samples 1, 2; the first: jsonpath_error: *$.output.metadata.tokens*",
        ]
    )
    assert "Failed:" not in text_of(result).split("short test summary")[0]


def test_a_check_without_passed_does_not_pass(project: Project) -> None:
    result = project.run(
        """
        from fepflow import BaseCheck

        class Score(BaseCheck):
            def __call__(self):
                return {"score": 0.9}

        @evaluate(CASES, [*CHECKS, Score()])
        def test_capitals(test_case):
            return test_case.expected
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(['    Score: gave neither pass nor fail, but {"score": 0.9}'])


def test_a_case_that_fails_one_check_has_failed_whatever_the_others_say(project: Project) -> None:
    result = project.run(
        """
        @evaluate(CASES[:1], [*CHECKS, ThresholdCheck(value="$.output.metadata.tokens", max_value=9)])
        def test_capitals(test_case):
            return "London"
        """
    )
    result.stdout.fnmatch_lines(
        [
            "0 of 1 results passed: 0 *, the threshold is 1.",
            "Failed: 1 result of 1 test case",
            '    contains: text: "London", phrases: "Paris"',
            "    threshold: jsonpath_error: *",
        ]
    )


# How failures read


def test_the_worst_case_comes_first_with_the_arguments_of_its_checks(project: Project) -> None:
    result = project.run(
        """
        @pytest.fixture
        def calls():
            return iter(range(100))

        @evaluate(CASES, CHECKS, samples=3)
        def test_capitals(test_case, calls):
            if test_case.id == "japan":
                return "Kyoto"
            return "Lyon" if next(calls) == 1 else "Paris"
        """
    )
    lines = text_of(result).splitlines()
    causes = lines.index("Causes:")
    assert lines[causes + 1] == "  4 × contains: phrases: $.test_case.expected"
    start = lines.index("Failed: 4 results of 2 test cases")
    assert start > causes
    assert lines[start + 1 : start + 5] == [
        '  japan in 3 of 3 samples, input: "What is the capital of Japan?"',
        '    contains, samples 1, 2, 3; the first: text: "Kyoto", phrases: "Tokyo"',
        '  france in 1 of 3 samples, input: "What is the capital of France?"',
        '    contains, sample 2: text: "Lyon", phrases: "Paris"',
    ]


def test_a_long_argument_is_cut_and_a_short_one_beside_it_is_not(project: Project) -> None:
    result = project.run(
        """
        @evaluate(CASES[:1], [ContainsCheck(text="$.output.value", phrases=["a phrase of some length", "another"])])
        def test_capitals(test_case):
            return "x" * 100_000
        """
    )
    # Once in the report; in CI, where pytest cuts no summary, there too.
    line = next(line for line in result.outlines if line.startswith("    contains: "))
    assert len(line) < 350
    assert 'phrases: ["a phrase of some length", "another"]' in line
    assert 'text: "xxxxx' in line
    assert "x…" in line


def test_what_an_agent_wrote_cannot_steer_the_terminal(project: Project) -> None:
    result = project.run(
        """
        @evaluate(CASES[:1], CHECKS)
        def test_capitals(test_case):
            return "\\x1b[2J\\x1b[31mLondon\\n= 1 passed ="
        """
    )
    assert "\x1b" not in text_of(result)
    assert "London\\\\n= 1 passed =" in text_of(result) or "London\\n= 1 passed =" in text_of(result)


def test_many_failing_cases_are_counted_and_not_all_spelled_out(project: Project) -> None:
    result = project.run(
        """
        MANY = [TestCase(id=f"case-{n}", input=n, expected="x") for n in range(500)]

        @evaluate(MANY, CHECKS, samples=3)
        def test_many(test_case):
            return "y"
        """
    )
    report = text_of(result)
    assert "Failed: 1500 results of 500 test cases" in report
    assert "  ... and 490 more test cases: case-10, case-11, " in report
    assert len(report) < 6_000


def test_the_verdict_is_in_the_junit_report(project: Project) -> None:
    project.run(
        """
        @evaluate(CASES, CHECKS)
        def test_capitals(test_case):
            return test_case.expected
        """,
        "--junit-xml=junit.xml",
    )
    junit = (project.folder / "junit.xml").read_text(encoding="utf-8")
    assert '<property name="fepflow_verdict" value="pass, 2 of 2 results passed: 1 ' in junit


# Mistakes are found before anything is called


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("[], CHECKS", "evaluate: test_cases: there are no test cases"),
        ("CASES", "evaluate: test_cases[0]: no check judges 'france'"),
        ("CASES, []", "evaluate: test_cases[0]: no check judges 'france'"),
        ("[*CASES, CASES[0]], CHECKS", "evaluate: test_cases[2]: the id 'france' is that of test_cases[0] too"),
        ("['france'], CHECKS", "evaluate: test_cases[0]: is a str, not a TestCase"),
        ("CASES, ['contains']", "evaluate: checks[0]: is a str, not a check"),
        ("CASES, [Check(type='contians', arguments={})]", "there is no check type contians (did you mean contains?)"),
        ("CASES, [Check(type='contains', arguments={})]", "evaluate: check contains: contains cannot take these"),
        ("CASES, CHECKS, samples=0", "evaluate: samples: 0 is no number of samples"),
        ("CASES, CHECKS, samples=2.5", "evaluate: samples: 2.5 is no number of samples"),
        ("CASES, CHECKS, success_threshold=90", "evaluate: success_threshold: 90 is no share"),
        ("CASES, CHECKS, success_threshold=float('nan')", "evaluate: success_threshold: nan is no share"),
        ("CASES, CHECKS, success_threshold=True", "evaluate: success_threshold: True is no share"),
        (
            "CASES, CHECKS, pass_rule='any'",
            "evaluate: pass_rule: there is no 'any' (known are case, sample, each_case)",
        ),
        ("CASES, CHECKS, pass_mode='any'", "evaluate: pass_mode: there is no 'any' (known are per_test_case, sample)"),
        ("CASES, CHECKS, pass_threshold=0.5, success_threshold=0.6", "pass_threshold and pass_mode go without it"),
        ("CASES, CHECKS, pass_mode='sample', pass_rule='sample'", "pass_threshold and pass_mode go without it"),
        ("CASES, CHECKS, max_concurrency=0", "evaluate: max_concurrency: 0 is no number of calls"),
    ],
)
def test_invalid_arguments_are_an_error_at_collection(project: Project, arguments: str, complaint: str) -> None:
    result = project.run(
        f"""
        @evaluate({arguments})
        def test_capitals(test_case):
            print("it was called")
        """
    )
    assert result.ret == pytest.ExitCode.INTERRUPTED
    report = text_of(result)
    assert complaint in report
    assert f"@evaluate({arguments})" in report
    assert "it was called" not in report
    assert "plan.py" not in report


def test_a_unittest_case_is_refused_as_it_has_no_fixtures(project: Project) -> None:
    result = project.run(
        """
        import unittest

        class TestCapitals(unittest.TestCase):
            @evaluate(CASES, CHECKS)
            def test_it(self, test_case):
                return test_case.expected
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["An evaluation gets fixtures, but this was called without any.*"])


# The store


STORED = """
@evaluate(CASES, CHECKS, samples=2, success_threshold=0.9)
def test_capitals(test_case):
    return "Paris"

@pytest.mark.parametrize("country", ["Peru"])
@evaluate(CASES, CHECKS)
async def test_more(test_case, country):
    if test_case.id == "japan":
        raise ConnectionError("the agent is away")
    return test_case.expected

def test_another_exception_is_an_error():
    pass
"""


@pytest.mark.parametrize("workers", [[], ["-n2"]])
def test_results_are_stored_as_completed_runs(project: Project, workers: list[str]) -> None:
    url = f"sqlite:///{project.folder / 'results.db'}"
    result = project.run_alone(STORED, f"--fepflow-store={url}", *workers)
    result.assert_outcomes(failed=2, passed=1)
    with Store.open(url) as store:
        runs = {run.name: run for run in store.runs()}
        assert set(runs) == {"test_agent.py::test_capitals", "test_agent.py::test_more[Peru]"}
        failed, unknown = runs.values() if next(iter(runs)).endswith("capitals") else reversed(runs.values())
        assert (failed.status, failed.outcome, failed.repeats, failed.tags) == ("completed", "fail", 2, ["pytest"])
        assert failed.started_at is not None
        assert failed.completed_at is not None
        assert failed.started_at <= failed.completed_at
        assert [(metric["id"], metric["value"]) for metric in failed.metrics] == [("pass_rate", 0.5), ("contains", 0.5)]
        assert failed.verdict["gate"] == "At least 0.9 of the results must pass."
        kept = [(found.case.id, found.repeat, found.output.value) for found in store.results(failed.id) if found.output]
        assert kept == [("france", 0, "Paris"), ("france", 1, "Paris"), ("japan", 0, "Paris"), ("japan", 1, "Paris")]
        assert unknown.outcome == "inconclusive"
        (japan,) = store.results(unknown.id, failed_only=True)
        assert japan.output is not None
        assert "the agent is away" in japan.output.metadata["error"]["message"]
        assert [check.status for check in japan.checks] == ["error"]
    result.stdout.fnmatch_lines([f"test_agent.py::test_capitals: fail, * (fepflow show {failed.id[:8]})"])


def test_a_stored_run_is_shown_by_the_command_line(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{project.folder / 'results.db'}"
    monkeypatch.setenv("FEPFLOW_STORE_URL", url)
    project.run_alone(STORED, "--fepflow-store", "-k", "capitals").assert_outcomes(failed=1)
    command = [sys.executable, "-m", "surfaces.cli.main", "show", "latest", "--failed"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "test_agent.py::test_capitals" in shown
    assert "gate: At least 0.9 of the results must pass." in shown
    assert "japan #2" in shown


def test_nothing_is_stored_by_default(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEPFLOW_HOME", str(project.folder / "home"))
    project.run_alone(STORED).assert_outcomes(failed=2, passed=1)
    assert not (project.folder / "home").exists()


def test_a_function_in_arguments_is_stored_by_its_name(project: Project) -> None:
    url = f"sqlite:///{project.folder / 'results.db'}"
    result = project.run(
        """
        from collections.abc import Callable
        from fepflow import BaseCheck, JSONPath

        class Passes(BaseCheck):
            value: str | JSONPath
            rule: Callable

            def __call__(self):
                return {"passed": self.rule(self.value)}

        def is_short(text):
            return len(text) < 10

        OWN = [TestCase(id="own", input="?", checks=[Passes(value="$.output.value", rule=is_short)])]

        @evaluate(OWN, [Passes(value="$.output.value", rule=is_short)])
        def test_short(test_case):
            return "short"
        """,
        f"--fepflow-store={url}",
    )
    result.assert_outcomes(passed=1)
    with Store.open(url) as store:
        (run,) = store.runs()
        assert run.suite["checks"][0]["arguments"]["rule"] == "is_short"


def test_a_failure_to_store_is_reported_and_changes_no_outcome(project: Project) -> None:
    result = project.run(
        """
        @evaluate([TestCase(id="a", input=lambda: 1)], [ExactMatchCheck(actual="$.output.value", expected=1)])
        def test_one(test_case):
            return test_case.input()
        """,
        f"--fepflow-store=sqlite:///{project.folder / 'results.db'}",
    )
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["*the results of test_agent.py::test_one are not stored: *the case 'a' has no JSON*"])


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        (["--fepflow-store", "test_agent.py"], "test_agent.py is no database URL. Without a URL, write"),
        (["--fepflow-store=mysql://user:secret@host/db"], "The store cannot be a mysql database"),
        (["--fepflow-store=sqlite:////proc/nowhere/x.db"], "The store /proc/nowhere/x.db cannot be opened"),
    ],
)
def test_an_invalid_store_url_is_an_error_before_any_call(project: Project, option: list[str], complaint: str) -> None:
    result = project.run(STORED, *option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    errors = "\n".join(result.errlines)
    assert complaint in errors
    assert "secret" not in errors


# What is loaded


def test_evaluations_need_neither_prefect_nor_without_the_option_a_store(project: Project) -> None:
    project.pytester.makeconftest(
        "import sys\ndef pytest_sessionfinish():\n"
        "    print('loaded', sorted({'prefect', 'litellm', 'sqlalchemy'} & set(sys.modules)))\n"
    )
    code = """
    @evaluate(CASES, CHECKS)
    async def test_capitals(test_case):
        return test_case.expected
    """
    assert "loaded []" in text_of(project.run_alone(code, "-s"))
    kept = project.run_alone(code, "-s", f"--fepflow-store=sqlite:///{project.folder / 'results.db'}")
    kept.assert_outcomes(passed=1)
    assert "loaded ['sqlalchemy']" in text_of(kept)


def test_the_installed_plugin_loads_nothing_into_other_sessions(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_one():\n    pass\n")
    pytester.makeconftest(
        "import sys\ndef pytest_sessionfinish():\n"
        "    ours = ('fepflow', 'checks', 'tasks', 'surfaces', 'pydantic')\n"
        "    print('loaded', sorted(name for name in sys.modules if name.partition('.')[0] in ours))\n"
    )
    result = pytester.runpytest_subprocess("-s", "-p", "no:asyncio", "-p", "no:anyio", "-p", "no:hypothesispytest")
    result.assert_outcomes(passed=1)
    assert "loaded ['surfaces', 'surfaces.pytest_plugin']" in text_of(result)


def test_a_package_that_hides_ours_is_reported(tmp_path: Path) -> None:
    (tmp_path / "checks.py").touch()
    # As in an ordinary installation, where folders on the path and nothing else say what a package is.
    code = (
        "import sys\n"
        "sys.meta_path = [finder for finder in sys.meta_path if 'editable' not in repr(finder).lower()]\n"
        f"sys.path[:0] = [{str(tmp_path)!r}, {str(Path(__file__).parents[2])!r}]\n"
        "from fepflow.pytest import evaluate\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert str(tmp_path / "checks.py") in last
    assert "an environment of its own" in last
