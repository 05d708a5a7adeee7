"""`llm_judge`: a language model judges (FEP 2.3.6)."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, ClassVar

from pydantic import BaseModel, Field, ValidationError, model_validator
from pydantic.json_schema import SkipJsonSchema

from checks.base import BaseAsyncCheck, JSONPath
from checks.calling import call
from checks.json_schema import Schema, schema_errors
from fepflow.complaints import complaints
from fepflow.documents import dotted
from fepflow.errors import CheckArgumentsError
from fepflow.strict_json import parse

Model = type[BaseModel]


class LLMJudgeCheck(BaseAsyncCheck):
    """Ask a language model for its judgement. Results: `{response: object, metadata: object}`.

    The prompt's `{{$.path}}` placeholders are filled in one pass: a text as it is, any other value as JSON. The
    response is what the model answered, and as `response_format` has it; an answer that is not is an error, never a
    pass. With `passed` in it, metrics count it. The metadata is the function's own (model, cost, tokens).
    """

    check_type: ClassVar[str] = "llm_judge"
    check_templates: ClassVar[frozenset[str]] = frozenset({"prompt"})
    check_secrets: ClassVar[frozenset[str]] = frozenset({"provider_config"})

    prompt: str | JSONPath = Field(description="What to ask, with `{{$.path}}` placeholders.")
    response_format: SkipJsonSchema[Model] | Schema | JSONPath = Field(
        description="JSON Schema of the response or, from code, a pydantic model class."
    )
    llm_function: SkipJsonSchema[Callable[..., Any] | None] = Field(
        None, description="Function `(prompt, response_format) -> (response, metadata)`, sync or async; from code only."
    )
    provider_config: dict[str, Any] | JSONPath = Field({}, description="Configuration of the provider.")
    llm_config: dict[str, Any] | JSONPath = Field({}, alias="model_config", description="Parameters of the model.")

    @model_validator(mode="after")
    def _has_a_model(self) -> LLMJudgeCheck:
        if self.llm_function is None:
            raise ValueError("llm_judge needs a model: give llm_function, from code")
        return self

    async def __call__(self) -> dict[str, Any]:
        """Ask, and read the answer."""
        response_format: Any = self.response_format
        given = response_format if isinstance(response_format, type) else deepcopy(response_format)
        answer = await call(self.llm_function, self.prompt, given)  # type: ignore[arg-type]  # the validator saw to it
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], dict | None):
            raise CheckArgumentsError("llm_function must return a pair: the response, and an object of metadata")
        response, metadata = answer
        return {"response": _read(response, response_format), "metadata": metadata or {}}


def _read(response: Any, response_format: Model | dict[str, Any]) -> dict[str, Any]:
    """The response as an object that fits the format; raises CheckArgumentsError."""
    value = response.model_dump(mode="json") if isinstance(response, BaseModel) else response
    if isinstance(value, str):
        try:
            value = parse(value)
        except ValueError as error:
            raise CheckArgumentsError(f"the judge's response is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise CheckArgumentsError(f"the judge's response must be an object, not {type(value).__name__}")
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
        return value, [f"{dotted(item.path)}: {item.message}" for item in complaints(value, error)]
