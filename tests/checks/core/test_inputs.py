"""What `evaluate` takes: objects, dicts in FEP's form, and plain values, by one rule."""

from __future__ import annotations

import pytest

from fepflow.checks.base import BaseCheck, JSONPath
from fepflow.checks.contains import ContainsCheck
from fepflow.checks.engine import evaluate
from fepflow.errors import InputError
from fepflow.protocol.results import EvaluationRunResult
from fepflow.protocol.test_case import Output, TestCase

FOUR = ContainsCheck(id="mentions", text="$.output.value", phrases="4")


def seen(cases, outputs):
    contexts = [result.execution_context for result in evaluate(cases, outputs, [FOUR]).results]
    return [(context.test_case.input, context.output.value) for context in contexts]


def test_plain_values_are_inputs_and_values():
    assert seen(["2+2?", 5, None, ["a"]], ["4", 4, None, ["4"]]) == [
        ("2+2?", "4"),
        (5, 4),
        (None, None),
        (["a"], ["4"]),
    ]


def test_a_dict_with_the_key_is_the_document_and_any_other_dict_the_value():
    cases = [{"input": "x", "expected": "4"}, {"question": "y"}, {"input": {"input": 1}}]
    outputs = [{"value": "4", "metadata": {"tokens": 3}}, {"answer": "4"}, Output(value={"value": "4"})]
    assert seen(cases, outputs) == [("x", "4"), ({"question": "y"}, {"answer": "4"}), ({"input": 1}, {"value": "4"})]
    result = evaluate(cases, outputs, [FOUR]).results[0].execution_context
    assert (result.test_case.expected, result.output.metadata) == ("4", {"tokens": 3})


def test_cases_of_other_tools_are_cases_and_a_dict_of_other_things_is_an_input():
    cases = [{"inputs": "x", "expected_output": "4", "metadata": {"a": 1}}, {"inputs": "x", "question": "y"}]
    assert seen(cases, ["4", "5"]) == [("x", "4"), (cases[1], "5")]
    for case in (cases[0], {"input": "x", "expected_output": "4"}):
        assert evaluate([case], ["4"], [FOUR]).results[0].execution_context.test_case.expected == "4"


def test_an_invalid_document_is_refused_with_all_its_errors():
    with pytest.raises(InputError) as caught:
        evaluate([{"input": 1, "inptu": 2}, {"input": 1, "id": 7}], ["a", "b"], [])
    assert [problem.path for problem in caught.value.problems] == ["test_cases[0].inptu", "test_cases[1].id"]
    with pytest.raises(InputError, match=r"outputs\[1\]\.unit: .*else write Output\(value=...\)"):
        evaluate(["a", "b"], ["x", {"value": 3, "unit": "kg"}], [])


def test_equal_plain_cases_get_different_ids_and_given_ids_stay_unique():
    ids = [
        result.execution_context.test_case.id for result in evaluate(["a", "a", {"input": "a"}], [*"xyz"], []).results
    ]
    assert ids == [ids[0], f"{ids[0]}-2", f"{ids[0]}-3"]
    with pytest.raises(InputError, match="appears twice"):
        evaluate([{"id": "a", "input": 1}, {"id": "a", "input": 2}], [1, 2], [])
    with pytest.raises(InputError, match="appears twice"):
        evaluate([TestCase(input=1), TestCase(input=1)], [1, 2], [])


def test_checks_may_be_dicts_shared_or_for_each_case():
    empty = {"type": "is_empty", "arguments": {"value": "$.output.value"}, "id": "void"}
    results = evaluate(["a", "b"], ["4", ""], [[FOUR], [empty]]).results
    assert [[check.check_id for check in result.check_results] for result in results] == [["mentions"], ["void"]]
    assert evaluate(["a"], [""], [empty]).pass_rate == 1
    with pytest.raises(InputError, match=r"checks\[0\]\.type: is missing"):
        evaluate(["a"], [""], [{"typ": "is_empty"}])


def test_a_typed_check_takes_an_id_that_is_not_an_argument():
    assert FOUR.to_check().id == "mentions"
    assert "id" not in FOUR.to_check().arguments
    same, other = (ContainsCheck(id=name, text="$.output.value", phrases="4") for name in ("mentions", "b"))
    assert FOUR == same != other
    assert hash(FOUR) == hash(same)
    with pytest.raises(ValueError, match="letters, digits"):
        ContainsCheck(id="not an id", text="a", phrases="b")


def test_a_check_whose_argument_is_called_id_keeps_it():
    class OwnCheck(BaseCheck):
        id: str | JSONPath

        def __call__(self):
            return {"passed": self.id == "x"}

    result = evaluate(["a"], ["x"], [OwnCheck(id="$.output.value")])
    assert result.pass_rate == 1
    assert result.results[0].check_results[0].check_id == "OwnCheck"


def test_pass_rate_counts_errors_and_is_none_without_checks():
    results = evaluate(["a", "b", "c", "d"], ["4", "5", 4, "44"], [FOUR])
    assert results.pass_rate == 0.5
    assert [result.execution_context.output.value for result in results.failed] == ["5", 4]
    assert repr(results) == str(results) == "EvaluationRunResult(4 results, pass_rate=0.5, 2 failed)"
    assert evaluate(["a"], ["b"], []).pass_rate is None
    assert evaluate(["a"], ["b"], [FOUR, ContainsCheck(text="b", phrases="b")]).pass_rate == 0
    assert EvaluationRunResult.model_validate_json(results.model_dump_json()) == results
