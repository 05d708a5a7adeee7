"""`ragas.*`: metrics of ragas itself, with its prompts and its arithmetic, over the models that fepflow asks."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Awaitable, Callable
from functools import cache, partial
from importlib.metadata import version
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from fepflow.calls.models.model import sendable
from fepflow.calls.thread_pool import OTHERS_CALLS
from fepflow.checks.base import JSONPath
from fepflow.checks.faithfulness import ClaimsCheck, Verdict
from fepflow.checks.models.judge_check import (
    ANSWER,
    CONTEXT,
    QUESTION,
    REFERENCE,
    Questioner,
    contexts_of,
    fitting,
    json_object,
    says_something,
)
from fepflow.checks.models.voting import rounded
from fepflow.errors import CheckArgumentsError, MissingExtraError
from fepflow.extras import require
from fepflow.jsonpath.path import Filled, RenderedPrompt
from fepflow.security.redaction import words_of
from fepflow.text import text_of

RAGAS = "0.4.3"
"""The version whose prompts these are: another one words them anew, and its scores cannot be compared."""

_INPUT = "\nNow perform the same with the following input\ninput: "
_OUTPUT = "\nOutput: "
"""Marks around the case's texts in a prompt of ragas, which begins with its own words."""

_NAMES = {
    "question": "user_input",
    "answer": "response",
    "reference": "reference",
    "context": "retrieved_contexts",
}
"""Arguments and their names in ragas."""

Ask = Callable[[str, type[BaseModel]], Awaitable[BaseModel]]


@cache
def _load() -> tuple[Any, Callable[[Ask], Any]]:
    """Return the module of ragas's metrics, and its language model as one that asks by a function. Takes seconds.

    Raises MissingExtraError, and CheckArgumentsError if ragas cannot be imported, or is of another version.
    """
    require("ragas", "a check of a type ragas.*")
    if (found := version("ragas")) != RAGAS:
        advice = 'pip install "fepflow[ragas]"'
        raise CheckArgumentsError(f"ragas {found} is installed here, and these checks need {RAGAS}: {advice}")
    os.environ["RAGAS_DO_NOT_TRACK"] = "true"  # read once: it would tell its makers what is evaluated
    try:
        from ragas.llms.base import InstructorBaseRagasLLM
        from ragas.metrics import collections
    except Exception as error:  # packages of langchain that do not go together
        raise CheckArgumentsError(f"ragas cannot be loaded: {type(error).__name__}: {words_of(error)}") from None

    class Model(InstructorBaseRagasLLM):  # type: ignore[misc]  # there are no types where ragas is not installed
        def __init__(self, ask: Ask) -> None:
            self._ask = ask

        def generate(self, prompt: str, response_model: type[BaseModel]) -> BaseModel:
            raise NotImplementedError  # the metrics only wait

        async def agenerate(self, prompt: str, response_model: type[BaseModel]) -> BaseModel:
            return await self._ask(prompt, response_model)

    return collections, Model


class RagasCheck(ClaimsCheck):
    """A judge that is a metric of ragas. fepflow checks the answers before ragas counts them, because ragas accepts a
    verdict of 5, or one verdict on ten claims.
    """

    check_metric: ClassVar[str]
    """The class in `ragas.metrics.collections`."""
    check_words: ClassVar[str]
    """The verdicts of a model in words, for the reason of a score."""
    check_optional_paths: ClassVar[frozenset[str]] = frozenset({"context"})

    def check_config_error(self) -> str | None:
        """See ModelCheck."""
        try:
            _load()
        except (CheckArgumentsError, MissingExtraError) as error:
            return str(error)
        return super().check_config_error()

    def check_options(self) -> dict[str, Any]:
        """Return the options of the metric."""
        return {}

    def check_sample(self) -> dict[str, Any]:
        """Return the texts under ragas's names. Raises CheckArgumentsError where there is nothing to judge."""
        sample: dict[str, Any] = {}
        for argument, name in _NAMES.items():
            if argument not in type(self).model_fields:
                continue
            value = getattr(self, argument)
            if argument == "context":
                sample[name] = list(map(sendable, contexts_of(value)))
                continue
            sample[name] = sendable(text_of(value))
            if not sample[name] or (argument != "question" and not says_something(sample[name])):
                raise CheckArgumentsError(f"the {argument} is empty, so there is nothing to judge")
        return sample

    def check_before(self) -> None:
        """See JudgeCheck."""
        self.check_sample()

    async def check_judge(self, questioner: Questioner) -> dict[str, Any]:
        """See JudgeCheck."""
        metrics, model = await OTHERS_CALLS.run(_load)
        verdicts: list[tuple[str, Verdict]] = []

        async def ask(prompt: str, response_model: type[BaseModel]) -> BaseModel:
            own, _, rest = prompt.partition(_INPUT)
            texts = rest.removesuffix(_OUTPUT)
            question = RenderedPrompt([own, _INPUT, Filled("input", texts), _OUTPUT])
            schema = _with_binary_verdicts(response_model.model_json_schema())
            answer = await questioner.ask(question, schema, partial(_read, schema, json.loads(texts)))
            verdicts.extend(_verdicts_in(answer, len(verdicts) + 1))
            return response_model.model_validate(answer)

        metric = getattr(metrics, self.check_metric)(llm=model(ask), **self.check_options())
        score = float((await metric.ascore(**self.check_sample())).value)
        if not math.isfinite(score):
            raise CheckArgumentsError("ragas gives no score")
        questioner.metadata = {**questioner.metadata, "ragas": RAGAS}
        share = self.check_share(
            [claim for claim, _ in verdicts], [verdict for _, verdict in verdicts], self.check_words
        )
        return {**share, "score": rounded(score)}


def _with_binary_verdicts(schema: Any) -> Any:
    """Return a schema in which numbers, all of which are verdicts, are 0 or 1."""
    if isinstance(schema, list):
        return [_with_binary_verdicts(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: _with_binary_verdicts(item) for name, item in schema.items()}
    return {**inner, "enum": [0, 1]} if inner.get("type") == "integer" else inner


def _read(schema: dict[str, Any], asked: dict[str, Any], answer: Any) -> dict[str, Any]:
    # ragas writes what a model lists into its next prompt, and cannot write half of a character.
    value = fitting(sendable(json.dumps(json_object(answer), ensure_ascii=False)), schema)
    for name, items in value.items():
        given = asked.get(name)
        if isinstance(given, list) and len(items) != len(given):
            raise CheckArgumentsError(f"there must be one verdict on each of {len(given)} {name}, not {len(items)}")
    return value


def _verdicts_in(answer: dict[str, Any], number: int) -> list[tuple[str, Verdict]]:
    """Return the claims and the verdicts on them, if it is verdicts that a prompt of ragas asks for; the first one on a
    context is on that of this number. Raises CheckArgumentsError for a list of nothing.
    """
    if [] in answer.values():
        raise CheckArgumentsError("no claims found, so there is nothing to judge")
    items = next((value for value in answer.values() if isinstance(value, list)), [answer])
    return [
        (
            item.get("statement", f"context {number}"),
            Verdict(bool(item.get("verdict", item.get("attributed"))), item["reason"]),
        )
        for item in items
        if isinstance(item, dict)
    ]


class RagasFaithfulnessCheck(RagasCheck):
    """Pass if ragas finds that the context supports the answer. Results:
    `{response: {score, passed, reason, claims}, metadata}`.

    The metric is ragas's `Faithfulness`, version 0.4.3, with its own prompts. A model lists the statements of the
    answer, and decides for each whether it follows from the context. The score is the share of those that do. The check
    needs the extra `ragas`.
    """

    check_type: ClassVar[str] = "ragas.faithfulness"
    check_metric: ClassVar[str] = "Faithfulness"
    check_asks: ClassVar[str] = "Does the context support everything that the answer claims?"
    check_words: ClassVar[str] = "claims are supported by the context"

    question: Any = QUESTION
    answer: Any = ANSWER
    context: Any = CONTEXT


class RagasContextPrecisionCheck(RagasCheck):
    """Pass if ragas finds that the useful contexts come first. Results:
    `{response: {score, passed, reason, claims}, metadata}`.

    The metric is ragas's `ContextPrecision`, version 0.4.3, with its own prompt. For each context, a model decides in a
    separate request whether it was useful to arrive at the reference. The score is the average precision. The check
    needs the extra `ragas`.
    """

    check_type: ClassVar[str] = "ragas.context_precision"
    check_metric: ClassVar[str] = "ContextPrecision"
    check_asks: ClassVar[str] = "Is what was retrieved of use to answer the question, and does the useful come first?"
    check_words: ClassVar[str] = "contexts are of use"

    question: Any = QUESTION
    reference: Any = REFERENCE
    context: Any = CONTEXT


class RagasContextRecallCheck(RagasCheck):
    """Pass if ragas finds in the context what a right answer needs. Results:
    `{response: {score, passed, reason, claims}, metadata}`.

    The metric is ragas's `ContextRecall`, version 0.4.3, with its own prompt. A model decides for each statement of the
    reference whether the context has it. The score is the share of those that it has. The check needs the extra
    `ragas`.
    """

    check_type: ClassVar[str] = "ragas.context_recall"
    check_metric: ClassVar[str] = "ContextRecall"
    check_asks: ClassVar[str] = "Does the context have everything that the expected answer says?"
    check_words: ClassVar[str] = "claims of the reference are in the context"

    question: Any = QUESTION
    reference: Any = REFERENCE
    context: Any = CONTEXT


class RagasFactualCorrectnessCheck(RagasCheck):
    """Pass if ragas finds that answer and reference say the same. Results:
    `{response: {score, passed, reason, claims}, metadata}`.

    The metric is ragas's `FactualCorrectness`, version 0.4.3, with its own prompts. A model lists the claims of the
    answer and decides which of them the reference supports, and the other way round. The score is the F1 of both, to
    two places. `claims` has the verdicts of both directions. The check needs the extra `ragas`.
    """

    check_type: ClassVar[str] = "ragas.factual_correctness"
    check_metric: ClassVar[str] = "FactualCorrectness"
    check_asks: ClassVar[str] = "Does the answer say what the expected answer says, and nothing else?"
    check_words: ClassVar[str] = "claims are supported by the other text"

    answer: Any = ANSWER
    reference: Any = REFERENCE
    mode: Literal["f1", "precision", "recall"] | JSONPath = Field(
        default="f1", description="How to count; `precision` asks only about the claims of the answer."
    )

    def check_options(self) -> dict[str, Any]:
        """See RagasCheck."""
        return {"mode": self.mode}
