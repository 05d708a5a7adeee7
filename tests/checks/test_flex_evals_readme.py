"""What the README of flex-evals shows, done here: only what is imported from where has changed."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import StringIO
from typing import Any

import pytest
from pydantic import BaseModel, Field, field_validator
from ruamel.yaml import YAML

from fepflow import (
    BaseAsyncCheck,
    BaseCheck,
    Check,
    CheckType,
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
    get_latest_version,
    list_versions,
    register,
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


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$.test_case.input", "What is the capital of France?"),
        ("$.test_case.expected", "Paris"),
        ("$.output.value", "The capital of France is Paris"),
        ("$.output.metadata.model", "gpt-4"),
        ("$.test_case.metadata.category", "geography"),
    ],
)
def test_paths_reach_everything_in_the_context(path, found):
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


class Scorer(BaseHTTPRequestHandler):
    def do_POST(self):
        text = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"]
        answer = json.dumps({"score": len(text) / 10}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def scorer():
    with HTTPServer(("127.0.0.1", 0), Scorer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_an_async_check_of_ones_own_whose_arguments_are_parameters_of_its_call(scorer):
    import httpx

    @register("custom_async_check", version="1.0.0")
    class CustomAsyncCheck(BaseAsyncCheck):
        async def __call__(self, text: str, api_endpoint: str) -> dict[str, Any]:
            async with httpx.AsyncClient() as client:
                response = await client.post(api_endpoint, json={"text": text})
                return {"score": response.json()["score"]}

    arguments = {"text": "$.output.value", "api_endpoint": scorer}
    for check in (Check(type="custom_async_check", arguments=arguments), CustomAsyncCheck(**arguments)):
        results = evaluate([TestCase(id="a", input="?")], [Output(value="Paris")], [check])
        assert results.results[0].check_results[0].results == {"score": 0.5}


@pytest.mark.parametrize(
    "check",
    [
        ContainsCheck(text="$.output.value", phrases=["hello"]),
        Check(type="contains", arguments={"text": "$.output.value", "phrases": ["hello"]}, version="1.0.0"),
        Check(type="contains", arguments={"text": "$.output.value", "phrases": ["hello"]}),
    ],
)
def test_a_version_is_given_in_three_ways(check):
    results = evaluate([TestCase(id="a", input="?")], [Output(value="hello")], [check])
    assert results.results[0].check_results[0].metadata["check_version"] == "1.0.0"
    assert verdicts(results) == [[True]]


def test_literals_and_paths_in_any_argument():
    case = TestCase(id="a", input="?", expected="PARIS", metadata={"case_sensitive": False})
    checks = [
        ExactMatchCheck(actual="$.output.value", expected="$.test_case.expected", case_sensitive=False),
        ExactMatchCheck(actual="Paris", expected="Paris", case_sensitive=True),
        ExactMatchCheck(
            actual="$.output.value",
            expected="$.test_case.expected",
            case_sensitive="$.test_case.metadata.case_sensitive",
        ),
    ]
    assert verdicts(evaluate([case], [Output(value="Paris")], checks)) == [[True, True, True]]


def enhanced_contains():
    @register(CheckType.CONTAINS, version="2.0.0")
    class ContainsCheck(BaseCheck):
        """Knows where words end."""

        text: str | JSONPath = Field(..., description="Text to search")
        phrases: str | list[str] | JSONPath = Field(..., description="Phrases to find")
        case_sensitive: bool | JSONPath = Field(True, description="Case sensitive search")
        word_boundaries: bool | JSONPath = Field(False, description="Match whole words only")

        @field_validator("text", "phrases", "case_sensitive", "word_boundaries", mode="before")
        @classmethod
        def convert_jsonpath(cls, v):
            if isinstance(v, str) and v.startswith("$."):
                return JSONPath(expression=v)
            return v

        def __call__(self) -> dict[str, Any]:
            edge = r"\b" if self.word_boundaries else ""
            return {"passed": all(re.search(edge + re.escape(phrase) + edge, self.text) for phrase in self.phrases)}


def test_a_new_version_of_a_check_lives_beside_the_old_one():
    enhanced_contains()
    check_v1 = Check(type="contains", arguments={"text": "$.output.value", "phrases": ["hello"]}, version="1.0.0")
    check_latest = Check(
        type="contains", arguments={"text": "$.output.value", "phrases": ["hello"], "word_boundaries": True}
    )
    results = evaluate([TestCase(id="a", input="?")], [Output(value="hellos")], [check_v1, check_latest])
    assert verdicts(results) == [[True, False]]
    assert get_latest_version("contains") == "2.0.0"
    assert list_versions("contains") == ["1.0.0", "2.0.0"]


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


def your_analysis(text, pattern):
    return float(pattern in text)


@pytest.fixture
def my_check():
    @register("my_check", version="1.0.0")
    class MyCheck(BaseCheck):
        """Custom check with paths."""

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
            score = your_analysis(self.text, self.pattern)
            return {"score": score, "passed": score >= self.threshold, "threshold_used": self.threshold}

    return MyCheck


def test_my_check_called_directly(my_check):
    check = my_check(text="test input", pattern="test", threshold=0.7)
    result = check()
    assert "score" in result
    assert "passed" in result


def test_my_check_with_paths(my_check):
    test_cases = [TestCase(id="test1", input="test input")]
    outputs = [Output(value="test response")]
    checks = [my_check(text="$.output.value", pattern="$.test_case.input", threshold=0.8)]
    results = evaluate(test_cases, outputs, checks)
    assert results.results[0].check_results[0].status == "completed"


def test_my_check_as_a_class_and_by_its_name(my_check):
    checks = [
        my_check(text="$.output.value", pattern="success", threshold=0.8),
        Check(type="my_check", arguments={"text": "$.output.value", "pattern": "success", "threshold": 0.8}),
    ]
    results = evaluate([TestCase(id="a", input="?")], [Output(value="a success")], checks)
    assert verdicts(results) == [[True, True]]
