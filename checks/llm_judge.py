"""`llm_judge`: a language model judges (FEP 2.3.6)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from pydantic import BaseModel, Field, InstanceOf, ValidationError
from pydantic.json_schema import SkipJsonSchema

from fepflow.checks.base import FILLED_LATER, JSONPath, PathText
from fepflow.checks.explanation import ResolvedArguments
from fepflow.checks.models.judge_check import Asked, JudgeCheck, Questioner, json_object, parts_of, refuse_nothing
from fepflow.checks.models.voting import JuryRule
from fepflow.checks.schema_validation import Schema, read_schema, schema_errors
from fepflow.documents.messages import validation_messages
from fepflow.errors import CheckArgumentsError, dotted
from fepflow.json.values import parse
from fepflow.jsonpath.path import RenderedPrompt

Model = type[BaseModel]


class LLMJudgeCheck(JudgeCheck):
    """Ask a language model to judge, with your prompt. Results: `{response: object, metadata: object}`.

    The prompt's `{{$.path}}` placeholders are filled in one pass, with texts unchanged and other values as JSON. The
    response is the model's answer, which must fit `response_format`. An answer that does not fit is an error, never a
    pass. If the response has `passed`, metrics count it. The metadata has the model, its tokens, cost and time; for an
    `llm_function`, it is what the function returns. With `samples`, the model is asked several times: the majority
    decides, and the metadata has the agreement. With `judges`, several models judge. [judges.md](judges.md) describes
    how to configure models, and what is sent to them. To judge by one sentence of criteria, see [rubric](#rubric).
    """

    check_type: ClassVar[str] = "llm_judge"
    check_templates: ClassVar[frozenset[str]] = frozenset({"prompt"})

    prompt: SkipJsonSchema[InstanceOf[RenderedPrompt]] | str | JSONPath = Field(
        description="Prompt, with `{{$.path}}` placeholders."
    )
    response_format: SkipJsonSchema[Model] | Schema | PathText = Field(
        description="JSON Schema of the response or, from code, a pydantic model class."
    )

    @classmethod
    def check_asked(cls, arguments: Mapping[str, Any]) -> Asked:
        """See JudgeCheck."""
        return Asked(str(arguments.get("prompt", "")), _schema(arguments.get("response_format")))

    def check_question(self) -> None:
        """See JudgeCheck."""
        if isinstance(self.prompt, JSONPath) and self.prompt != FILLED_LATER:
            advice = "write what to judge, and by which rules, with {{$.path}} placeholders"
            raise ValueError(f"prompt: a text from a path is data, which must not instruct a model ({advice})")
        if isinstance(self.response_format, JSONPath):
            raise ValueError("response_format: must be in the check if a model is asked, not come from a path")
        schema = read_schema(self.response_format)
        if schema.get("type", "object") != "object":
            raise ValueError("response_format: must be the schema of an object")
        needs_score = (
            "jury: mean" if self.judges and self.jury == "mean" else "pass_at" if self.pass_at is not None else ""
        )
        if needs_score and "score" not in schema.get("properties", {}):
            raise ValueError(f"response_format: {needs_score} needs a number `score` in it")

    def check_before(self) -> None:
        """See JudgeCheck."""
        if self.llm_function is None:
            refuse_nothing(parts_of(self.prompt))

    async def check_judge(self, questioner: Questioner) -> dict[str, Any]:
        """See JudgeCheck."""
        response_format: Any = self.response_format
        return await questioner.ask(self.prompt, response_format, partial(_read, response_format=response_format))

    def check_response_schema(self) -> dict[str, Any]:
        """See JudgeCheck."""
        schema: dict[str, Any] = read_schema(self.response_format)
        return schema

    def check_combined(self, response: dict[str, Any]) -> dict[str, Any]:
        """See JudgeCheck."""
        response_format: Any = self.response_format  # no path is left
        if self.pass_at is None:
            return _read(response, response_format)
        own = "passed" in self.check_response_schema().get("properties", {})
        passed = response["passed"]
        response = response if own else {name: value for name, value in response.items() if name != "passed"}
        return {**_read(response, response_format), "passed": passed}

    def check_jury_rule(self) -> JuryRule:
        """See JudgeCheck."""
        schema = self.check_response_schema()
        score = schema.get("properties", {}).get("score")
        ends = [score.get(end) for end in ("minimum", "maximum")] if isinstance(score, dict) else []
        bounds = [float(end) for end in ends if isinstance(end, int | float)]
        return JuryRule(self.jury, schema, self.check_passes, (bounds[0], bounds[1]) if len(bounds) == 2 else None)

    @classmethod
    def check_explanation(cls, resolved: ResolvedArguments, results: Mapping[str, Any]) -> str | None:
        """See BaseCheck."""
        response = results["response"]
        return "the judge says no and gives no reason" if len(response) == 1 else None


def _schema(response_format: Any) -> Any:
    """Return the schema as an object, or the value itself if it is not a schema."""
    if not isinstance(response_format, str):
        return response_format
    try:
        return parse(response_format)
    except ValueError:
        return response_format


def _read(response: Any, response_format: Model | dict[str, Any]) -> dict[str, Any]:
    """Return the response as an object that fits the format; raises CheckArgumentsError."""
    value = json_object(response)
    if isinstance(response_format, dict):
        errors = schema_errors(response_format, value)
    elif isinstance(response, response_format):
        errors = []
    else:
        value, errors = _read_model(value, response_format)
    if errors:
        raise CheckArgumentsError(f"the judge's response is not as response_format has it: {'; '.join(errors)}")
    return value


def _read_model(value: dict[str, Any], model: Model) -> tuple[dict[str, Any], list[str]]:
    try:
        return model.model_validate(value).model_dump(mode="json"), []
    except ValidationError as error:
        return value, [f"{dotted(item.path)}: {item.message}" for item in validation_messages(value, error)]
