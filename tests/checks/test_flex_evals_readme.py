"""What the README of flex-evals shows, done here: only what is imported from where has changed."""

from __future__ import annotations

import re
from io import StringIO

from pydantic import BaseModel, Field
from ruamel.yaml import YAML

from fepflow import (
    Check,
    ContainsCheck,
    EvaluationRunResult,
    EvaluationSummary,
    ExactMatchCheck,
    ExperimentMetadata,
    JSONPath,
    LLMJudgeCheck,
    Output,
    RegexCheck,
    Status,
    TestCase,
    ThresholdCheck,
    evaluate,
)


def verdicts(results):
    return [[check.results.get("passed") for check in case.check_results] for case in results.results]


def test_quick_start():
    test_cases = [
        TestCase(
            id="test_001",
            input="What is the capital of France?",
            checks=[ContainsCheck(text="$.output.value", phrases=["Paris", "France"])],
        ),
    ]
    outputs = [Output(value="The capital of France is Paris.")]
    results = evaluate(test_cases, outputs)
    assert f"Evaluation completed: {results.status}" == "Evaluation completed: completed"
    assert results.results[0].check_results[0].results["passed"]


def test_the_core_concepts():
    test_case = TestCase(
        id="unique_identifier",
        input="System input data",
        expected="Expected output",
        metadata={"category": "reasoning"},
    )
    output = Output(value="System generated response", metadata={"model": "gpt-4", "tokens": 150})
    check = ExactMatchCheck(actual="$.output.value", expected="Paris", case_sensitive=False)
    assert verdicts(evaluate([test_case], [output], [check])) == [[False]]


def test_simple_text_comparison():
    test_cases = [TestCase(id="q1", input="Capital of France?", expected="Paris")]
    outputs = [Output(value="Paris")]
    checks = [ExactMatchCheck(actual="$.output.value", expected="$.test_case.expected")]
    assert verdicts(evaluate(test_cases, outputs, checks)) == [[True]]


def test_shared_checks():
    checks = [
        ContainsCheck(text="$.output.value", phrases=["Paris"], case_sensitive=False),
        RegexCheck(text="$.output.value", pattern=r"The capital of .+ is .+\.", flags=re.IGNORECASE),
    ]
    test_cases = [TestCase(id="a", input="?"), TestCase(id="b", input="?")]
    outputs = [Output(value="the capital of France is PARIS."), Output(value="Rome")]
    assert verdicts(evaluate(test_cases, outputs, checks)) == [[True, True], [False, False]]


def test_checks_of_each_test_case():
    test_cases = [
        TestCase(
            id="math_problem",
            input="What is 2+2?",
            checks=[ExactMatchCheck(actual="$.output.value", expected="4")],
        ),
        TestCase(
            id="creative_writing",
            input="Write a haiku about code",
            checks=[RegexCheck(text="$.output.value", pattern=r"(.+\n){2}.+")],
        ),
    ]
    outputs = [Output(value="4"), Output(value="Tabs or spaces, friend\nthe linter has decided\nfour of them it is")]
    assert verdicts(evaluate(test_cases, outputs, checks=None)) == [[True], [True]]


def test_paths_reach_everything_in_the_context():
    for path, found in [
        ("$.test_case.input", "What is the capital of France?"),
        ("$.test_case.expected", "Paris"),
        ("$.output.value", "The capital of France is Paris"),
        ("$.output.metadata.model", "gpt-4"),
        ("$.test_case.metadata.category", "geography"),
    ]:
        test_case = TestCase(
            id="test_001", input="What is the capital of France?", expected="Paris", metadata={"category": "geography"}
        )
        output = Output(value="The capital of France is Paris", metadata={"model": "gpt-4", "tokens": 25})
        assert verdicts(evaluate([test_case], [output], [ExactMatchCheck(actual=path, expected=found)])) == [[True]]


def test_paths_into_structured_outputs():
    test_case = TestCase(
        id="api_test", input={"endpoint": "/users", "method": "GET"}, expected={"status": 200, "count": 5}
    )
    output = Output(
        value={"status": 200, "data": {"users": []}, "count": 5},
        metadata={"response_time": 245},
    )
    checks = [
        ExactMatchCheck(actual="$.output.value.status", expected="$.test_case.expected.status"),
        ThresholdCheck(value="$.output.metadata.response_time", max_value=500),
    ]
    assert verdicts(evaluate([test_case], [output], checks)) == [[True, True]]


YAML_CHECKS = r"""
checks:
  - type: exact_match
    arguments:
      actual: "$.output.value"
      expected: "Paris"
      case_sensitive: false
    version: "1.0.0"
  - type: contains
    arguments:
      text: "$.output.value"
      phrases: ["France"]
"""


def test_checks_from_yaml():
    config = YAML(typ="safe").load(StringIO(YAML_CHECKS))
    checks = [Check(**check_config) for check_config in config["checks"]]
    assert verdicts(evaluate([TestCase(id="a", input="?")], [Output(value="paris")], checks)) == [[True, False]]


def test_the_standard_checks_with_all_of_their_options():
    checks = [
        ExactMatchCheck(actual="$.output.value.city", expected="Paris", case_sensitive=True, negate=False),
        ContainsCheck(text="$.output.value.city", phrases=["Par", "is"], case_sensitive=True, negate=False),
        RegexCheck(text="$.output.value.city", pattern=r"^[A-Z][a-z]+$", flags=re.IGNORECASE, negate=False),
        ThresholdCheck(
            value="$.output.value.confidence",
            min_value=0.8,
            max_value=1.0,
            min_inclusive=True,
            max_inclusive=True,
            negate=False,
        ),
    ]
    output = Output(value={"city": "Paris", "confidence": 0.9})
    assert verdicts(evaluate([TestCase(id="a", input="?")], [output], checks)) == [[True] * 4]


class HelpfulnessScore(BaseModel):
    score: int = Field(description="Rate the response on a scale of 1-5.")
    reasoning: str = Field(description="Brief explanation of the score.")


async def llm_judge(prompt: str, response_format: type[BaseModel]):
    response = response_format(score=4 if "Paris" in prompt else 1, reasoning="It is about Paris.")
    metadata = {"cost_usd": 0.001, "response_time_ms": 12, "model_name": "none", "model_version": "1"}
    return response, metadata


def test_a_language_model_judges():
    check = LLMJudgeCheck(
        prompt="Rate this response for helpfulness: {{$.output.value.response}}",
        response_format=HelpfulnessScore,
        llm_function=llm_judge,
    )
    results = evaluate([TestCase(id="a", input="?")], [Output(value={"response": "Paris!"})], [check])
    told = results.results[0].check_results[0].results
    assert told["response"] == {"score": 4, "reasoning": "It is about Paris."}
    assert HelpfulnessScore(**told["response"]).reasoning == "It is about Paris."
    assert told["metadata"]["model_name"] == "none"


def test_sync_and_async_checks_together_keep_their_order():
    checks = [
        ExactMatchCheck(actual="$.output.value", expected="Paris"),
        LLMJudgeCheck(prompt="{{$.output.value}}", response_format=HelpfulnessScore, llm_function=llm_judge),
    ]
    results = evaluate([TestCase(id="a", input="?")], [Output(value="Paris")], checks)
    assert [check.check_type for check in results.results[0].check_results] == ["exact_match", "llm_judge"]
    assert results.status == Status.COMPLETED


def test_a_text_that_starts_with_a_dollar_and_a_dot_becomes_a_path_unless_it_is_escaped():
    check = ContainsCheck(text="$.output.value", phrases=["hello"])
    assert check.text == JSONPath(expression="$.output.value")
    check = ContainsCheck(text="\\$.99 price", phrases=["dollar"])
    assert check.text == "$.99 price"


def test_the_form_of_a_result():
    result = EvaluationRunResult(
        evaluation_id="uuid",
        started_at="2025-01-01T00:00:00Z",
        completed_at="2025-01-01T00:00:05Z",
        status="completed",
        summary=EvaluationSummary(
            total_test_cases=100, completed_test_cases=95, error_test_cases=3, skipped_test_cases=2
        ),
        results=[],
        experiment=ExperimentMetadata(name="x"),
    )
    assert (result.completed_at - result.started_at).total_seconds() == 5
