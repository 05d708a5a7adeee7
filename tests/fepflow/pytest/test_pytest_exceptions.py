"""Evaluations as pytest tests: what is raised on the way."""

from __future__ import annotations

import pytest

from tests.fepflow.pytest.pytest_project import Project, text_of


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


def test_a_call_that_was_not_awaited_or_cancelled_its_own_task_does_not_pass(project: Project) -> None:
    result = project.run(
        """
        NOT_EMPTY = [Check(type="is_empty", arguments={"value": "$.output.value", "negate": True})]

        async def agent(test_case):
            return test_case.expected

        @pytest.mark.filterwarnings("ignore::RuntimeWarning")
        @evaluate(CASES, NOT_EMPTY)
        def test_not_awaited(test_case):
            return agent(test_case)

        @evaluate(CASES, NOT_EMPTY)
        async def test_cancelled(test_case):
            asyncio.current_task().cancel()
            await asyncio.sleep(60)
        """
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "    TypeError: the function returned a coroutine that nobody awaited: return the whole answer, *",
            "A call cancelled its own asyncio task, so its answer is missing.",
        ]
    )


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
    [
        ("async ", "raise KeyboardInterrupt"),
        pytest.param("", "raise KeyboardInterrupt", marks=pytest.mark.battery),
        pytest.param("async ", "pytest.exit('enough')", marks=pytest.mark.battery),
    ],
)
@pytest.mark.battery
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
