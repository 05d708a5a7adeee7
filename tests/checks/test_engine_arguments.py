"""EVALUATE: arguments, as paths and literals, declared and typed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fepflow.checks.contains import ContainsCheck
from fepflow.checks.engine import evaluate
from fepflow.checks.exact_match import ExactMatchCheck
from fepflow.checks.regex import RegexCheck
from fepflow.protocol.check import Check
from fepflow.protocol.test_case import Output, TestCase

from .engine_cases import SAME, capital, results_of, says


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

    def test_megabytes_of_text_are_checked_like_any_other(self):
        text = "Paris " * 500_000
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

    @given(st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), min_size=1, max_size=8))
    def test_one_instance_serves_many_cases_without_remembering_any(self, pairs):
        check = ExactMatchCheck(actual="$.output.value", expected="$.test_case.expected")
        before = check.model_dump()
        cases = [TestCase(id=str(index), input="", expected=expected) for index, (_, expected) in enumerate(pairs)]
        result = evaluate(cases, [Output(value=value) for value, _ in pairs], [check, check])
        verdicts = [[item.results["passed"] for item in case.check_results] for case in result.results]
        assert verdicts == [[value == expected] * 2 for value, expected in pairs]
        assert check.model_dump() == before
