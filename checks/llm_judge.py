"""`llm_judge`: a language model judges (FEP 2.3.6)."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, ClassVar

from pydantic import BaseModel, Field, InstanceOf, ValidationError, model_validator
from pydantic.json_schema import SkipJsonSchema

from checks.asking import ModelCheck, model_of, spent
from checks.base import JSONPath
from checks.calling import call
from checks.json_schema import Schema, read_schema, schema_errors
from checks.judging import question
from fepflow.complaints import complaints
from fepflow.documents import dotted
from fepflow.errors import CheckArgumentsError
from fepflow.llm import structured
from fepflow.llm.configuration import CHAT
from fepflow.llm.model import Model as LanguageModel
from fepflow.strict_json import parse
from fepflow.template import FilledText

Model = type[BaseModel]


OF_PLACEHOLDERS = "$."
"""What stands for the prompt, before it is filled, if it has placeholders; see `checks.arguments`."""

NEEDED = "llm_judge needs a model: name one in model_config, or give llm_function, from code"


class LLMJudgeCheck(ModelCheck):
    """Ask a language model for its judgement. Results: `{response: object, metadata: object}`.

    The prompt's `{{$.path}}` placeholders are filled in one pass: a text as it is, any other value as JSON. The
    response is what the model answered, and as `response_format` has it; an answer that is not is an error, never a
    pass. With `passed` in it, metrics count it. The metadata tells the model, its tokens, cost and time; that of an
    `llm_function` is the function's own. [judges.md](judges.md) says how models are configured, and what they are sent.
    """

    check_type: ClassVar[str] = "llm_judge"
    check_templates: ClassVar[frozenset[str]] = frozenset({"prompt"})
    check_secrets: ClassVar[frozenset[str]] = frozenset({"provider_config"})

    prompt: SkipJsonSchema[InstanceOf[FilledText]] | str | JSONPath = Field(
        description="What to ask, with `{{$.path}}` placeholders."
    )
    response_format: SkipJsonSchema[Model] | Schema | JSONPath = Field(
        description="JSON Schema of the response or, from code, a pydantic model class."
    )
    llm_function: SkipJsonSchema[Callable[..., Any] | None] = Field(
        None, description="Function `(prompt, response_format) -> (response, metadata)`, sync or async; from code only."
    )
    provider_config: dict[str, Any] | JSONPath = Field(
        {}, description="Where the model is: `{api_base, api_key: ${NAME}, timeout, max_retries}`."
    )
    llm_config: dict[str, Any] | JSONPath = Field(
        {}, alias="model_config", description="Which model, and how: `{model, temperature, max_tokens, ...}`."
    )

    @model_validator(mode="after")
    def _has_a_model(self) -> LLMJudgeCheck:
        if self.check_model() is not None:
            self._refuse_what_is_no_question()
        return self

    def _refuse_what_is_no_question(self) -> None:
        if isinstance(self.prompt, JSONPath) and self.prompt.expression != OF_PLACEHOLDERS:
            advice = "write what to judge, and by which rules, with {{$.path}} placeholders"
            raise ValueError(f"prompt: a text from a path is data, and never instructions for a model ({advice})")
        if isinstance(self.response_format, JSONPath):
            raise ValueError("response_format: must stand in the check when a model is asked")
        kind = read_schema(self.response_format).get("type", "object")
        if kind != "object":
            raise ValueError("response_format: must be the schema of an object")

    def check_model(self) -> LanguageModel | None:
        """See ModelCheck."""
        return model_of(self.llm_function, self.llm_config, self.provider_config, CHAT, NEEDED)

    async def __call__(self) -> dict[str, Any]:
        """Ask, and read the answer."""
        model = self.check_model()
        return await (self._ask_function() if model is None else self._ask_model(model))

    async def _ask_model(self, model: LanguageModel) -> dict[str, Any]:
        response_format: Any = self.response_format
        schema = read_schema(response_format)
        asked = question(self.prompt, schema, self.check_version)  # type: ignore[arg-type]  # no path is left
        response, told = await structured.ask(model, asked, lambda value: _read(value, response_format))
        metadata = {
            "model": model.name,
            "model_answered": told.model_answered,
            **spent(told.usage),
            "seconds": told.seconds,
            "mode": told.mode,
            "attempts": told.requests,
            "cached": told.cached,
            "not_honoured": list(told.not_honoured),
        }
        return {"response": response, "metadata": metadata}

    async def _ask_function(self) -> dict[str, Any]:
        response_format: Any = self.response_format
        given = response_format if isinstance(response_format, type) else deepcopy(response_format)
        answer = await call(self.llm_function, str(self.prompt), given)  # type: ignore[arg-type]  # the validator saw to it
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
