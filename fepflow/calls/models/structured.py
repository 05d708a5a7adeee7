"""Responses in the form of a JSON Schema, from any provider: by its strict mode, its JSON mode, or by the prompt.

A valid response is cached, and looked up before a request is made. Its key has everything that may change it: the model
and its address, the messages, the schema, the mode, the parameters, the repeat, the sample and the check's version.
Untrusted texts in a prompt stand between tags with a random word, and contain nothing like these tags.
"""

from __future__ import annotations

import json
import re
import secrets
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, TypeVar

from fepflow.calls.models.client import ModelRequests, ModelState
from fepflow.calls.models.model import ChatResponse, Mode, Model, Usage, sendable
from fepflow.calls.thread_pool import LOOKUPS
from fepflow.errors import CheckArgumentsError, ModelError
from fepflow.json.values import has_more_values, parse, referred
from fepflow.protocol.content_hash import CachedResponse, content_hash
from fepflow.text import brief

_REASONS = re.compile(r"reason|rationale|explanation|analysis|thought|justification|critique", re.IGNORECASE)
_NOT_STRICT = frozenset(
    {"allOf", "not", "if", "then", "else", "patternProperties", "propertyNames", "dependentRequired"}
    | {"dependentSchemas", "prefixItems", "contains", "unevaluatedProperties", "$dynamicRef", "$anchor"}
)
_LEFT_OUT = frozenset({"default", "$schema", "$id", "$comment", "examples", "title", "additionalProperties"})
_MOST_LEVELS = 32
_MOST_STEPS = 10_000
"""Most parts of a schema that are visited: references can make them many more than are written."""


class _NotStrictError(Exception):
    """The schema has something that strict providers do not accept."""


def strict(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema in the form for strict providers, or None if there is none."""
    try:
        return _strict(schema, 0)
    except _NotStrictError:
        return None


def _strict(schema: Any, level: int) -> dict[str, Any]:
    if not isinstance(schema, dict) or level > _MOST_LEVELS or _NOT_STRICT & schema.keys():
        raise _NotStrictError
    result: dict[str, Any] = {}
    for word, value in schema.items():
        if word in _LEFT_OUT:
            continue
        if word in ("$defs", "definitions"):
            result[word] = {name: _strict(item, level + 1) for name, item in value.items()}
        elif word in ("anyOf", "oneOf"):
            result["anyOf"] = [_strict(item, level + 1) for item in value]
        elif word == "items":
            result[word] = _strict(value, level + 1)
        elif word not in ("properties", "required"):
            result[word] = value
    if "properties" in schema or schema.get("type") == "object":
        result |= _closed(schema, level)
    return result


def _closed(schema: dict[str, Any], level: int) -> dict[str, Any]:
    members, required = schema.get("properties"), schema.get("required", [])
    if not members or isinstance(schema.get("additionalProperties"), dict) or not set(required) <= members.keys():
        raise _NotStrictError  # any object: strict providers have no form for it
    adapted = {name: _strict(item, level + 1) for name, item in members.items()}
    wanted = {name: item if name in required else _nullable(item) for name, item in adapted.items()}
    names = sorted(wanted, key=lambda name: not _REASONS.search(name))
    return {"properties": {name: wanted[name] for name in names}, "required": names, "additionalProperties": False}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    kind = schema.get("type")
    if isinstance(kind, str) and "enum" not in schema and "const" not in schema:
        return {**schema, "type": kind if kind == "null" else [kind, "null"]}
    if isinstance(kind, list) and "null" in kind:
        return schema
    return {"anyOf": [schema, {"type": "null"}]}


def without_nulls(value: Any, schema: Any) -> Any:
    """Return a response to the strict schema without nulls in place of optional members."""
    return _without_nulls(value, schema, schema, 0, iter(range(_MOST_STEPS)))


def _without_nulls(value: Any, schema: Any, root: Any, level: int, steps: Iterator[int]) -> Any:
    if next(steps, None) is None:
        return value
    if isinstance(schema, dict) and str(schema.get("$ref", "")).startswith("#/"):
        schema = referred(root, schema["$ref"])
    if not isinstance(schema, dict) or level > _MOST_LEVELS:
        return value
    for branch in [*schema.get("anyOf", []), *schema.get("oneOf", [])]:
        value = _without_nulls(value, branch, root, level + 1, steps)
    if isinstance(value, list):
        return [_without_nulls(item, schema.get("items"), root, level + 1, steps) for item in value]
    if not isinstance(value, dict):
        return value
    members = schema.get("properties", {})
    cleaned = {
        name: item
        for name, item in value.items()
        if item is not None or name not in members or name in schema.get("required", []) or _takes_null(members[name])
    }
    return {name: _without_nulls(item, members.get(name), root, level + 1, steps) for name, item in cleaned.items()}


def _takes_null(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return True
    branches = [*schema.get("anyOf", []), *schema.get("oneOf", [])]
    if branches:
        return any(_takes_null(branch) for branch in branches)
    if "$ref" in schema or "const" in schema:
        return schema.get("const", 0) is None
    kind = schema.get("type")
    return (None in schema["enum"]) if "enum" in schema else kind is None or kind == "null" or "null" in kind


T = TypeVar("T")

OUTPUT_MODES: tuple[Mode, ...] = ("json_schema", "json_object", "prompt")
"""Best first. If the model rejects a mode, the next one is used."""

MAX_CORRECTIONS = 2
"""Most requests to the model to correct its response."""

MAX_QUOTED = 20_000
"""Characters of a response that a correction shows to the model."""

MAX_VALUES = 2_000
"""Most JSON values of a response. A judgement has a dozen; each is read, and compared with the schema."""

READ_SECONDS = 10.0
"""Time limit for reading a response."""

_FENCE = "```"


@dataclass(frozen=True)
class StructuredPrompt:
    """A prompt for a response with a schema: trusted instructions, and an untrusted text.

    `readable` makes a text safe to stand beside the judged one, because a correction may quote the response. `nonce` is
    a random word in both texts, which is not part of the cache key. `sample` numbers the requests with the same prompt
    from 0, and `version` is that of the check. A response `of_all_repeats` serves all repeats.
    """

    instructions: str
    text: str
    schema: dict[str, Any]
    readable: Callable[[str], str] = str
    nonce: str = ""
    version: str = ""
    sample: int = 0
    of_all_repeats: bool = False


async def ask(
    requests: ModelRequests, model: Model, prompt: StructuredPrompt, read: Callable[[Any], T]
) -> tuple[T, ChatResponse]:
    """Return the cached response, or the model's, as read by `read`, which raises CheckArgumentsError for a misfit.

    The model is asked to correct a misfit, twice at most. Raises ModelError (kind `invalid` if no response fits), and
    the errors of `ModelClient.complete`.
    """
    return await requests.client.at_home(_ask(requests, model, prompt, read))


async def _ask(
    requests: ModelRequests, model: Model, prompt: StructuredPrompt, read: Callable[[Any], T]
) -> tuple[T, ChatResponse]:
    client = requests.client
    keys = _cache_keys(model, prompt, 0 if prompt.of_all_repeats else requests.context.repeat)
    own: list[tuple[T, ChatResponse]] = []

    async def work() -> CachedResponse:
        stored = await client.cached(keys.values())  # all at once: which modes the model rejects is unknown yet
        for mode in OUTPUT_MODES:
            if (response := stored.get(keys[mode])) is not None and await _from_cache(
                response, prompt, read
            ) is not None:
                return response
        own.append(await _request(requests, model, prompt, read))
        response = _to_cache(model, own[0][1])
        await client.store(keys[own[0][1].mode], response)
        return response

    if not client.reuses_responses:
        await work()
        return own[0]
    response = await client.single_flight.join(keys[OUTPUT_MODES[0]], work)
    if not own and (reread := await _from_cache(response, prompt, read)) is not None:
        own.append(reread)
    if not own:  # another caller's response, and this caller's rules are stricter than the schema
        own.append(await _request(requests, model, prompt, read))
    return own[0]


def _cache_keys(model: Model, prompt: StructuredPrompt, repeat: int) -> dict[Mode, str]:
    """Return the key of a response in each mode."""
    same = model.name, model.bare_base, prompt.schema, dict(model.parameters)
    which = repeat, prompt.sample, prompt.version
    keys: dict[Mode, str] = {}
    for mode in OUTPUT_MODES:
        texts = [message["content"] for message in _messages(prompt, mode)]
        if prompt.nonce:
            texts = [text.replace(prompt.nonce, "") for text in texts]
        keys[mode] = content_hash("judge", *same, mode, texts, *which)
    return keys


def _to_cache(model: Model, response: ChatResponse) -> CachedResponse:
    usage, reported = response.usage, (response.model, response.mode)
    tokens = usage.prompt_tokens, usage.completion_tokens
    return CachedResponse(
        "judge", model.name, *reported, response.text, *tokens, usage.cost_usd, response.dropped_params
    )


async def _from_cache(
    response: CachedResponse, prompt: StructuredPrompt, read: Callable[[Any], T]
) -> tuple[T, ChatResponse] | None:
    """Return the value of an earlier response if it still fits, else None."""
    mode: Mode = next((mode for mode in OUTPUT_MODES if mode == response.mode), "prompt")
    try:
        value = await _value(response.text, prompt, mode, read)
    except CheckArgumentsError:
        return None
    usage = Usage(response.prompt_tokens, response.completion_tokens, response.cost_usd)
    known = response.text, response.response_model, usage, response.dropped_params
    return value, ChatResponse(*known, requests=0, cached=True, mode=mode)


async def _request(
    requests: ModelRequests, model: Model, prompt: StructuredPrompt, read: Callable[[Any], T]
) -> tuple[T, ChatResponse]:
    """Return the value of the model's response, and the response, with the usage of all its requests."""
    conversation = _Conversation(requests, model, await requests.client.state_of(model), prompt)
    problem = ""
    for _ in range(MAX_CORRECTIONS + 1):
        response = await conversation.next_response()
        try:
            return await _value(response.text, prompt, response.mode, read), response
        except CheckArgumentsError as error:
            problem = str(error)
            conversation.correct(response, problem)
    tries = MAX_CORRECTIONS + 1
    raise ModelError(f"no answer of {model.name} fits, though asked {tries} times: {problem}", kind="invalid")


class _Conversation:
    """A prompt, and the corrections of its responses."""

    def __init__(self, requests: ModelRequests, model: Model, state: ModelState, prompt: StructuredPrompt) -> None:
        self._requests = requests
        self._model = model
        self._rejected = state.rejected_modes
        self._prompt = prompt
        self._schema_text = _schema_text(prompt)
        # litellm silently drops the JSON mode for Anthropic, which has none.
        self._modes = [mode for mode in OUTPUT_MODES if (state.provider, mode) != ("anthropic", "json_object")]
        self._corrections: list[dict[str, str]] = []
        self._n_requests = 0
        self._seconds = 0.0
        self._usage = Usage(0, 0, 0.0)

    def _best_mode(self) -> Mode:
        """Return the best mode that has not been rejected."""
        return next((m for m in self._modes if not {(m, ""), (m, self._schema_text)} & self._rejected), "prompt")

    async def next_response(self) -> ChatResponse:
        """Return the model's response, in the best mode that it does not reject."""
        client, context = self._requests.client, self._requests.context
        while True:
            mode = self._best_mode()
            try:
                response = await client.complete(self._model, self._messages(mode), context, self._format(mode))
            except ModelError as error:
                self._n_requests += 1
                if error.kind != "format_refused" or mode == "prompt":
                    raise
                # An error about this one schema says nothing about the next.
                of_schema = self._schema_text if re.search(r"invalid schema", str(error), re.IGNORECASE) else ""
                self._rejected.add((mode, of_schema))
                continue
            self._n_requests += response.requests
            self._usage += response.usage
            self._seconds += response.seconds
            requests, seconds = self._n_requests, round(self._seconds, 3)
            return replace(response, mode=mode, requests=requests, usage=self._usage, seconds=seconds)

    def _messages(self, mode: Mode) -> list[dict[str, str]]:
        messages = [*_messages(self._prompt, mode), *self._corrections]
        return [{**message, "content": sendable(message["content"])} for message in messages]

    def correct(self, response: ChatResponse, problem: str) -> None:
        """Add the response and its error to the next request."""
        correction = self._prompt.readable(
            f"This answer cannot be used: {problem}. Answer again, with the JSON object only."
        )
        self._corrections += [
            {"role": "assistant", "content": brief(response.text, MAX_QUOTED)},
            {"role": "user", "content": correction},
        ]

    def _format(self, mode: Mode) -> dict[str, Any] | None:
        if mode == "prompt":
            return None
        if mode == "json_object":
            return {"type": "json_object"}
        adapted = strict(self._prompt.schema)
        schema = {"schema": adapted or self._prompt.schema, "strict": adapted is not None}
        return {"type": "json_schema", "json_schema": {"name": "verdict", **schema}}


def _messages(prompt: StructuredPrompt, mode: Mode) -> list[dict[str, str]]:
    """Return the messages of a prompt, without corrections."""
    system = prompt.instructions
    if mode != "json_schema":
        schema = _schema_text(prompt)
        system += f"\n\nAnswer with one JSON object and nothing else, as this JSON Schema has it:\n{schema}"
    return [{"role": "system", "content": system}, {"role": "user", "content": prompt.text}]


def _schema_text(prompt: StructuredPrompt) -> str:
    return json.dumps(prompt.schema, ensure_ascii=False, sort_keys=True, default=str)


async def _value(text: str, prompt: StructuredPrompt, mode: Mode, read: Callable[[Any], T]) -> T:
    """Return the value that `read` makes of a response, off the event loop.

    Raises CheckArgumentsError for a response that does not fit, CheckTimeoutError.
    """
    work = partial(_read, text, prompt.schema, mode)
    return await LOOKUPS.run(lambda: read(work()), READ_SECONDS, "reading the response")


def _read(text: str, schema: dict[str, Any], mode: Mode) -> Any:
    """Return the JSON of a response, with or without a code fence. Raises CheckArgumentsError."""
    bare = _unfenced(text)
    if has_more_values(bare, MAX_VALUES):
        raise CheckArgumentsError(f"the model's response holds more than {MAX_VALUES:,} JSON values")
    try:
        value = parse(bare)
        _refuse_numbers_without_end(value)
    except ValueError as error:
        raise CheckArgumentsError(f"the model's response is not valid JSON: {error}") from None
    return without_nulls(value, schema) if mode == "json_schema" else value


def _unfenced(text: str) -> str:
    """Return the content of a code fence, or the text itself. Takes linear time."""
    bare = text.strip()
    head, newline, rest = bare.partition("\n")
    is_opening = head.strip().lower() in (_FENCE, f"{_FENCE}json")
    return rest.removesuffix(_FENCE) if newline and is_opening and bare.endswith(_FENCE) else text


def _refuse_numbers_without_end(value: Any) -> None:
    """Raise ValueError for a number that no float can represent: nothing can be computed with it."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            _refuse_numbers_without_end(item)
    elif isinstance(value, int) and abs(value) > _LARGEST:
        raise ValueError("a number is too large")


_LARGEST = 10**300


# --- untrusted texts in a prompt -------------------------------------------------------------------------------------


# Brackets that look like the beginning of a tag.
_BRACKETS = "<\N{FULLWIDTH LESS-THAN SIGN}\N{SMALL LESS-THAN SIGN}\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}" + (
    "\N{LEFT ANGLE BRACKET}\N{MATHEMATICAL LEFT ANGLE BRACKET}"
)
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")


@cache
def _forged(tag: str) -> re.Pattern[str]:
    return re.compile(rf"[{_BRACKETS}](?=[^\w{_BRACKETS}]*{tag})", re.IGNORECASE)


def escaped(text: str, tag: str) -> str:
    """Return a text in which nothing looks like the delimiter `tag`, whatever its random word."""
    seen = unicodedata.normalize("NFKC", _UNSEEN.sub("", text))
    # A text without a forged delimiter stays exactly as it was.
    return _forged(tag).sub("&lt;", seen) if _forged(tag).search(seen) else text


def random_word(texts: Iterable[str]) -> str:
    """Return a random word that is in none of the texts."""
    texts = list(texts)
    while True:
        nonce = secrets.token_hex(16)
        if not any(nonce in text for text in texts):
            return nonce
