"""Evaluations as pytest tests: the verdict, and how failures read."""

from __future__ import annotations

import pytest

from tests.fepflow.pytest.pytest_project import Project, text_of


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


COUNTED = {
    "success_threshold=0.8": True,
    "success_threshold=0.81": False,
    "success_threshold=0.6, pass_rule='sample'": True,
    "success_threshold=0.61, pass_rule='sample'": False,
    "success_threshold=0.8, pass_rule='each_case'": True,
    "success_threshold=0.81, pass_rule='each_case'": False,
    "pass_threshold=0.8": True,
    "pass_threshold=0.81": False,
    "pass_threshold=0.8, pass_mode='per_test_case'": True,
    "pass_threshold=0.6, pass_mode='sample'": True,
    "pass_threshold=0.61, pass_mode='sample'": False,
    "pass_mode='sample'": False,
    "success_threshold=0": True,
    "": False,
}


def test_each_rule_counts_what_it_says(project: Project) -> None:
    outcomes, _ = project.run_each(RULES.format(arguments=arguments) for arguments in COUNTED)
    passed = {arguments: outcome == "." for arguments, outcome in zip(COUNTED, outcomes, strict=True)}
    assert set(outcomes) == {".", "F"}
    assert passed == COUNTED


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
                return {"score": 0.987654321}

        @evaluate(CASES, [*CHECKS, Score()])
        def test_capitals(test_case):
            return test_case.expected
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["    Score: gave neither pass nor fail, but score: 0.9877"])


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
            '    contains: "Paris" is not in: "London"',
            "    threshold: jsonpath_error: *",
        ]
    )


def test_the_worst_case_comes_first_with_what_its_checks_wanted_and_got(project: Project) -> None:
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
    assert lines[causes + 1] == '  3 × contains: "Tokyo" is not in: "Kyoto" (japan)'
    start = lines.index("Failed: 4 results of 2 test cases")
    assert start > causes
    assert lines[start + 1 : start + 5] == [
        '  japan in 3 of 3 samples, input: "What is the capital of Japan?"',
        '    contains, samples 1, 2, 3; the first: "Tokyo" is not in: "Kyoto"',
        '  france in 1 of 3 samples, input: "What is the capital of France?"',
        '    contains, sample 2: "Paris" is not in: "Lyon"',
    ]


def test_a_long_answer_is_cut_and_the_phrases_are_not(project: Project) -> None:
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
    assert line.startswith('    contains: "a phrase of some length", "another" are not in: "xxxxx')
    assert 'x…"' in line


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


SHOWN = """
@pytest.fixture
def answers():
    return iter({answers})

@evaluate(CASES[:1], CHECKS, samples=10, success_threshold=0.8, {arguments})
def test_capitals(test_case, answers):
    return "Paris" if next(answers) else "Lyon"
"""


def test_an_agent_at_its_threshold_that_had_bad_luck_fails_only_if_it_is_shown_to_be_below(project: Project) -> None:
    # Seven of the first ten are right, and 39 of 50: every third test of an agent that is right in 0.8 begins so.
    answers = [True, True, False, True, True, False, True, True, False, True, *[True, True, True, True, False] * 8]
    by_value = project.run(SHOWN.format(answers=answers, arguments=""))
    by_value.assert_outcomes(failed=1)
    result = project.run(SHOWN.format(answers=answers, arguments="shown=True"), "--junit-xml=junit.xml")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "*InconclusiveWarning: passed, but inconclusive: 39 of 50 results passed*",
            "test_agent.py::test_capitals: inconclusive, 39 of 50 results passed: 0.78 (95 % interval 0.5* to 0.9* for "
            "these cases, at every look), the threshold is 0.8, which is neither shown to be reached nor to be missed.",
        ]
    )
    assert 'value="inconclusive, 39 of 50' in (project.folder / "junit.xml").read_text(encoding="utf-8")
    strict = project.run(
        SHOWN.format(answers=answers, arguments="shown=True"), "-W", "error::fepflow.pytest.InconclusiveWarning"
    )
    strict.assert_outcomes(failed=1)


def test_calls_go_on_until_the_rate_is_shown_to_be_above_or_below(project: Project) -> None:
    result = project.run(SHOWN.format(answers="[True] * 50", arguments="shown=True"))
    result.assert_outcomes(passed=1, warnings=0)
    assert "pass, 27 of 27 results passed: 1" in text_of(result)
    result = project.run(SHOWN.format(answers="[True, False] * 25", arguments="shown=True"))
    result.assert_outcomes(failed=1)
    assert "the threshold is 0.8, which is shown to be missed." in text_of(result)
    assert "france in 11 of 22 samples" in text_of(result)


def test_calls_that_raise_do_not_pass_as_not_shown(project: Project) -> None:
    result = project.run(
        """
        @evaluate(CASES, CHECKS, samples=5, success_threshold=0.8, shown=True)
        async def test_capitals(test_case):
            raise ConnectionError("away")
        """
    )
    result.assert_outcomes(failed=1)
    assert "10 in error, which could decide it." in text_of(result)


@pytest.mark.battery
def test_a_strict_each_case_is_warned_of_while_pytest_collects(project: Project) -> None:
    code = """
    MANY = [TestCase(id=f"c{{n}}", input=n, expected=str(n)) for n in range(20)]

    @evaluate(MANY, CHECKS, samples=5, success_threshold=0.8, pass_rule="each_case", {arguments})
    def test_numbers(test_case):
        return test_case.expected
    """
    result = project.run(code.format(arguments=""))
    result.assert_outcomes(passed=1, warnings=1)
    assert (
        "each_case is strict here: an agent that passes in 0.9 of the samples of every test case fails 81.7 % of the "
        "time" in text_of(result)
    )
    project.run(code.format(arguments="shown=True")).assert_outcomes(passed=1)


def test_the_verdict_is_in_the_junit_report_once_also_when_the_test_is_run_again(project: Project) -> None:
    project.run(
        """
        tries = []

        @evaluate(CASES, CHECKS)
        def test_capitals(test_case):
            tries.append(1)
            return test_case.expected if len(tries) > 2 else "no"
        """,
        "--junit-xml=junit.xml",
        "--reruns=1",
    )
    junit = (project.folder / "junit.xml").read_text(encoding="utf-8")
    *_, passed = junit.split("<testcase")
    assert '<property name="fepflow_verdict" value="pass, 2 of 2 results passed: 1 ' in passed
    assert passed.count("fepflow_verdict") == 1
