"""What a user of fepflow may write, for a strict type checker to read: see `test_user_code.py`. It is never run."""

from __future__ import annotations

import re
from typing import Any

from pydantic import BaseModel, Field, field_validator

from fepflow import (
    AttributeExistsCheck,
    BaseAsyncCheck,
    BaseCheck,
    Check,
    CheckType,
    ContainsCheck,
    CustomFunctionCheck,
    EqualsCheck,
    EvaluationRunResult,
    EvaluationSummary,
    ExactMatchCheck,
    IsEmptyCheck,
    JSONPath,
    JSONValidCheck,
    LLMJudgeCheck,
    Output,
    RegexCheck,
    RegexFlags,
    SchemaValidationCheck,
    SemanticSimilarityCheck,
    SimilarityThreshold,
    Status,
    SubsetCheck,
    TestCase,
    ThresholdCheck,
    ToolUsageCheck,
    evaluate,
    evaluate_async,
    register,
)
from fepflow.pytest import evaluate as evaluates

VALUE = "$.output.value"


class WordCount(BaseCheck):
    """Arguments as fields."""

    text: str | JSONPath
    at_most: int | JSONPath = 100

    def __call__(self) -> dict[str, Any]:
        words = len(self.text.split())
        return {"passed": words <= self.at_most, "words": words}


@register("enhanced_contains", version="2.0.0")
class EnhancedContains(BaseCheck):
    """As flex-evals writes them, with a validator of its own."""

    text: str | JSONPath = Field(..., description="Text to search")
    phrases: str | list[str] | JSONPath = Field(..., description="Phrases to find")
    word_boundaries: bool | JSONPath = Field(default=False, description="Match whole words only")

    @field_validator("text", "phrases", mode="before")
    @classmethod
    def convert_jsonpath(cls, value: object) -> object:
        return JSONPath(expression=value) if isinstance(value, str) and value.startswith("$.") else value

    def __call__(self) -> dict[str, Any]:
        edge = r"\b" if self.word_boundaries else ""
        return {"passed": all(re.search(edge + re.escape(phrase) + edge, self.text) for phrase in self.phrases)}


@register("longer")
class Longer(BaseCheck):
    """Arguments as parameters, a result of one type."""

    def __call__(self, text: str, *, than: int = 3) -> dict[str, bool]:
        return {"passed": len(text) > than}


@register("asks_a_service")
class AsksAService(BaseAsyncCheck):
    """Arguments as parameters, and asynchronous."""

    async def __call__(self, text: str, api_endpoint: str) -> dict[str, Any]:
        return {"score": len(text + api_endpoint)}


class Waits(BaseAsyncCheck):
    """Arguments as fields, and asynchronous."""

    text: str | JSONPath

    async def __call__(self) -> dict[str, Any]:
        return {"passed": bool(self.text)}


class Score(BaseModel):
    score: int


async def judge(prompt: str, response_format: type[BaseModel]) -> tuple[BaseModel, dict[str, Any]]:
    return response_format(score=len(prompt)), {}


one_kind = [ContainsCheck(text=VALUE, phrases=["Paris", "France"])]
every_kind = [
    AttributeExistsCheck(path=VALUE),
    ContainsCheck(id="mentions", text=VALUE, phrases="Paris", case_sensitive="$.test_case.metadata.case_sensitive"),
    CustomFunctionCheck(validation_function=lambda text: {"passed": bool(text)}, function_args={"text": VALUE}),
    EqualsCheck(actual=VALUE, expected="$.test_case.expected", negate=True),
    ExactMatchCheck(actual=VALUE, expected="Paris", case_sensitive=False),
    IsEmptyCheck(value=VALUE),
    JSONValidCheck(text=VALUE, schema={"type": "object"}),
    LLMJudgeCheck(prompt="Right? {{$.output.value}}", response_format=Score, llm_function=judge),
    LLMJudgeCheck(prompt="?", response_format={"type": "object"}, model_config={"model": "openai/gpt-4o-mini"}),
    RegexCheck(text=VALUE, pattern="^P", flags=re.IGNORECASE),
    RegexCheck(text=VALUE, pattern="^P", flags=RegexFlags(case_insensitive=True)),
    SchemaValidationCheck(schema=Score, data=VALUE),
    SemanticSimilarityCheck(
        text=VALUE,
        reference="Paris",
        threshold=SimilarityThreshold(min_value=0.8),
        model_config={"model": "local:mine"},
    ),
    SubsetCheck(collection=VALUE, required={"a", "b"}),
    ThresholdCheck(value="$.output.metadata.seconds", max_value=500),
    ToolUsageCheck(calls="$.output.value.calls", name="search", min_count=1),
    WordCount(text=VALUE, at_most=JSONPath("$.test_case.metadata.most")),
    Waits(text=VALUE),
]
both_forms = [*every_kind, Check(type=CheckType.CONTAINS, arguments={"text": VALUE, "phrases": ["Paris"]})]
declared = [Check(type="longer", arguments={"text": VALUE, "than": 3}, version="1.0.0")]

cases = [
    TestCase(input="Capital of France?", expected="Paris", metadata={"case_sensitive": False}),
    TestCase(id="a", input={"question": "?"}, checks=[ContainsCheck(text=VALUE, phrases=["Paris"])]),
    TestCase(input="?", checks=one_kind),
    TestCase(input="?", checks=every_kind),
    TestCase(input="?", checks=both_forms),
    TestCase(input="?", checks=declared),
]
outputs = [Output(value="Paris", metadata={"tokens": 25}) for _ in cases]

results = evaluate(cases, outputs, one_kind)
results = evaluate(cases, outputs, every_kind)
results = evaluate(cases, outputs, both_forms)
results = evaluate(cases, outputs, declared)
results = evaluate(cases, outputs, checks=None)
results = evaluate(
    ["a", "b"], ["x", "y"], [[WordCount(text=VALUE)], [ContainsCheck(text=VALUE, phrases="b"), Waits(text="")]]
)
results = evaluate(["a"], [{"value": 1}], [{"type": "is_empty", "arguments": {"value": VALUE}}, Waits(text=VALUE)])

if results.status == Status.COMPLETED and results.results[0].check_results[0].status != Status.ERROR:
    rate: float | None = results.pass_rate
    ids: list[str] = [result.execution_context.test_case.id for result in results.failed]

passed: bool = ContainsCheck(text="Paris", phrases="Par")()["passed"]
passed = RegexCheck(text="Paris", pattern="P")()["passed"]
passed = WordCount(text="one two")()["passed"]


async def main() -> bool:
    found = await evaluate_async(cases, outputs, every_kind)
    answer = await Waits(text="x")()
    return found.status == "completed" and answer["passed"] is True


summary = EvaluationSummary(total_test_cases=1, completed_test_cases=1, error_test_cases=0, skipped_test_cases=0)
run = EvaluationRunResult(
    evaluation_id="uuid",
    started_at="2025-01-01T00:00:00Z",
    completed_at="2025-01-01T00:00:05Z",
    status=Status.COMPLETED,
    summary=summary,
    results=[],
)
seconds: float = (run.completed_at - run.started_at).total_seconds()


@evaluates(cases, checks=one_kind, samples=3)
def test_answer(test_case: TestCase) -> str:
    return f"Paris, {test_case.input}"


@evaluates(cases, checks=every_kind, success_threshold=0.9, max_concurrency=4)
async def test_async_answer(test_case: TestCase, tmp_path: object) -> Output:
    return Output(value=test_case.expected)
