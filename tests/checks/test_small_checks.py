"""equals, is_empty, attribute_exists, json_valid, custom_function."""

import asyncio
import json
import threading
from functools import partial

import pytest

from fepflow.checks.attribute_exists import AttributeExistsCheck
from fepflow.checks.core import compiled
from fepflow.checks.custom_function import CustomFunctionCheck
from fepflow.checks.engine import evaluate
from fepflow.checks.equals import EqualsCheck
from fepflow.checks.is_empty import IsEmptyCheck
from fepflow.checks.json_valid import JSONValidCheck
from fepflow.protocol.check import Check
from fepflow.protocol.test_case import Output, TestCase


class TestEquals:
    @pytest.mark.parametrize(
        ("actual", "expected", "same"),
        [
            (1, 1.0, True),
            (1, True, False),
            (0, False, False),
            (None, None, True),
            (None, False, False),
            ("1", 1, False),
            ([1, 2], [2, 1], False),
            ({"a": 1, "b": {"c": []}}, {"b": {"c": []}, "a": 1}, True),
            ("Paris", "paris", False),
            ("", None, False),
        ],
    )
    def test_values_of_any_kind_are_equal_as_json_is(self, passed, actual, expected, same):
        assert passed("equals", answer=actual, actual="$.output.value", expected=expected) is same
        assert passed("equals", actual=actual, expected=expected, negate=True) is not same

    def test_nan_equals_nothing(self, passed):
        nan = float("nan")
        assert not passed("equals", answer=[nan], actual="$.output.value", expected=[float("nan")])

    def test_it_can_be_called_directly(self):
        assert EqualsCheck(actual=(1, 2), expected=[1, 2])() == {"passed": True}


class TestIsEmpty:
    @pytest.mark.parametrize("value", [None, "", "  \n\t\u2003", [], {}])
    def test_nothing_and_white_space_are_empty(self, passed, value):
        assert passed("is_empty", answer=value, value="$.output.value")
        assert not passed("is_empty", answer=value, value="$.output.value", negate=True)

    @pytest.mark.parametrize("value", [0, 0.0, False, " x ", [None], {"": None}, [[]]])
    def test_a_number_a_boolean_and_anything_with_members_are_not(self, passed, value):
        assert not passed("is_empty", answer=value, value="$.output.value")

    def test_white_space_counts_on_request(self, passed):
        assert not passed("is_empty", value=" ", strip_whitespace=False)
        assert passed("is_empty", value="", strip_whitespace=False)

    def test_it_can_be_called_directly(self):
        assert IsEmptyCheck(value=set())() == {"passed": True}


class TestAttributeExists:
    @pytest.mark.parametrize(
        ("path", "there"),
        [
            ("$.output.value.answer", True),
            ("$.output.value.nothing", True),
            ("$.output.value.error", False),
            ("$.output.value.steps[1]", True),
            ("$.output.value.steps[2]", False),
            ("$.output.value.steps[-1].tool", True),
            ("$.output.value.steps[?@.tool=='book']", True),
            ("$.output.value.steps[?@.tool=='fly']", False),
            ("$.output..tool", True),
            ("$.output.metadata.tokens", False),
            ("$.test_case.expected", True),
        ],
    )
    def test_it_passes_when_the_path_finds_something_be_it_null(self, passed, path, there):
        answer = {"answer": "Paris", "nothing": None, "steps": [{"tool": "search"}, {"tool": "book"}]}
        assert passed("attribute_exists", answer=answer, path=path) is there
        assert passed("attribute_exists", answer=answer, path=path, negate=True) is not there

    def test_what_was_found_is_shown_and_null_where_nothing_was(self, ask):
        for answer, found in (({"a": 5}, 5), ({}, None)):
            shown = ask("attribute_exists", answer=answer, path="$.output.value.a").resolved_arguments
            assert shown == {"path": {"jsonpath": "$.output.value.a", "value": found}, "negate": {"value": False}}

    @pytest.mark.parametrize("path", ["output.value", "", "$", "\\$.output.value", 5, None, ["$.output.value"], {}])
    def test_a_value_that_is_not_a_path_is_refused(self, refused, path):
        assert "path" in refused("attribute_exists", path=path)

    def test_a_broken_path_is_an_error_and_not_an_absence(self, ask):
        assert ask("attribute_exists", path="$.output.[", negate=True).error.type == "jsonpath_error"

    def test_a_path_that_had_to_be_given_up_is_an_error_and_not_an_absence(self, ask):
        result = ask("attribute_exists", answer=[[0] * 200] * 100, path="$.output.value[*][*]", negate=True)
        assert result.error.type == "jsonpath_error"
        assert "more than 10,000 values" in result.error.message

    def test_a_class_takes_paths_only(self):
        with pytest.raises(ValueError, match="must be a JSONPath"):
            AttributeExistsCheck(path="output.value")

    def test_negate_may_be_a_path_which_must_find_a_value(self, ask):
        result = ask("attribute_exists", path="$.output.value.a", negate="$.test_case.metadata.negate")
        assert result.error.type == "jsonpath_error"


class TestJsonValid:
    @pytest.mark.parametrize("text", ["{}", "[1, 2.5e3]", '"a"', "null", " true ", '{"a": {"b": [null]}}', "0"])
    def test_json_passes(self, results, text):
        assert results("json_valid", answer=text, text="$.output.value") == {"passed": True, "validation_errors": []}

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("", "Expecting value"),
            ("{'a': 1}", "Expecting property name"),
            ('{"a": 1,}', "column 9"),
            ("NaN", "NaN is not a JSON value"),
            ("1e999", "too large"),
            ('{"a": 1, "a": 2}', "appears twice"),
            ("```json\n{}\n```", "Expecting value"),
            ("Here it is: {}", "Expecting value"),
            ("[" * 101 + "]" * 101, "deeper than 100"),
            ("9" * 5_000, "digits"),
        ],
    )
    def test_invalid_json_fails_with_the_reason(self, results, text, why):
        told = results("json_valid", answer=text, text="$.output.value")
        assert told["passed"] is False
        assert why in told["validation_errors"][0]

    def test_with_a_schema_the_value_has_to_be_as_it_says(self, results):
        told = results("json_valid", text='{"a": "x"}', schema={"properties": {"a": {"type": "integer"}}})
        assert told == {"passed": False, "validation_errors": ["a: 'x' is not of type 'integer'"]}

    @pytest.mark.parametrize("answer", [{"a": 1}, None, 5, ["{}"]])
    def test_a_value_that_is_not_a_text_is_refused(self, refused, answer):
        assert "text: must be a text" in refused("json_valid", answer=answer, text="$.output.value")

    def test_a_long_text_is_read_off_the_event_loop(self, passed):
        assert passed("json_valid", answer=json.dumps(list(range(50_000))), text="$.output.value")

    def test_it_can_be_called_directly(self):
        assert JSONValidCheck(text="{}")()["passed"]


def is_short(text, limit=10):
    return {"passed": len(text) <= limit, "length": len(text)}


async def is_short_later(text, limit=10):
    await asyncio.sleep(0)
    return is_short(text, limit)


class ShortnessJudge:
    async def __call__(self, text):
        return is_short(text)


class TestCustomFunction:
    def ask(self, function, answer="Paris", **arguments):
        check = CustomFunctionCheck(validation_function=function, function_args={"text": "$.output.value", **arguments})
        return evaluate([TestCase(id="a", input="?")], [Output(value=answer)], [check]).results[0].check_results[0]

    @pytest.mark.parametrize(
        "function",
        [is_short, is_short_later, partial(is_short, limit=10), lambda text: is_short(text), ShortnessJudge()],
    )
    def test_a_function_decides_whatever_kind_of_function_it_is(self, function):
        assert self.ask(function).results == {"passed": True, "length": 5}
        assert self.ask(function, "Constantinople").results == {"passed": False, "length": 14}

    def test_its_arguments_are_literals_and_paths_at_any_depth(self):
        def seen(**arguments):
            return {"passed": True, "seen": arguments}

        result = self.ask(seen, deep=[{"a": "$.test_case.id"}], escaped="\\$.x", number=5)
        assert result.results["seen"] == {"text": "Paris", "deep": [{"a": "a"}], "escaped": "$.x", "number": 5}
        assert result.resolved_arguments["function_args"]["value"] == result.results["seen"]

    def test_all_of_its_arguments_may_come_from_one_path(self):
        check = CustomFunctionCheck(validation_function=is_short, function_args="$.output.value")
        result = evaluate([TestCase(id="a", input="?")], [Output(value={"text": "abc", "limit": 2})], [check])
        assert result.results[0].check_results[0].results == {"passed": False, "length": 3}

    @pytest.mark.parametrize("function", ["lambda text: {'passed': True}", "is_short", "$.output.value", 5, None])
    def test_a_text_is_never_run(self, refused, function):
        message = refused("custom_function", validation_function=function)
        assert "must be a Python function, given from code; a text is never run" in message

    def test_a_function_that_raises_is_an_unknown_error(self):
        def broken(text):
            raise KeyError("score")

        error = self.ask(broken).error
        assert (error.type, error.message) == ("unknown_error", "custom_function failed: KeyError: 'score'")

    @pytest.mark.parametrize("error", [SystemExit(3), StopIteration(), StopAsyncIteration()])
    def test_a_function_that_would_end_the_program_or_a_loop_is_one_too(self, error):
        def leaving(text):
            raise error

        assert self.ask(leaving).error.type == "unknown_error"

    def test_wrong_argument_names_are_one_too(self):
        assert "unexpected keyword argument" in self.ask(is_short, words=5).error.message

    @pytest.mark.parametrize("answer", [True, None, 0.5, [], "passed"])
    def test_a_value_that_is_not_a_dict_is_refused(self, answer):
        error = self.ask(lambda text: answer).error
        assert error.type == "validation_error"
        assert "must return a dict of results" in error.message

    def test_what_it_changes_is_its_own_copy(self):
        def greedy(text, words):
            words.append(text)
            return {"passed": True, "words": words}

        check = CustomFunctionCheck(
            validation_function=greedy,
            function_args={"text": "$.test_case.id", "words": ["first", "$.output.value[0]"]},
        )
        cases, answer = [TestCase(id=str(index), input="?") for index in range(3)], ["second"]
        result = evaluate(cases, [Output(value=answer)] * 3, [check])
        words = [case.check_results[0].results["words"] for case in result.results]
        assert words == [["first", "second", str(index)] for index in range(3)]
        assert answer == ["second"]

    def test_a_function_that_takes_too_long_times_out_and_others_run(self, monkeypatch):
        monkeypatch.setattr(compiled, "TIME_LIMIT", 0.4)
        released = threading.Event()

        def stuck(text):
            released.wait(10)
            return {"passed": True}

        checks = [
            CustomFunctionCheck(validation_function=stuck, function_args={"text": "x"}),
            CustomFunctionCheck(validation_function=is_short, function_args={"text": "x"}),
        ]
        result = evaluate([TestCase(id="a", input="?")], [Output(value="")], checks).results[0]
        released.set()
        late, fine = result.check_results
        assert late.error.type == "timeout_error"
        assert "custom_function did not answer within 0.4 s" in late.error.message
        assert fine.results["passed"]

    def test_a_case_with_such_a_check_can_be_written_down(self):
        check = CustomFunctionCheck(validation_function=is_short, function_args={"text": "$.output.value"})
        declared = Check(type="custom_function", arguments=check.to_check().arguments)
        case = TestCase(id="a", input="?", checks=[check, declared])
        written = json.loads(evaluate([case], [Output(value="x")]).model_dump_json())
        carried = written["results"][0]["execution_context"]["test_case"]["checks"]
        assert [item["arguments"]["validation_function"] for item in carried] == ["is_short", "is_short"]
