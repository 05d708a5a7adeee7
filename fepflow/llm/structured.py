"""Answers in the form of a JSON Schema, from whatever provider: by its own strict mode, its JSON mode, or by asking.

An answer that fits is kept where a run has handed over a place for it (see `answers`), and looked up before a model is
asked. It is found by all that may change it: the model and its address, the messages, the schema, the mode, the
parameters, which of the target's answers is asked about, the sample and the check's version.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from fepflow.answer import Answer
from fepflow.errors import CheckArgumentsError, ModelError, brief
from fepflow.llm import answers, door
from fepflow.llm.model import Model, Reply, Usage, sendable
from fepflow.llm.strict_schema import strict, without_nulls
from fepflow.protocol.address import address_of
from fepflow.sizes import has_more_values
from fepflow.strict_json import parse

Mode = Literal["json_schema", "json_object", "prompt"]
T = TypeVar("T")

LADDER: tuple[Mode, ...] = ("json_schema", "json_object", "prompt")

RE_ASKS = 2
"""So often the model is told what is wrong with its answer."""

MOST_OF_AN_ANSWER = 20_000
"""Characters of an answer that the model is shown again."""

MOST_VALUES = 2_000
"""JSON values of an answer: a judgement has a dozen, and each is read, and compared with its schema."""

_FENCE = "```"

_refused: dict[tuple[str, str | None], set[tuple[Mode, str]]] = defaultdict(set)
"""Modes that a model, at its address, has refused: for any schema (an empty text), or for this one."""


@dataclass(frozen=True)
class Question:
    """What is asked: instructions, which are ours, and a text, which is not.

    `readable` makes a text safe to stand beside the judged one: what is said about an answer may quote it. `nonce` is
    a random word in both texts, which is no part of what is asked. `sample` counts, from 0, how often the same is
    asked, for answers of its own, and `version` is that of the check that asks.
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
    """How an answer came about: by `mode`, after so many requests, which took `usage` together.

    One that was `cached` took no request now; `usage` is what it took when it was asked for.
    """

    model_answered: str
    mode: Mode
    requests: int
    usage: Usage
    seconds: float
    not_honoured: tuple[str, ...]
    cached: bool = False


async def ask(model: Model, question: Question, read: Callable[[Any], T]) -> tuple[T, Asked]:
    """The answer that is kept, or the model's, as `read` has it, which raises CheckArgumentsError if it does not fit.

    The model is told so, twice at most. Raises ModelError: kind `invalid` if no answer fits, else what the door says.
    """
    kept = answers.kept.get()
    if kept is not None and not kept.anew:
        return await _find_or_ask(kept, model, question, read)
    value, asked, text = await _ask(model, question, read)
    if kept is not None:
        await kept.answers.put(_keys(model, question)[asked.mode], _answer(model, asked, text))
    return value, asked


async def _find_or_ask(
    kept: answers.Kept, model: Model, question: Question, read: Callable[[Any], T]
) -> tuple[T, Asked]:
    keys = _keys(model, question)
    own: list[tuple[T, Asked]] = []

    async def work() -> Answer:
        found = await kept.answers.get(keys.values())  # in one go: which modes the model refuses is not known yet
        for mode in LADDER:
            if (answer := found.get(keys[mode])) is not None and _reread(answer, question, read) is not None:
                return answer
        value, asked, text = await _ask(model, question, read)
        own.append((value, asked))
        answer = _answer(model, asked, text)
        await kept.answers.put(keys[asked.mode], answer)
        return answer

    answer = await kept.flights.join(keys[LADDER[0]], work)
    if not own and (reread := _reread(answer, question, read)) is not None:
        own.append(reread)
    if not own:  # somebody else's answer, and one's own rules are stricter than the schema
        value, asked, _ = await _ask(model, question, read)
        own.append((value, asked))
    return own[0]


def _keys(model: Model, question: Question) -> dict[Mode, str]:
    """By which an answer is found, for each mode that it may have been asked for in."""
    same = model.name, model.bare_base, question.schema, dict(model.parameters)
    which = answers.repeat(), question.sample, question.version
    keys: dict[Mode, str] = {}
    for mode in LADDER:
        texts = [message["content"] for message in _messages(question, mode)]
        if question.nonce:
            texts = [text.replace(question.nonce, "") for text in texts]
        keys[mode] = address_of("judge", *same, mode, texts, *which)
    return keys


def _answer(model: Model, asked: Asked, text: str) -> Answer:
    usage = asked.usage
    tokens = usage.prompt_tokens, usage.completion_tokens
    return Answer(
        "judge", model.name, asked.model_answered, asked.mode, text, *tokens, usage.cost_usd, asked.not_honoured
    )


def _reread(answer: Answer, question: Question, read: Callable[[Any], T]) -> tuple[T, Asked] | None:
    """What an answer that was given before says, if it still fits."""
    mode: Mode = next((mode for mode in LADDER if mode == answer.mode), "prompt")
    try:
        value = read(_read(answer.text, question.schema, mode))
    except CheckArgumentsError:
        return None
    usage = Usage(answer.prompt_tokens, answer.completion_tokens, answer.cost_usd)
    return value, Asked(answer.model_answered, mode, 0, usage, 0.0, answer.not_honoured, cached=True)


async def _ask(model: Model, question: Question, read: Callable[[Any], T]) -> tuple[T, Asked, str]:
    """The model's answer, how it came about, and as it was written."""
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
            return value, asking.told(reply), reply.text
    raise ModelError(f"no answer of {model.name} fits, though asked {RE_ASKS + 1} times: {complaint}", kind="invalid")


async def _skipped(model: Model) -> frozenset[Mode]:
    """litellm drops the JSON mode for Anthropic without a word: there is none."""
    return frozenset({"json_object"}) if await door.provider_of(model) == "anthropic" else frozenset()


class _Asking:
    """One question on its way down the ladder."""

    def __init__(self, model: Model, question: Question, skipped: frozenset[Mode]) -> None:
        self._model = model
        self._question = question
        self._schema_text = _schema_text(question)
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
                reply = await door.ask(self._model, self._said(mode), self._format(mode))
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

    def _said(self, mode: Mode) -> list[dict[str, str]]:
        """All that was said so far, by us and by the model."""
        said = [*_messages(self._question, mode), *self._turns]
        return [{**message, "content": sendable(message["content"])} for message in said]

    def tell(self, reply: Reply, complaint: str) -> None:
        """Next time the model sees its answer, and what is wrong with it."""
        said = self._question.readable(
            f"This answer cannot be used: {complaint}. Answer again, with the JSON object only."
        )
        answer = brief(reply.text, MOST_OF_AN_ANSWER)
        self._turns += [{"role": "assistant", "content": answer}, {"role": "user", "content": said}]

    def told(self, reply: Reply) -> Asked:
        """How the answer came about."""
        seconds = round(self._seconds, 3)
        return Asked(reply.model, self.used, self._requests, self._usage, seconds, reply.not_honoured)

    def _format(self, mode: Mode) -> dict[str, Any] | None:
        if mode == "prompt":
            return None
        if mode == "json_object":
            return {"type": "json_object"}
        adapted = strict(self._question.schema)
        schema = {"schema": adapted or self._question.schema, "strict": adapted is not None}
        return {"type": "json_schema", "json_schema": {"name": "verdict", **schema}}


def _messages(question: Question, mode: Mode) -> list[dict[str, str]]:
    """How a question begins."""
    system = question.instructions
    if mode != "json_schema":
        schema = _schema_text(question)
        system += f"\n\nAnswer with one JSON object and nothing else, as this JSON Schema has it:\n{schema}"
    return [{"role": "system", "content": system}, {"role": "user", "content": question.text}]


def _schema_text(question: Question) -> str:
    return json.dumps(question.schema, ensure_ascii=False, sort_keys=True, default=str)


def _read(text: str, schema: dict[str, Any], mode: Mode) -> Any:
    """The JSON of an answer, in a code fence or not; raises CheckArgumentsError."""
    bare = _unfenced(text)
    if has_more_values(bare, MOST_VALUES):
        raise CheckArgumentsError(f"the judge's response holds more than {MOST_VALUES:,} JSON values")
    try:
        value = parse(bare)
        _refuse_numbers_without_end(value)
    except ValueError as error:
        raise CheckArgumentsError(f"the judge's response is not valid JSON: {error}") from None
    return without_nulls(value, schema) if mode == "json_schema" else value


def _unfenced(text: str) -> str:
    """What stands in a code fence; the text itself if it is in none. Linear, whatever the text."""
    bare = text.strip()
    head, newline, rest = bare.partition("\n")
    is_opening = head.strip().lower() in (_FENCE, f"{_FENCE}json")
    return rest.removesuffix(_FENCE) if newline and is_opening and bare.endswith(_FENCE) else text


def _refuse_numbers_without_end(value: Any) -> None:
    """Raises ValueError for a number that is no score: no float is as large, so nothing can be computed with it."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _refuse_numbers_without_end(item)
    elif isinstance(value, int) and abs(value) > _LARGEST:
        raise ValueError("a number is too large")


_LARGEST = 10**300
