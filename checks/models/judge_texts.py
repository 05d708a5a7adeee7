"""The texts that judges of answers compare: question, answer, reference and context, and how a model is shown them."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from fepflow.checks.base import MISSING, JSONPath
from fepflow.checks.models.judge_prompt import says_something
from fepflow.errors import CheckArgumentsError
from fepflow.text import text_of

QUESTION = Field(default=JSONPath("$.test_case.input"), description="Question to the agent.")
ANSWER = Field(default=JSONPath("$.output.value"), description="Answer to judge.")
REFERENCE = Field(default=JSONPath("$.test_case.expected"), description="Right answer, or what it must say.")
CONTEXT = Field(
    default=JSONPath("$.output.metadata.context"),
    description="Source of the answer: a text, or a list of texts or objects, the best first.",
)

MOST_CONTEXTS = 100
MOST_CHARACTERS = 400_000
"""Largest size of all contexts together: about what models with a large window can read."""


def has_text(value: Any) -> bool:
    """Return whether a reference is there: an empty cell of a table is none."""
    return value is not MISSING and text_of(value).strip() not in ("", "null")


def contexts_of(context: Any) -> list[str]:
    """Return the contexts as texts, in their order. Raises CheckArgumentsError for none, and for too many."""
    if context is MISSING:
        raise CheckArgumentsError(
            "no context found: $.output.metadata.context is not there (map it in the target's metadata, or say with "
            "context: where it is)"
        )
    values = context if isinstance(context, list) else [] if context is None else [context]
    texts = [text_of(value) for value in values]
    if not any(map(says_something, texts)):
        raise CheckArgumentsError("no context found: it is empty, so nothing can be judged by it")
    if len(texts) > MOST_CONTEXTS:
        raise CheckArgumentsError(f"there are {len(texts):,} contexts; at most {MOST_CONTEXTS} are allowed")
    if (characters := sum(map(len, texts))) > MOST_CHARACTERS:
        raise CheckArgumentsError(f"the context has {characters:,} characters; at most {MOST_CHARACTERS:,} are allowed")
    return texts
