"""Evaluations as pytest tests: what is called with what, and how asynchronous functions are."""

from __future__ import annotations

import pytest

from tests.fepflow.pytest.pytest_project import Project


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


def test_what_a_call_changes_in_its_case_is_seen_by_no_check_and_no_other_call(project: Project) -> None:
    result = project.run(
        """
        CHATS = [TestCase(id="chat", input=[{"user": "the capital of France?"}], expected="Paris")]

        @evaluate(CHATS, CHECKS, samples=2)
        def test_history(test_case):
            test_case.input.append({"agent": "Rome"})
            test_case.expected = "Rome"
            return str(test_case.input)
        """
    )
    result.assert_outcomes(failed=1)
    said = "[{'user': 'the capital of France?'}, {'agent': 'Rome'}]"
    assert '  chat in 2 of 2 samples, input: [{"user": "the capital of France?"}]' in result.outlines
    assert f'    contains, samples 1, 2; the first: "Paris" is not in: "{said}"' in result.outlines
    assert f'  2 × contains: "Paris" is not in: "{said}" (chat)' in result.outlines, (
        "both calls began with the same case"
    )


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
