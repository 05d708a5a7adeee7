"""EVALUATE: checks that users write, what they take and give, and what becomes of their mistakes."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from pydantic import Field

from fepflow.checks.base import BaseAsyncCheck, BaseCheck, JSONPath
from fepflow.checks.engine import evaluate
from fepflow.checks.registry import register
from fepflow.protocol.check import Check
from fepflow.protocol.test_case import Output, TestCase

from .engine_cases import SAME, capital, results_of
from .readme_check import register_my_check


def subclass(base: type[BaseCheck], check_type: str, call: Callable[[Any], Any]) -> type[BaseCheck]:
    return type("OwnCheck", (base,), {"check_type": check_type, "__call__": call})


class TestCustomChecks:
    def test_a_check_written_for_flex_evals_runs(self):
        check_class = register_my_check()
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
        typed = register_my_check()(text="$.output.value", pattern="$.test_case.input")
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

    def test_a_path_for_an_argument_that_takes_none_is_an_error_that_says_how_to_declare_it(self):
        class Literal(BaseCheck):
            check_type = "literal"
            text: str

            def __call__(self):
                return {"passed": True}

        register("literal")(Literal)
        (result,) = evaluate(
            [capital()], [Output(value="Paris")], [Check(type="literal", arguments={"text": "$.output.value"})]
        ).results
        assert "(declare it as text: ... | JSONPath)" in result.check_results[0].error.message

    def test_a_default_that_is_written_as_a_path_is_one(self):
        class Sees(BaseCheck):
            check_type = "sees"
            label: ClassVar[str] = "$.output.value"
            text: str | JSONPath = "$.output.value"
            told: str | JSONPath = Field("$.test_case.input", description="The question.")

            def __call__(self, wanted: str = "$.test_case.expected"):
                return {"passed": True, "saw": [self.label, self.text, self.told, wanted]}

        case = {"input": "Capital?", "expected": "Paris"}
        for check in (Sees(), Sees(text="$.output.value")):
            result = evaluate([case], ["It is Paris."], [check]).results[0].check_results[0]
            assert result.results["saw"] == ["$.output.value", "It is Paris.", "Capital?", "Paris"]

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
