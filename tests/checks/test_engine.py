import asyncio
import gc
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.base import BaseAsyncCheck, BaseCheck, JSONPath
from checks.contains import ContainsCheck
from checks.core import compiled
from checks.custom_function import CustomFunctionCheck
from checks.engine import MAX_WAITING, evaluate, evaluate_async
from checks.exact_match import ExactMatchCheck
from checks.regex import RegexCheck
from checks.registry import register
from fepflow.errors import InputError
from fepflow.protocol.check import Check
from fepflow.protocol.results import EvaluationRunResult, ExperimentMetadata
from fepflow.protocol.test_case import Output, TestCase

SAME = Check(type="exact_match", arguments={"actual": "$.output.value", "expected": "$.test_case.expected"})
BROKEN = Check(type="exact_match", arguments={"actual": "$.output.value"})


def says(text, **more):
    return Check(type="contains", arguments={"text": "$.output.value", "phrases": text}, **more)


def capital(id="case", **more):
    return TestCase(id=id, input="What is the capital of France?", expected="Paris", **more)


def results_of(result, index=0):
    return [(item.check_id, item.status, item.results.get("passed")) for item in result.results[index].check_results]


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
        with pytest.raises(InputError, match="there are no test cases"):
            evaluate([], [], [SAME])

    def test_a_missing_output_is_refused(self):
        with pytest.raises(InputError, match="2 test cases but 1 outputs"):
            evaluate([capital("a"), capital("b")], [Output(value="Paris")], [SAME])

    def test_a_missing_list_of_checks_is_refused(self):
        with pytest.raises(InputError, match="2 test cases but 1 lists of checks"):
            evaluate([capital("a"), capital("b")], [Output(value=""), Output(value="")], [[SAME]])

    def test_a_duplicate_id_is_refused(self):
        with pytest.raises(InputError, match=r"the id 'a' stands twice: test_cases\[0\] and test_cases\[2\]"):
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


class TestArguments:
    def test_resolved_arguments_are_shown_with_their_path_and_defaults_without(self):
        result = evaluate([capital()], [Output(value="Paris")], [SAME])
        assert result.results[0].check_results[0].resolved_arguments == {
            "actual": {"jsonpath": "$.output.value", "value": "Paris"},
            "expected": {"jsonpath": "$.test_case.expected", "value": "Paris"},
            "negate": {"value": False},
            "case_sensitive": {"value": True},
        }

    def test_a_literal_is_shown_without_its_escape(self):
        check = Check(type="exact_match", arguments={"actual": "\\$.output.value", "expected": "$.output.value"})
        result = evaluate([capital()], [Output(value="$.output.value")], [check])
        assert results_of(result) == [("exact_match", "completed", True)]
        assert result.results[0].check_results[0].resolved_arguments["actual"] == {"value": "$.output.value"}

    @pytest.mark.parametrize("text", ["$[0]", "$x", " $.output.value", "$", "\\\\$.x", "a $.output.value"])
    def test_what_only_looks_like_a_path_is_a_literal(self, text):
        check = Check(type="exact_match", arguments={"actual": text, "expected": "$.output.value"})
        assert results_of(evaluate([capital()], [Output(value=text)], [check])) == [("exact_match", "completed", True)]

    @pytest.mark.parametrize("declared", [True, False])
    def test_a_text_from_an_output_is_never_a_path_again(self, declared):
        check = ExactMatchCheck(actual="$.output.value", expected="$.test_case.expected")
        case = TestCase(id="case", input="?", expected="$.test_case.input")
        result = evaluate([case], [Output(value="$.test_case.input")], [check.to_check() if declared else check])
        assert results_of(result) == [("exact_match", "completed", True)]

    def test_paths_and_escapes_work_at_every_depth(self):
        actual = {"a": ["$.output.value", {"b": "\\$.x", "c": ["$.test_case.id"]}], "$.k": 1}
        expected = {"a": ["Paris", {"b": "$.x", "c": ["case"]}], "$.k": 1}
        check = Check(type="exact_match", arguments={"actual": actual, "expected": "$.test_case.expected"})
        case = TestCase(id="case", input="?", expected=expected)
        result = evaluate([case], [Output(value="Paris")], [check]).results[0].check_results[0]
        assert result.results == {"passed": True}
        assert result.resolved_arguments["actual"] == {"value": expected}

    def test_several_nodes_are_a_list_and_one_is_itself(self):
        value = {"steps": [{"tool": "search"}, {"tool": "book"}]}
        several = Check(
            type="exact_match", arguments={"actual": "$.output.value.steps[*].tool", "expected": ["search", "book"]}
        )
        one = Check(
            type="exact_match", arguments={"actual": "$.output.value.steps[?@.tool=='book'].tool", "expected": "book"}
        )
        result = evaluate([capital()], [Output(value=value)], [several, one])
        assert [passed for _, _, passed in results_of(result)] == [True, True]


class TestOddArguments:
    def test_cyclic_arguments_are_an_error_of_that_check(self):
        endless: list[Any] = []
        endless.append(endless)
        check = Check(type="exact_match", arguments={"actual": endless, "expected": "$.output.value"})
        result = evaluate([capital()], [Output(value="Paris")], [check, SAME])
        error = result.results[0].check_results[0].error
        assert (error.type, "contain themselves" in error.message) == ("validation_error", True)
        assert results_of(result)[1] == ("exact_match-2", "completed", True)

    def test_an_option_inside_an_object_may_be_a_path_typed_or_declared(self):
        typed = RegexCheck(text="$.output.value", pattern="^p", flags={"case_insensitive": "$.test_case.metadata.fold"})
        cases = [capital("a", metadata={"fold": True}), capital("b", metadata={"fold": False})]
        result = evaluate(cases, [Output(value="Paris")] * 2, [typed, typed.to_check()])
        assert [passed for index in (0, 1) for _, _, passed in results_of(result, index)] == [True, True, False, False]
        shown = result.results[0].check_results[0].resolved_arguments["flags"]
        assert shown == {"value": {"case_insensitive": True}}

    def test_a_path_that_may_take_long_is_looked_up_in_a_thread_and_the_answer_is_the_same(self):
        items = [{"id": index, "tags": ["a"] * (index % 3)} for index in range(200)]
        check = Check(
            type="equals", arguments={"actual": "$.output.value[?count($..id)==200 && @.id==7].id", "expected": 7}
        )
        slow = Check(
            type="equals", arguments={"actual": "$.output.value[?@.id==$.test_case.metadata.n].id", "expected": 8}
        )
        result = evaluate([capital(metadata={"n": 8})], [Output(value=items)], [slow, SAME, says("x")])
        assert results_of(result)[0] == ("equals", "completed", True)
        small = evaluate([capital(metadata={"n": 1})], [Output(value=items[:2])], [check])
        assert small.results[0].check_results[0].error.type == "jsonpath_error"

    def test_ten_megabytes_of_text_are_checked_like_any_other(self):
        text = "Paris " * 1_700_000
        checks = [says("Paris"), SAME, Check(type="is_empty", arguments={"value": "$.output.value"})]
        result = evaluate([capital()], [Output(value=text)], checks)
        assert [passed for _, _, passed in results_of(result)] == [True, False, False]


class TestTypedChecks:
    def test_an_instance_is_the_same_as_its_declaration(self):
        typed = ContainsCheck(text="$.output.value", phrases=["$.test_case.expected"], case_sensitive=False)
        declared = Check(
            type="contains",
            arguments={"text": "$.output.value", "phrases": ["$.test_case.expected"], "case_sensitive": False},
            version="1.0.0",
        )
        assert typed.to_check() == declared
        outputs = [Output(value="PARIS")]
        given, said = (
            evaluate([capital()], outputs, [check]).results[0].check_results[0] for check in (typed, declared)
        )
        assert (given.results, given.resolved_arguments) == (said.results, said.resolved_arguments)

    def test_an_escaped_literal_survives_the_way_to_its_declaration_and_back(self):
        check = ExactMatchCheck(actual="\\$.99", expected="$.output.value")
        assert check.actual == "$.99"
        assert check.to_check().arguments == {"actual": "\\$.99", "expected": "$.output.value"}
        assert results_of(evaluate([capital()], [Output(value="$.99")], [check])) == [
            ("exact_match", "completed", True)
        ]

    def test_an_instance_cannot_be_changed(self):
        check = ExactMatchCheck(actual="a", expected="b")
        with pytest.raises(ValueError, match="frozen"):
            setattr(check, "actual", "b")  # noqa: B010  # a type checker refuses the assignment, too

    @settings(max_examples=50)
    @given(st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), min_size=1, max_size=20))
    def test_one_instance_serves_many_cases_without_remembering_any(self, pairs):
        check = ExactMatchCheck(actual="$.output.value", expected="$.test_case.expected")
        before = check.model_dump()
        cases = [TestCase(id=str(index), input="", expected=expected) for index, (_, expected) in enumerate(pairs)]
        result = evaluate(cases, [Output(value=value) for value, _ in pairs], [check, check])
        verdicts = [[item.results["passed"] for item in case.check_results] for case in result.results]
        assert verdicts == [[value == expected] * 2 for value, expected in pairs]
        assert check.model_dump() == before


def my_check():
    """A custom check as flex-evals' README writes one; only its imports differ."""
    from typing import Any

    from pydantic import Field, field_validator

    @register("my_check", version="1.0.0")
    class MyCheck(BaseCheck):
        """Custom check with JSONPath support."""

        text: str | JSONPath = Field(..., description="Text to analyze")
        pattern: str | JSONPath = Field(..., description="Pattern to match")
        threshold: float | JSONPath = Field(0.5, description="Minimum score threshold")

        @field_validator("text", "pattern", "threshold", mode="before")
        @classmethod
        def convert_jsonpath(cls, v):
            if isinstance(v, str) and v.startswith("$."):
                return JSONPath(expression=v)
            return v

        def __call__(self) -> dict[str, Any]:
            score = float(self.pattern in self.text)
            return {"score": score, "passed": score >= self.threshold, "threshold_used": self.threshold}

    return MyCheck


def subclass(base: type[BaseCheck], check_type: str, call: Callable[[Any], Any]) -> type[BaseCheck]:
    return type("OwnCheck", (base,), {"check_type": check_type, "__call__": call})


class TestCustomChecks:
    def test_a_check_written_for_flex_evals_runs(self):
        check_class = my_check()
        assert check_class(text="test input", pattern="test", threshold=0.7)() == {
            "score": 1.0,
            "passed": True,
            "threshold_used": 0.7,
        }
        typed = check_class(text="$.output.value", pattern="$.test_case.input", threshold=0.8)
        declared = Check(
            type="my_check",
            arguments={"text": "$.output.value", "pattern": "$.test_case.input", "threshold": 0.8},
        )
        result = evaluate([TestCase(id="a", input="test")], [Output(value="a test")], [typed, declared])
        assert [item.results["score"] for item in result.results[0].check_results] == [1.0, 1.0]

    def test_its_validator_does_not_take_an_answer_for_a_path(self):
        typed = my_check()(text="$.output.value", pattern="$.test_case.input")
        case = TestCase(id="a", input="$.output")
        result = evaluate([case], [Output(value="$.output.value")], [typed, typed.to_check()])
        assert [passed for _, _, passed in results_of(result)] == [True, True]

    def test_an_instance_of_a_class_that_is_not_registered_runs_as_well(self):
        class Unregistered(BaseCheck):
            check_type = "unregistered"
            text: str | JSONPath

            def __call__(self):
                return {"passed": self.text == "Paris"}

        result = evaluate([capital()], [Output(value="Paris")], [Unregistered(text="$.output.value")])
        assert results_of(result) == [("unregistered", "completed", True)]

    def test_an_async_check_is_awaited_and_results_stay_in_order(self):
        @register("slow_check")
        class SlowCheck(BaseAsyncCheck):
            text: str | JSONPath

            async def __call__(self):
                await asyncio.sleep(0.001)
                return {"passed": self.text == "Paris"}

        checks = [SlowCheck(text="$.output.value"), SAME, Check(type="slow_check", arguments={"text": "Rome"})]
        result = evaluate([capital()], [Output(value="Paris")], checks)
        assert results_of(result) == [
            ("slow_check", "completed", True),
            ("exact_match", "completed", True),
            ("slow_check-2", "completed", False),
        ]

    def test_the_number_of_waiting_cases_is_bounded(self):
        under_way: list[Any] = []
        most = 0

        class Counting(BaseAsyncCheck):
            check_type = "counting"

            async def __call__(self):
                nonlocal most
                under_way.append(self)
                most = max(most, len(under_way))
                await asyncio.sleep(0.001)
                under_way.pop()
                return {"passed": True}

        count = MAX_WAITING * 3
        cases = [TestCase(id=str(index), input="") for index in range(count)]
        result = evaluate(cases, [Output(value="")] * count, [Counting()])
        assert [item.execution_context.test_case.id for item in result.results] == [case.id for case in cases]
        assert 1 < most <= MAX_WAITING

    @pytest.mark.parametrize("base", [BaseCheck, BaseAsyncCheck])
    def test_an_exception_is_an_unknown_error_of_that_check_only(self, base):
        def fail(self):
            raise ZeroDivisionError("by zero")

        raising = subclass(base, "raising", fail)
        result = evaluate([capital()], [Output(value="Paris")], [raising(), SAME])
        error = result.results[0].check_results[0].error
        assert (error.type, error.recoverable) == ("unknown_error", False)
        assert error.message == "raising failed: ZeroDivisionError: by zero"
        assert results_of(result)[1] == ("exact_match", "completed", True)

    def test_an_exception_in_an_async_check_is_an_unknown_error_too(self):
        class Raising(BaseAsyncCheck):
            check_type = "raising"

            async def __call__(self):
                await asyncio.sleep(0)
                raise KeyError("score")

        error = evaluate([capital()], [Output(value="")], [Raising()]).results[0].check_results[0].error
        assert (error.type, error.message) == ("unknown_error", "raising failed: KeyError: 'score'")

    @pytest.mark.parametrize(
        ("answer", "what"), [(True, "not bool"), (None, "not NoneType"), ([], "not list"), ("passed", "not str")]
    )
    @pytest.mark.parametrize("base", [BaseCheck, BaseAsyncCheck])
    def test_what_it_returns_must_be_a_dict(self, base, answer, what):
        odd = subclass(base, "odd", lambda self: answer)

        class OddAsync(BaseAsyncCheck):
            check_type = "odd"

            async def __call__(self):
                return answer

        check = OddAsync() if base is BaseAsyncCheck else odd()
        error = evaluate([capital()], [Output(value="")], [check]).results[0].check_results[0].error
        assert error.type == "validation_error"
        assert "must return a dict of results" in error.message
        assert what in error.message

    def test_what_it_returns_must_be_json(self):
        class Odd(BaseCheck):
            check_type = "odd"

            def __call__(self):
                return {"passed": True, "thing": object()}

        result = evaluate([capital()], [Output(value="")], [Odd(), SAME])
        error = result.results[0].check_results[0].error
        assert error.type == "validation_error"
        assert "odd must return JSON values" in error.message
        assert json.loads(result.model_dump_json())

    def test_a_dict_that_it_returns_again_and_again_is_copied(self):
        shared = {"passed": True, "count": 0}

        class Same(BaseCheck):
            check_type = "same"

            def __call__(self):
                shared["count"] += 1
                return shared

        result = evaluate([capital("a"), capital("b")], [Output(value="")] * 2, [Same()])
        assert [case.check_results[0].results["count"] for case in result.results] == [1, 2]

    def test_a_check_that_never_returns_times_out(self, monkeypatch):
        monkeypatch.setattr(compiled, "TIME_LIMIT", 0.05)

        class Silent(BaseAsyncCheck):
            check_type = "silent"

            async def __call__(self):
                await asyncio.Event().wait()

        result = evaluate([capital()], [Output(value="Paris")], [Silent(), SAME])
        assert result.results[0].check_results[0].error.type == "timeout_error"
        assert results_of(result)[1] == ("exact_match", "completed", True)

    def test_a_time_out_of_its_own_is_its_own(self):
        class Impatient(BaseAsyncCheck):
            check_type = "impatient"

            async def __call__(self):
                raise TimeoutError("the model is busy")

        error = evaluate([capital()], [Output(value="")], [Impatient()]).results[0].check_results[0].error
        assert error.type == "timeout_error"
        assert "60 s" not in error.message

    def test_parameters_of_its_call_are_arguments_with_their_types_and_defaults(self):
        @register("longer")
        class Longer(BaseCheck):
            text: str | JSONPath

            def __call__(self, than: int, *, unit: str = "characters"):
                return {"passed": len(self.text) > than, "unit": unit}

        direct: BaseCheck = Longer(text="Paris", than=4)
        assert direct() == {"passed": True, "unit": "characters"}
        typed = Longer(text="$.output.value", than="$.test_case.metadata.than", unit="letters")
        wrong = Check(type="longer", arguments={"text": "$.output.value", "than": "many"})
        result = evaluate([capital(metadata={"than": 5})], [Output(value="Paris")], [typed, typed.to_check(), wrong])
        *answers, refused = result.results[0].check_results
        assert [answer.results for answer in answers] == [{"passed": False, "unit": "letters"}] * 2
        assert answers[0].resolved_arguments["than"] == {"jsonpath": "$.test_case.metadata.than", "value": 5}
        assert "than: must be a whole number" in refused.error.message

    def test_what_it_changes_is_its_own_copy_of_literals_and_outputs(self):
        class Greedy(BaseCheck):
            check_type = "greedy"
            words: Any
            answer: Any

            def __call__(self):
                self.words.append("more")
                self.answer["steps"].clear()
                return {"passed": True, "words": self.words}

        answer = {"steps": ["search"]}
        check = Greedy(words=["first"], answer="$.output.value")
        cases = [capital(str(index)) for index in range(3)]
        result = evaluate(cases, [Output(value=answer)] * 3, [check, check])
        told = [item.results["words"] for case in result.results for item in case.check_results]
        assert told == [["first", "more"]] * 6
        assert (answer, check.words) == ({"steps": ["search"]}, ["first"])

    @pytest.mark.parametrize("seconds", [0, compiled.INLINE_WAIT * 3])
    def test_one_that_is_not_async_runs_in_a_thread_and_one_at_a_time(self, seconds):
        under_way: list[Any] = []

        class Blocking(BaseCheck):
            check_type = "blocking"
            text: str | JSONPath

            def __call__(self):
                assert not under_way
                under_way.append(self.text)
                time.sleep(seconds)
                under_way.clear()
                return {"passed": True, "thread": threading.current_thread().name}

        cases = [capital(str(index)) for index in range(4)]
        result = evaluate(cases, [Output(value="Paris")] * 4, [Blocking(text="$.output.value"), SAME])
        assert {case.check_results[0].results["thread"] for case in result.results} == {"fepflow-checks"}
        assert [case.check_results[1].results["passed"] for case in result.results] == [True] * 4

    async def test_a_blocking_check_does_not_block_the_loop(self):
        loop_is_alive = threading.Event()

        class Waiting(BaseCheck):
            check_type = "waiting"

            def __call__(self):
                return {"passed": loop_is_alive.wait(10)}

        asyncio.get_running_loop().call_later(0.1, loop_is_alive.set)
        result = await evaluate_async([capital()], [Output(value="Paris")], [Waiting()])
        assert results_of(result) == [("waiting", "completed", True)]

    def test_a_check_that_blocks_times_out_and_the_next_one_runs(self, monkeypatch):
        monkeypatch.setattr(compiled, "TIME_LIMIT", 0.1)
        released = threading.Event()

        class Stuck(BaseCheck):
            check_type = "stuck"
            text: str | JSONPath

            def __call__(self):
                return {"passed": self.text != "stuck" or released.wait(20)}

        cases = [capital("a"), capital("b")]
        result = evaluate(cases, [Output(value="stuck"), Output(value="Paris")], [Stuck(text="$.output.value"), SAME])
        released.set()
        error = result.results[0].check_results[0].error
        assert (error.type, error.message) == ("timeout_error", "stuck did not answer within 0.1 s")
        assert results_of(result, 1) == [("stuck", "completed", True), ("exact_match", "completed", True)]

    @pytest.mark.parametrize("base", [BaseCheck, BaseAsyncCheck])
    def test_an_exception_without_a_message_is_named_by_its_type(self, base):
        class MuteError(Exception):
            def __str__(self):
                raise ValueError

        def fail(self):
            raise MuteError

        raising = subclass(base, "raising", fail)
        error = evaluate([capital()], [Output(value="")], [raising()]).results[0].check_results[0].error
        assert error.message == "raising failed: MuteError: it has no message"

    def test_a_function_among_its_arguments_is_shown_by_name(self):
        class Calling(BaseCheck):
            check_type = "calling"
            function: Any

            def __call__(self):
                return {"passed": self.function("a")}

        result = evaluate([capital()], [Output(value="")], [Calling(function=str.isalpha)])
        assert result.results[0].check_results[0].resolved_arguments["function"] == {"value": "str.isalpha"}
        assert json.loads(result.model_dump_json())


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
        cases = [capital(str(index)) for index in range(3_000)]
        await evaluate_async(cases, [Output(value="Paris")] * 3_000, [SAME, says("Paris")])
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
