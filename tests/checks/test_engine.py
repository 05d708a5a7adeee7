"""EVALUATE: which checks run, what cannot be evaluated, and the result as a whole."""

import asyncio
import gc
import json
import threading

import pytest

from fepflow.checks.custom_function import CustomFunctionCheck
from fepflow.checks.engine import evaluate, evaluate_async
from fepflow.errors import InputError
from fepflow.protocol.check import Check
from fepflow.protocol.results import EvaluationRunResult, ExperimentMetadata
from fepflow.protocol.test_case import Output, TestCase

from .engine_cases import BROKEN, SAME, capital, results_of, says


class TestWhichChecksRun:
    def test_shared_checks_run_for_every_case(self):
        result = evaluate([capital("a"), capital("b")], [Output(value="Paris"), Output(value="Rome")], [SAME])
        assert results_of(result, 0) == [("exact_match", "completed", True)]
        assert results_of(result, 1) == [("exact_match", "completed", False)]

    def test_a_list_a_case_runs_for_that_case(self):
        outputs = [Output(value="Paris"), Output(value="Rome")]
        result = evaluate([capital("a"), capital("b")], outputs, [[says("Paris"), SAME], []])
        assert [name for name, _, _ in results_of(result, 0)] == ["contains", "exact_match"]
        assert results_of(result, 1) == []

    @pytest.mark.parametrize("checks", [None, []])
    def test_inline_checks_are_enough(self, checks):
        case = capital(checks=[says("Paris")])
        assert results_of(evaluate([case], [Output(value="Paris")], checks)) == [("contains", "completed", True)]

    def test_inline_checks_come_before_the_shared_ones(self):
        case = capital(checks=[says("Paris"), says("France")])
        result = evaluate([case], [Output(value="Paris")], [says("Rome"), SAME])
        assert results_of(result) == [
            ("contains-2", "completed", True),
            ("contains-3", "completed", False),
            ("contains", "completed", False),
            ("exact_match", "completed", True),
        ]

    def test_inline_checks_come_before_the_cases_own_list(self):
        case = capital(checks=[says("Paris", id="inline")])
        result = evaluate([case], [Output(value="Paris")], [[says("France", id="listed")]])
        assert [name for name, _, _ in results_of(result)] == ["inline", "listed"]

    @pytest.mark.parametrize("checks", [None, [], [[]]])
    def test_a_case_without_checks_is_completed(self, checks):
        result = evaluate([capital()], [Output(value="Paris")], checks)
        assert (result.status, result.results[0].status, result.summary.total_checks) == ("completed", "completed", 0)

    def test_checks_of_one_type_have_different_ids(self):
        result = evaluate([capital()], [Output(value="Paris")], [says("a"), says("b"), says("c", id="contains-2")])
        assert [name for name, _, _ in results_of(result)] == ["contains", "contains-3", "contains-2"]


class TestWhatCannotBeEvaluated:
    def test_no_test_cases(self):
        with pytest.raises(InputError, match="there are no test cases") as caught:
            evaluate([], [], [SAME])
        assert caught.value.__context__ is None, "a traceback shows this error alone"

    def test_a_missing_output_is_refused(self):
        with pytest.raises(InputError, match="2 test cases but 1 outputs"):
            evaluate([capital("a"), capital("b")], [Output(value="Paris")], [SAME])

    def test_a_missing_list_of_checks_is_refused(self):
        with pytest.raises(InputError, match="2 test cases but 1 lists of checks"):
            evaluate([capital("a"), capital("b")], [Output(value=""), Output(value="")], [[SAME]])

    def test_a_duplicate_id_is_refused(self):
        with pytest.raises(InputError, match=r"the id 'a' appears twice: test_cases\[0\] and test_cases\[2\]"):
            evaluate([capital("a"), capital("b"), capital("a")], [Output(value="")] * 3, [SAME])


class TestMistakesStayWhereTheyAre:
    def test_a_bad_check_takes_no_other_down(self):
        unknown = Check(type="exact_mach", arguments={})
        pathless = Check(type="exact_match", arguments={"actual": "$.output.[", "expected": ""})
        result = evaluate([capital()], [Output(value="Paris")], [BROKEN, unknown, pathless, SAME])
        assert [item.status for item in result.results[0].check_results] == ["error", "error", "error", "completed"]
        errors = [item.error.type for item in result.results[0].check_results if item.error]
        assert errors == ["validation_error", "validation_error", "jsonpath_error"]

    def test_a_path_that_finds_nothing_is_an_error_of_that_case_only(self):
        check = Check(type="exact_match", arguments={"actual": "$.output.value.answer", "expected": "Paris"})
        result = evaluate(
            [capital("a"), capital("b")], [Output(value="Paris"), Output(value={"answer": "Paris"})], [check]
        )
        error = result.results[0].check_results[0].error
        assert error.type == "jsonpath_error"
        assert "$.output.value.answer" in error.message
        assert result.results[1].status == "completed"

    def test_expected_that_was_not_given_is_not_null(self):
        bare = TestCase(id="case", input="?")
        null = TestCase(id="case", input="?", expected=None)
        assert evaluate([bare], [Output(value=None)], [SAME]).status == "error"
        assert results_of(evaluate([null], [Output(value=None)], [SAME])) == [("exact_match", "completed", True)]

    def test_metadata_that_was_not_given_is_empty(self):
        check = Check(type="exact_match", arguments={"actual": "$.output.metadata", "expected": {}})
        assert results_of(evaluate([capital()], [Output(value="")], [check])) == [("exact_match", "completed", True)]

    def test_unknown_arguments_are_ignored(self):
        check = says("Paris")
        check.arguments["phrase"] = "Rome"
        assert results_of(evaluate([capital()], [Output(value="Paris")], [check])) == [("contains", "completed", True)]


class TestAFailedCall:
    @pytest.mark.parametrize(
        ("kind", "expected"),
        [("timeout_error", "timeout_error"), ("unknown_error", "unknown_error"), ("x", "unknown_error")],
    )
    def test_each_check_ends_in_a_recoverable_error_with_the_cause(self, kind, expected):
        output = Output(value=None, metadata={"error": {"type": kind, "message": "no answer within 30 s"}})
        result = evaluate([capital()], [output], [SAME, says("Paris")])
        errors = [item.error for item in result.results[0].check_results]
        assert [(error.type, error.recoverable) for error in errors] == [(expected, True)] * 2
        assert "no answer within 30 s" in errors[0].message
        assert (result.status, result.summary.error_checks, result.summary.error_test_cases) == ("error", 2, 1)

    def test_an_answer_of_null_is_an_answer(self):
        result = evaluate([TestCase(id="case", input="", expected=None)], [Output(value=None)], [SAME])
        assert result.status == "completed"

    def test_an_answer_beside_an_error_is_an_answer(self):
        output = Output(value="Paris", metadata={"error": {"message": "a tool failed"}})
        assert evaluate([capital()], [output], [SAME]).status == "completed"


class TestTheRunAsAWhole:
    def test_an_error_outweighs_everything_and_the_counts_add_up(self):
        result = evaluate(
            [capital("a"), capital("b")], [Output(value="Paris"), Output(value="Rome")], [[SAME], [BROKEN, SAME]]
        )
        assert [case.status for case in result.results] == ["completed", "error"]
        assert result.status == "error"
        assert result.summary.model_dump() == {
            "total_test_cases": 2,
            "completed_test_cases": 1,
            "error_test_cases": 1,
            "skipped_test_cases": 0,
            "total_checks": 3,
            "completed_checks": 2,
            "error_checks": 1,
            "skipped_checks": 0,
        }

    def test_a_failed_check_is_no_error(self):
        assert evaluate([capital()], [Output(value="Rome")], [SAME]).status == "completed"

    def test_the_experiment_is_handed_on(self):
        experiment = ExperimentMetadata(name="geography", metadata={"model": "m"})
        assert evaluate([capital()], [Output(value="")], [SAME], experiment).experiment == experiment
        assert "experiment" not in evaluate([capital()], [Output(value="")], [SAME]).model_dump()

    def test_every_run_has_an_id_and_times_of_its_own(self):
        first, second = (evaluate([capital()], [Output(value="")], [SAME]) for _ in range(2))
        assert first.evaluation_id != second.evaluation_id
        assert first.started_at <= first.results[0].check_results[0].evaluated_at <= first.completed_at

    async def test_it_works_inside_a_running_event_loop(self):
        result = evaluate([capital()], [Output(value="Paris")], [SAME])
        assert results_of(result) == [("exact_match", "completed", True)]
        assert threading.active_count() < 50

    def test_the_settings_of_the_garbage_collector_stay_unchanged(self):
        seen = []

        def look(**_):
            seen.append(gc.get_threshold())
            return {"passed": True}

        check = CustomFunctionCheck(validation_function=look, function_args={"value": "$.output.value"})
        before = gc.get_threshold()
        result = evaluate([capital()], [Output(value="Paris")], [SAME, check])
        assert results_of(result)[1] == ("custom_function", "completed", True)
        assert [*seen, gc.get_threshold()] == [before, before]

    async def test_an_evaluation_does_not_block_the_loop(self):
        turns = 0

        async def count():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(count())
        cases = [capital(str(index)) for index in range(300)]
        await evaluate_async(cases, [Output(value="Paris")] * 300, [SAME, says("Paris")])
        other.cancel()
        assert turns > 3

    def test_a_result_goes_through_json_and_comes_back_the_same(self):
        cases = [capital("a", checks=[says("Paris")], metadata={"n": [1, 2.5, None]}), capital("b")]
        outputs = [
            Output(value={"answer": "Paris", "score": 0.5}, metadata={"tokens": 3}),
            Output(value="Paris", id="o"),
        ]
        result = evaluate(cases, outputs, [SAME, BROKEN], ExperimentMetadata(name="x"))
        text = result.model_dump_json()
        again = EvaluationRunResult.model_validate_json(text)
        assert again == result
        assert again.model_dump_json() == text
        assert EvaluationRunResult.model_validate(json.loads(text)) == result

    def test_an_answer_with_half_a_character_can_be_written_down(self):
        result = evaluate([capital()], [Output(value="Par\ud800is")], [SAME])
        data = json.loads(result.model_dump_json())
        assert data["results"][0]["execution_context"]["output"]["value"] == "Par\ud800is"
