"""What a check found is told: its results first, then what it was given; never its defaults, nor the output again."""

from __future__ import annotations

from typing import Any

import pytest

from checks.base import BaseCheck, JSONPath
from checks.engine import evaluate
from fepflow.protocol.check import AnyCheck, Check
from fepflow.protocol.explanation import MAX_LINE, explain, fit
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase


def result_of(check: AnyCheck, value: Any, expected: Any = "Paris") -> CheckResult:
    case = TestCase(id="a", input="q", expected=expected)
    return evaluate([case], [Output(value=value)], [check]).results[0].check_results[0]


class WordCount(BaseCheck):
    check_type = "word_count"
    text: str | JSONPath
    at_most: int = 10

    def __call__(self) -> dict[str, Any]:
        return {"passed": self.at_most < 0, "words": 3, "too_long": ["first", "second"], "hint": "", "rest": []}


async def judge(prompt: str, response_format: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return {"reason": "It names\nanother city.", "score": 2, "passed": False}, {"model": "m"}


JUDGE = {
    "prompt": "Is {{$.output.value}} right? " * 100,
    "response_format": {"type": "object"},
    "llm_function": judge,
}

FOUND = [
    (
        Check(type="exact_match", arguments={"actual": "$.output.value", "expected": "$.test_case.expected"}),
        "Lyon",
        'expected: "Paris"',
    ),
    (
        Check(type="contains", arguments={"text": "$.output.value", "phrases": ["a b"], "negate": False}),
        "Lyon",
        'phrases: ["a b"]',
    ),
    (
        Check(type="contains", arguments={"text": "$.output.value", "phrases": ["L"], "negate": True}),
        "Lyon",
        'phrases: ["L"], negate: true',
    ),
    (
        Check(type="contains", arguments={"text": "$.output.value.text", "phrases": "x"}),
        {"text": "Lyon"},
        'text: "Lyon", phrases: "x"',
    ),
    (
        Check(
            type="schema_validation",
            arguments={"schema": {"required": ["id", "total"]}, "data": "$.output.value"},
        ),
        {},
        "validation_errors: 'id' is a required property; 'total' is a required property, "
        'schema: {"required": ["id", "total"]}',
    ),
    (
        Check(type="tool_usage", arguments={"calls": "$.output.value", "order": ["search", "pay"]}),
        [{"name": "search"}],
        'count: 1, missing: pay, order: ["search", "pay"]',
    ),
    (
        Check(type="threshold", arguments={"value": "$.output.value.score", "min_value": 0.8}),
        {"score": 0.3},
        "value: 0.3, min_value: 0.8",
    ),
    (
        Check(type="attribute_exists", arguments={"path": "$.output.value.answer"}),
        {},
        "path ($.output.value.answer): null",
    ),
    (Check(type="is_empty", arguments={"value": "$.output.value"}), "text", 'value: "text"'),
    (WordCount(text="$.output.value"), "one two three", "words: 3, too_long: first; second"),
    (WordCount(text="$.output.value", at_most=2), "a b c", "words: 3, too_long: first; second, at_most: 2"),
    (Check(type="llm_judge", arguments=JUDGE), "Lyon", "reason: It names another city., score: 2"),
    (
        Check(type="contains", arguments={"text": "$.output.value.no", "phrases": "x"}),
        {},
        "$.output.value.no",
    ),
]


@pytest.mark.parametrize(("check", "value", "line"), FOUND, ids=lambda item: getattr(item, "type", None))
def test_a_finding_is_one_line_results_first(check: AnyCheck, value: Any, line: str) -> None:
    result = result_of(check, value)
    told = explain(result).line()
    assert (line in told) if result.error else (told == line)


def test_a_stored_result_is_explained_as_the_one_that_was_stored() -> None:
    for check, value, _ in FOUND:
        result = result_of(check, value)
        again = CheckResult.model_validate_json(result.model_dump_json())
        assert explain(again).line() == explain(result).line()


def test_the_output_is_in_the_explanation_on_request() -> None:
    check = Check(type="contains", arguments={"phrases": "Paris", "text": "$.output.value"})
    assert explain(result_of(check, "Lyon"), with_output=True).line() == 'text: "Lyon", phrases: "Paris"'


def test_in_full_nothing_is_cut_and_a_model_has_its_question() -> None:
    told = explain(result_of(Check(type="llm_judge", arguments=JUDGE), "Lyon")).lines()
    assert told[:2] == ["reason: It names another city.", "score: 2"]
    assert told[2].startswith('prompt: "Is Lyon right? Is Lyon right? ')
    assert len(told[2]) > 1_500
    schema = Check(type="schema_validation", arguments={"schema": {"required": ["id", "a"]}, "data": "$.output.value"})
    assert explain(result_of(schema, {})).lines() == [
        "validation_errors: 'id' is a required property",
        "validation_errors: 'a' is a required property",
        'schema: {"required": ["id", "a"]}',
    ]


def test_a_line_has_a_bound_however_much_was_found() -> None:
    check = Check(type="equals", arguments={"actual": "$.output.value.x", "expected": "$.test_case.expected"})
    line = explain(result_of(check, {"x": ["long"] * 100_000}, expected={"a": "b" * 10_000})).line()
    assert len(line) <= MAX_LINE
    assert line.startswith('actual: ["long", ')
    assert 'expected: {"a": "bbb' in line


def test_an_older_result_is_explained_without_details() -> None:
    check = Check(type="contains", arguments={"text": "$.output.value", "phrases": "Paris"})
    old = result_of(check, "Lyon")
    old = old.model_copy(update={"metadata": {"check_id": "contains"}})
    assert explain(old).line() == 'case_sensitive: true, match_all: true, phrases: "Paris"'


def test_short_texts_are_not_cut_for_long_ones() -> None:
    assert fit(["short", "long" * 100], 20) == ["short", "longlonglonglo…"]
    assert fit(["a", "b"], 0) == ["…", "…"] or fit(["a", "b"], 0) == ["a", "b"]
