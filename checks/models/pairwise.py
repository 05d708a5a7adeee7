"""The pairwise judge: a model says which of two answers is better, in both orders.

A preference that does not survive the swap of the answers is a tie: models favour a position, some of them more often
than not. The answers stand between tags with a random word, as those of `llm_judge` do, and have no names.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

from fepflow.calls.models import structured
from fepflow.calls.models.client import ModelRequests
from fepflow.calls.models.model import Model
from fepflow.calls.models.structured import StructuredPrompt
from fepflow.checks.models.judge_check import judge_prompt
from fepflow.checks.schema_validation import schema_errors
from fepflow.errors import CheckArgumentsError
from fepflow.jsonpath.template import Filled, RenderedPrompt

Position = Literal["first", "second", "neither"]
"""The answer that a judge prefers, by its position."""

Side = Literal["one", "other", "tie"]
"""The side of a pair that is preferred."""

VERSION = "1.0.0"

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "reasoning": {"type": "string", "description": "What speaks for each answer, by the question."},
        "better": {"type": "string", "enum": ["first", "second", "neither"], "description": "The better answer."},
    },
    "required": ["reasoning", "better"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class AnswerPair:
    """Two answers to the same input, as texts, and what was expected, if anything was."""

    input: str
    expected: str | None
    one: str
    other: str


@dataclass(frozen=True, slots=True)
class PairJudgement:
    """The side that a judge prefers, by its answers in both orders: that of the pair, then the other one."""

    preferred: Side
    positions: tuple[Position, Position]
    reasons: tuple[str, str]


def pair_prompt(asked: str, pair: AnswerPair) -> StructuredPrompt:
    """Return the question `asked` about both answers, in their order.

    Raises CheckArgumentsError where one of the answers says nothing: models have been seen to prefer it.
    """
    parts: list[str | Filled] = [
        f"Two answers to the same input are compared by this question: {asked}\n\nThe input:\n",
        Filled("$.test_case.input", pair.input),
    ]
    if pair.expected is not None:
        parts += ["\n\nWhat a good answer has, as a reference:\n", Filled("$.test_case.expected", pair.expected)]
    parts += [
        "\n\nThe first answer:\n",
        Filled("$.output.value", pair.one),
        "\n\nThe second answer:\n",
        Filled("$.output.value", pair.other),
        "\n\nGo by the question and by nothing else: neither the order of the answers nor their length is a reason. "
        'Give your reasons, then say which answer is better: "first", "second", or "neither" if none of them is.',
    ]
    return judge_prompt(RenderedPrompt(parts), SCHEMA, VERSION)


async def judge_pair(requests: ModelRequests, model: Model, asked: str, pair: AnswerPair) -> PairJudgement:
    """Ask in both orders, and return what holds in both. Raises as `structured.ask` does, if either has no answer."""
    swapped = AnswerPair(pair.input, pair.expected, pair.other, pair.one)
    prompts = [pair_prompt(asked, order) for order in (pair, swapped)]
    answers = await asyncio.gather(
        *(structured.ask(requests, model, prompt, _read) for prompt in prompts), return_exceptions=True
    )
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    (here, _), (there, _) = answers  # type: ignore[misc]  # no exception is left
    return PairJudgement(_agreed(here[0], there[0]), (here[0], there[0]), (here[1], there[1]))


def _agreed(here: Position, there: Position) -> Side:
    if (here, there) == ("first", "second"):
        return "one"
    return "other" if (here, there) == ("second", "first") else "tie"


def _read(response: Any) -> tuple[Position, str]:
    errors = schema_errors(SCHEMA, response)
    if errors:
        raise CheckArgumentsError(f"the judge's answer is not as it was asked for: {'; '.join(errors)}")
    return response["better"], response["reasoning"]
