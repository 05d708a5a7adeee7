"""Graders as checks: what they pass and what not, by the checks that they become."""

from __future__ import annotations

from typing import Any

import pytest
from ruamel.yaml import YAML

from fepflow.checks.engine import evaluate
from fepflow.documents.loader import Document
from fepflow.protocol.check import Check
from fepflow.protocol.test_case import Output, TestCase
from fepflow.suite.manifest import PartsReader, checks_of_step


def checks_of(*graders: dict[str, Any], index: int = 0) -> list[dict[str, Any]]:
    reader = PartsReader(Document({}, "manifest.yaml", ""), is_lenient=False)
    checks = checks_of_step(reader, graders, index, ("graders",))
    assert reader.problems == []
    return [check for check, *_ in checks]


def step(**said: Any) -> dict[str, Any]:
    names = ("public_output", "evaluation_context", "private_thought", "tool_calls", "usage")
    return {"status": "done", **dict.fromkeys(names), **said}


def judged(grader: str, *steps: dict[str, Any]) -> Any:
    """Whether the grader passes the last of these steps; the type of its error if it has one."""
    (check,) = checks_of(YAML(typ="safe").load(grader), index=len(steps) - 1)
    case, output = TestCase(id="a", input=["b"]), Output(value={"steps": list(steps)})
    result = evaluate([case], [output], [Check(**check)]).results[0].check_results[0]
    return result.results["passed"] if result.error is None else result.error.type


SAID = step(public_output="Your refund of $.5 is on its way.", evaluation_context="asked the shop")


@pytest.mark.parametrize(
    ("grader", "passes"),
    [
        ("{type: text_match, condition: contains, value: refund}", True),
        ("{type: text_match, condition: contains, value: Refund}", False),
        ("{type: text_match, condition: does_not_contain, value: sorry}", True),
        ("{type: text_match, condition: equals, value: refund}", False),
        ("{type: text_match, condition: regex, pattern: 'way\\.$'}", True),
        ("{type: text_match, condition: contains, value: $.5}", True),
        ("{type: text_match, condition: contains, value: $.output.value}", False),
        ("{type: text_match, condition: regex, pattern: '\\$.5'}", True),
        ("{type: text_match, condition: regex, pattern: $.5}", False),
        ("{type: text_match, field: evaluation_context, condition: equals, value: asked the shop}", True),
        ("{type: text_match, field: private_thought, condition: contains, value: shop}", False),
    ],
)
def test_a_text_is_matched_as_the_grader_says(grader: str, passes: bool) -> None:
    assert judged(grader, SAID) is passes
    assert judged(grader, step(), SAID) is passes


CALLS = [
    {"name": "lookup", "arguments": {"id": 7, "filter": {"kind": "a", "age": 2}}},
    {"tool": "refund", "args": {"id": 8, "path": "$.x"}},
]


@pytest.mark.parametrize(
    ("grader", "passes"),
    [
        ("{type: tool_usage}", True),
        ("{type: tool_usage, tool_name: lookup}", True),
        ("{type: tool_usage, tool_name: Lookup}", False),
        ("{type: tool_usage, tool_name: refund, arguments: {id: 8}}", True),
        ("{type: tool_usage, tool_name: refund, arguments: {id: 7}}", False),
        ("{type: tool_usage, arguments: {filter: {kind: a, age: 2}}}", True),
        ("{type: tool_usage, arguments: {filter: {kind: a}}}", False),
        ("{type: tool_usage, arguments: {path: $.x}}", True),
        ("{type: tool_usage, arguments: {id: '7'}}", False),
        ('{type: tool_usage, tool_name: ""}', True),
    ],
)
def test_one_call_has_the_name_and_the_arguments(grader: str, passes: bool) -> None:
    assert judged(grader, step(tool_calls=CALLS)) is passes


@pytest.mark.parametrize("calls", [None, []])
def test_without_calls_no_tool_was_used(calls: Any) -> None:
    assert judged("{type: tool_usage}", step(tool_calls=calls)) is False


@pytest.mark.parametrize("condition", ["contains", "equals", "does_not_contain"])
@pytest.mark.parametrize("said", [None, ""])
def test_an_empty_answer_passes_no_condition(condition: str, said: str | None) -> None:
    grader = f"{{type: text_match, condition: {condition}, value: ''}}"
    assert judged(grader, step(public_output=said)) is False


def test_a_pattern_that_is_none_is_an_error_of_its_grader() -> None:
    assert judged("{type: text_match, condition: regex, pattern: '('}", SAID) == "validation_error"


def test_a_step_without_a_result_is_an_error() -> None:
    checks = checks_of({"type": "text_match", "condition": "does_not_contain", "value": "sorry"}, index=1)
    output = Output(value={"steps": [SAID]})
    result = evaluate([TestCase(id="a", input=["b", "c"])], [output], [Check(**checks[0])]).results[0].check_results[0]
    assert (result.status, result.results) == ("error", {})


def test_a_judge_is_shown_the_field_as_data_and_gives_a_boolean() -> None:
    (check,) = checks_of({"type": "llm_judge", "field": "private_thought", "prompt": "Polite? {{ $.output.value }}\n"})
    assert check["id"] == "step-1-llm_judge"
    asked = []

    def judge(prompt: str, response_format: Any) -> Any:
        asked.append(prompt)
        return {"reason": "it is", "passed": True}, {}

    arguments = {**check["arguments"], "llm_function": judge}
    output = Output(value={"steps": [step(private_thought="be nice")]})
    case = TestCase(id="a", input=["b"])
    result = evaluate([case], [output], [Check(type="llm_judge", arguments=arguments)]).results[0].check_results[0]
    assert result.error is None
    assert result.results["response"] == {"reason": "it is", "passed": True}
    assert "Polite? {{$. output.value }}".replace(" ", "") in asked[0].replace(" ", "")
    assert "The answer is: be nice" in asked[0]
    schema = check["arguments"]["response_format"]
    assert schema["properties"]["passed"] == {"type": "boolean"}
    assert schema["required"] == ["reason", "passed"]


def test_ids_count_graders_of_a_type_in_a_step() -> None:
    graders: list[dict[str, Any]] = [
        {"type": "text_match", "condition": "contains", "value": "a"},
        {"type": "tool_usage"},
        {"type": "text_match", "condition": "contains", "value": "b"},
        {"type": "text_match", "condition": "contains", "value": "c"},
    ]
    assert [check["id"] for check in checks_of(*graders, index=2)] == [
        "step-3-text_match",
        "step-3-tool_usage",
        "step-3-text_match-2",
        "step-3-text_match-3",
    ]
