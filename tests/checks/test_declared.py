"""The result of a tool against the schema that its server declared, which nobody has vouched for."""

from typing import Any

import pytest

from fepflow.checks.declared import DeclaredCheck
from fepflow.checks.engine import evaluate
from fepflow.checks.explanation import explain
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase

SCHEMA = {"type": "object", "required": ["total"], "properties": {"total": {"type": "number"}}}
ANSWER = {"outcome": "answer", "outputSchema": SCHEMA, "structuredContent": {"total": 9.5}}


def declared(**metadata: Any) -> CheckResult:
    output = Output(value="?", metadata={name: value for name, value in metadata.items() if value is not None})
    return evaluate([TestCase(id="a", input="?")], [output], [DeclaredCheck()]).results[0].check_results[0]


def test_it_passes_for_a_result_that_fits_and_needs_no_arguments() -> None:
    result = declared(**ANSWER)
    assert (result.passed, result.results) == (True, {"passed": True, "validation_errors": []})
    assert result.resolved_arguments["data"] == {
        "jsonpath": "$.output.metadata.structuredContent",
        "value": {"total": 9.5},
    }


def test_it_fails_for_what_does_not_fit() -> None:
    metadata: Any
    for metadata, sentence in [
        ({"structuredContent": {"total": "9"}}, "total: '9' is not of type 'number'"),
        ({"structuredContent": {}}, "'total' is a required property"),
        ({"structuredContent": '{"total": 9.5}'}, """'{"total": 9.5}' is not of type 'object'"""),
        (
            {"structuredContent": None},
            "the result has no structuredContent, which a tool with an outputSchema must give",
        ),
        ({"outcome": "error"}, "the tool answered with an error"),
    ]:
        result = declared(**{**ANSWER, **metadata})
        assert (result.passed, explain(result)) == (False, sentence)


def test_it_passes_for_an_error_that_the_case_expects() -> None:
    assert declared(outcome="refusal", outputSchema=SCHEMA).passed is True


def test_without_a_schema_that_can_be_followed_it_is_an_error_and_never_a_pass() -> None:
    for schema, words in [
        (None, "the tool declares no outputSchema"),
        ({"type": "nothing"}, "the tool's outputSchema must be a JSON Schema"),
        ({"$ref": "http://127.0.0.1:1/schema"}, "which is not in it"),
        ({"$ref": "#"}, "the schema refers to itself without end"),
        ({"pattern": "(a+)+$", "type": "string"}, None),
    ]:
        data = "a" * 30 + "!" if words is None else {"total": 9.5}
        result = declared(**{**ANSWER, "outputSchema": schema, "structuredContent": data})
        assert result.passed is not True
        assert words is None or (result.error is not None and words in result.error.message)


@pytest.mark.parametrize("outcome", ["error", "refusal"])
def test_a_tool_without_a_schema_is_an_error_whatever_it_answered(outcome: str) -> None:
    assert declared(outcome=outcome).error is not None
