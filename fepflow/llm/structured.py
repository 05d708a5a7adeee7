"""Answers in the form of a JSON Schema, from whatever provider: by its own strict mode, its JSON mode, or by asking."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from fepflow.errors import CheckArgumentsError, ModelError
from fepflow.llm import door
from fepflow.llm.model import Model, Reply, Usage
from fepflow.llm.strict_schema import strict, without_nulls
from fepflow.strict_json import parse

Mode = Literal["json_schema", "json_object", "prompt"]
T = TypeVar("T")

LADDER: tuple[Mode, ...] = ("json_schema", "json_object", "prompt")

RE_ASKS = 2
"""So often the model is told what is wrong with its answer."""

_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*)\n\s*```\s*", re.DOTALL | re.IGNORECASE)

_refused: dict[tuple[str, str | None], set[tuple[Mode, str]]] = defaultdict(set)
"""Modes that a model, at its address, has refused: for any schema (an empty text), or for this one."""


@dataclass(frozen=True)
class Question:
    """What is asked: instructions, which are ours, and a text, which is not.

    `readable` makes a text safe to stand beside the judged one: what is said about an answer may quote it. `nonce` is
    a random word in both texts, which is no part of what is asked. `sample` numbers the times that the same is asked
    on purpose, and `version` is that of the check that asks.
    """

    instructions: str
    text: str
    schema: dict[str, Any]
    readable: Callable[[str], str] = str
    nonce: str = ""
    version: str = ""
    sample: int = 0


@dataclass(frozen=True)
class Asked:
    """How an answer came about: by `mode`, after so many requests, which took `usage` together."""

    model_answered: str
    mode: Mode
    requests: int
    usage: Usage
    seconds: float
    not_honoured: tuple[str, ...]


async def ask(model: Model, question: Question, read: Callable[[Any], T]) -> tuple[T, Asked]:
    """The model's answer as `read` has it, which raises CheckArgumentsError for one that does not fit.

    The model is told so, twice at most. Raises ModelError: kind `invalid` if no answer fits, else what the door says.
    """
    asking = _Asking(model, question, await _skipped(model))
    complaint = ""
    for _ in range(RE_ASKS + 1):
        reply = await asking.ask()
        try:
            value = read(_read(reply.text, question.schema, asking.used))
        except CheckArgumentsError as error:
            complaint = str(error)
            asking.tell(reply, complaint)
        else:
            return value, asking.told(reply)
    raise ModelError(f"no answer of {model.name} fits, though asked {RE_ASKS + 1} times: {complaint}", kind="invalid")


async def _skipped(model: Model) -> frozenset[Mode]:
    """litellm drops the JSON mode for Anthropic without a word: there is none."""
    return frozenset({"json_object"}) if await door.provider_of(model) == "anthropic" else frozenset()


class _Asking:
    """One question on its way down the ladder."""

    def __init__(self, model: Model, question: Question, skipped: frozenset[Mode]) -> None:
        self._model = model
        self._question = question
        self._schema_text = json.dumps(question.schema, ensure_ascii=False, sort_keys=True, default=str)
        self._modes = [mode for mode in LADDER if mode not in skipped]
        self._turns: list[dict[str, str]] = []
        self._requests = 0
        self._seconds = 0.0
        self.used: Mode = "prompt"
        """The mode of the last answer."""
        self._usage = Usage(0, 0, 0.0)

    def _best(self) -> Mode:
        """The best mode that has not been refused."""
        refused = _refused[self._model.place]
        return next((m for m in self._modes if not {(m, ""), (m, self._schema_text)} & refused), "prompt")

    async def ask(self) -> Reply:
        """The model's answer, in the best mode that it does not refuse."""
        while True:
            self.used = mode = self._best()
            try:
                reply = await door.ask(self._model, self._messages(mode), self._format(mode))
            except ModelError as error:
                self._requests += 1
                if error.kind != "format_refused" or mode == "prompt":
                    raise
                # A word against this one schema says nothing about the next.
                of_schema = self._schema_text if re.search(r"invalid schema", str(error), re.IGNORECASE) else ""
                _refused[self._model.place].add((mode, of_schema))
                continue
            self._requests += reply.requests
            self._usage += reply.usage
            self._seconds += reply.seconds
            return reply

    def tell(self, reply: Reply, complaint: str) -> None:
        """Next time the model sees its answer, and what is wrong with it."""
        said = self._question.readable(
            f"This answer cannot be used: {complaint}. Answer again, with the JSON object only."
        )
        self._turns += [{"role": "assistant", "content": reply.text}, {"role": "user", "content": said}]

    def told(self, reply: Reply) -> Asked:
        """How the answer came about."""
        seconds = round(self._seconds, 3)
        return Asked(reply.model, self.used, self._requests, self._usage, seconds, reply.not_honoured)

    def _messages(self, mode: Mode) -> list[dict[str, str]]:
        system = self._question.instructions
        if mode != "json_schema":
            system += (
                f"\n\nAnswer with one JSON object and nothing else, as this JSON Schema has it:\n{self._schema_text}"
            )
        asked = {"role": "user", "content": self._question.text}
        return [{"role": "system", "content": system}, asked, *self._turns]

    def _format(self, mode: Mode) -> dict[str, Any] | None:
        if mode == "prompt":
            return None
        if mode == "json_object":
            return {"type": "json_object"}
        adapted = strict(self._question.schema)
        schema = {"schema": adapted or self._question.schema, "strict": adapted is not None}
        return {"type": "json_schema", "json_schema": {"name": "verdict", **schema}}


def _read(text: str, schema: dict[str, Any], mode: Mode) -> Any:
    """The JSON of an answer, in a code fence or not; raises CheckArgumentsError."""
    fenced = _FENCED.fullmatch(text)
    try:
        value = parse(fenced[1] if fenced else text)
    except ValueError as error:
        raise CheckArgumentsError(f"the judge's response is not valid JSON: {error}") from None
    return without_nulls(value, schema) if mode == "json_schema" else value
