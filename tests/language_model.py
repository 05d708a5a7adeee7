"""A stand-in for models that fails as a test wants, in the shapes of OpenAI, Anthropic and Ollama.

It makes up answers as the shipped stand-in does. `GET /` counts requests.

    POST /v1/chat/completions, /v1/embeddings     OpenAI and all that is compatible with it
    POST /v1/messages                             Anthropic
    POST /api/chat, /api/embed                    Ollama

A request says by its model's name what goes wrong: `stand-in?fault=error&times=2`, see `FaultConfig`.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args, get_type_hints
from urllib.parse import parse_qsl

from aiohttp import web

from fepflow.deployments.simulators.language_model import (
    RANDOM_WORD,
    fraction,
    texts_of,
    tokens_of,
    value_for,
)

DIMENSIONS = 64


def vector_of(text: str, seed: int, dimensions: int = DIMENSIONS) -> list[float]:
    """Return a vector of length 1: the sum of a made-up direction for each word, so that common words bring texts
    together."""
    sums = [0.0] * dimensions
    for word in re.findall(r"\w+", text.lower()) or [""]:
        for index in range(dimensions):
            sums[index] += fraction(seed, word, index) - 0.5
    length = math.sqrt(sum(number * number for number in sums)) or 1.0
    return [round(number / length, 6) for number in sums]


def inputs_of(body: dict[str, Any]) -> list[str]:
    """Return the texts to embed."""
    texts = body.get("input", "")
    return [texts] if isinstance(texts, str) else [str(text) for text in texts]


def schema_in(text: str) -> dict[str, Any] | None:
    """Return the last JSON Schema of an object that stands somewhere in a text."""
    schemas = [value for value in _objects_in(text) if isinstance(value.get("properties"), dict)]
    return schemas[-1] if schemas else None


def _objects_in(text: str) -> Iterator[dict[str, Any]]:
    decoder, start = json.JSONDecoder(), text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            value, end = None, start + 1
        if isinstance(value, dict):
            yield value
        start = text.find("{", end)


StopReason = Literal["done", "cut_off", "refused", "filtered"]

_OPENAI = {"done": "stop", "cut_off": "length", "refused": "stop", "filtered": "content_filter"}
_ANTHROPIC = {"done": "end_turn", "cut_off": "max_tokens", "refused": "refusal", "filtered": "refusal"}
_OLLAMA = {"done": "stop", "cut_off": "length", "refused": "stop", "filtered": "stop"}


@dataclass(frozen=True)
class FakeReply:
    """A simulated response; `usage` is prompt and completion tokens, None if it is not reported."""

    model: str
    text: str
    stop_reason: StopReason = "done"
    usage: tuple[int, int] | None = None


def openai_chat(reply: FakeReply) -> dict[str, Any]:
    """An answer of `POST /v1/chat/completions`."""
    refused = reply.stop_reason == "refused"
    message = {"role": "assistant", "content": None if refused else reply.text}
    if refused:
        message["refusal"] = reply.text
    body: dict[str, Any] = {
        "id": "chatcmpl-stand-in",
        "object": "chat.completion",
        "created": 0,
        "model": reply.model,
        "choices": [{"index": 0, "message": message, "finish_reason": _OPENAI[reply.stop_reason]}],
    }
    if reply.usage:
        prompt_tokens, completion_tokens = reply.usage
        body["usage"] = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        }
    return body


def openai_embeddings(model: str, vectors: list[tuple[int, list[float]]], tokens: int | None) -> dict[str, Any]:
    """An answer of `POST /v1/embeddings`; each vector comes with its index."""
    data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in vectors]
    body: dict[str, Any] = {"object": "list", "model": model, "data": data}
    if tokens is not None:
        body["usage"] = {"prompt_tokens": tokens, "total_tokens": tokens}
    return body


def anthropic_messages(reply: FakeReply, tool: str | None) -> dict[str, Any]:
    """An answer of `POST /v1/messages`; with a tool that must be used, an object is that tool's input."""
    content: list[dict[str, Any]] = [{"type": "text", "text": reply.text}] if reply.text else []
    stop_reason = _ANTHROPIC[reply.stop_reason]
    given = _as_object(reply.text)
    if tool is not None and reply.stop_reason == "done" and given is not None:
        content = [{"type": "tool_use", "id": "toolu_stand_in", "name": tool, "input": given}]
        stop_reason = "tool_use"
    body: dict[str, Any] = {
        "id": "msg_stand_in",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": None,
    }
    if reply.usage:
        body["usage"] = {"input_tokens": reply.usage[0], "output_tokens": reply.usage[1]}
    return body


def ollama_chat(reply: FakeReply) -> dict[str, Any]:
    """An answer of `POST /api/chat`."""
    body: dict[str, Any] = {
        "model": reply.model,
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": reply.text},
        "done": True,
        "done_reason": _OLLAMA[reply.stop_reason],
    }
    if reply.usage:
        body["prompt_eval_count"], body["eval_count"] = reply.usage
    return body


def ollama_embeddings(model: str, vectors: list[list[float]], tokens: int | None) -> dict[str, Any]:
    """An answer of `POST /api/embed`, whose vectors stand in the order of the texts."""
    body: dict[str, Any] = {"model": model, "embeddings": vectors}
    return body if tokens is None else {**body, "prompt_eval_count": tokens}


def _as_object(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    return value if isinstance(value, dict) else None


Fault = Literal[
    "rate_limited",  # 429 with Retry-After
    "quota",  # 429: the money is used up
    "error",  # 500
    "overloaded",  # 529
    "unauthorized",  # 401, in whose message the key stands, as some providers have it
    "dropped",  # the connection is closed without an answer
    "truncated",  # the connection is closed in the middle of the answer
    "garbled",  # the answer is not JSON
    "hang",  # there is no answer, ever
    "refusal",  # the model refuses to answer
    "filtered",  # a filter keeps the answer back
    "cut_off",  # the answer ends where max_tokens is reached
    "empty",  # the answer is an empty text
    "prose",  # the answer is a sentence, and no JSON
    "misfit",  # the answer is JSON, and not as the schema has it
    "fenced",  # the answer is JSON in a code fence
    "no_usage",  # no usage is reported
    "shuffled",  # embeddings come in another order than their texts
    "no_index",  # embeddings come without their last one
]
FAULTS: tuple[str, ...] = get_args(Fault)


@dataclass(frozen=True)
class FaultConfig:
    """The behaviour of the stand-in; each request may set it for itself, see `fault_config_of`.

    `fault` strikes the first `times` requests of a model (0: all of them), or with `often` below 1 that part of all
    requests. `say` is the text of the answer, whatever is asked; of several, `||` between them, each request gets the
    next. `prefer` is a word: of the last two texts that are judged, the one that has it is the better one. `refuse` are
    the response formats, separated by commas, that are refused with a 400; `reject` are parameters, and `forbid` is a
    word in texts to embed, of which the same is true.
    """

    latency: float = 0.0
    fault: str = ""
    times: int = 0
    often: float = 1.0
    retry_after: str = "1"
    refuse: str = ""
    reject: str = ""
    forbid: str = ""
    say: str = ""
    prefer: str = ""

    def text_for(self, count: int) -> str:
        """Return the text for the `count`-th request, from 1."""
        texts = self.say.split("||")
        return texts[(count - 1) % len(texts)]

    def strikes(self, seed: int, count: int) -> bool:
        """Return whether the fault strikes the `count`-th request, from 1."""
        if not self.fault or (self.times and count > self.times):
            return False
        return fraction(seed, self.fault, count) < self.often


def fault_config_of(model: str) -> FaultConfig:
    """The knobs that a model's name asks for: `stand-in?fault=rate_limited&times=2`. Raises ValueError."""
    hints = get_type_hints(FaultConfig)
    given: dict[str, Any] = {item.name: item.default for item in fields(FaultConfig)}
    for name, text in parse_qsl(model.partition("?")[2]):
        if name not in hints:
            raise ValueError(f"there is no knob {name} (there are {', '.join(hints)})")
        given[name] = hints[name](text)
    if given["fault"] and given["fault"] not in FAULTS:
        raise ValueError(f"there is no fault {given['fault']} (there are {', '.join(FAULTS)})")
    return FaultConfig(**given)


NOTICE = "A stand-in for tests and demonstrations: answers are made up from the schema, no model judges anything."
PROSE = "I think that this is a good answer."

Json = dict[str, Any]


@dataclass
class Server:
    """The stand-in of one process; `on_request` sees the path, headers and body of every request."""

    seed: int
    on_request: Callable[[str, dict[str, str], Json], None] | None = None
    counts: Counter[str] = field(default_factory=Counter)
    of_model: Counter[str] = field(default_factory=Counter)

    async def about(self, _: web.Request) -> web.Response:
        """Name, notice and counts of requests."""
        return web.json_response(
            {"service": "model", "stand_in": True, "notice": NOTICE, "seed": self.seed, "requests": dict(self.counts)}
        )

    async def unknown(self, request: web.Request) -> web.Response:
        """Unknown paths are counted, too."""
        self.counts[request.path] += 1
        if self.on_request is not None:
            self.on_request(request.path, dict(request.headers), {"model": ""})
        return _error(404, f"there is no {request.path}", "not_found_error")

    def on(self, answer: Callable[[Server, Json, FaultConfig, str], Json]) -> Callable[[web.Request], Awaitable[Any]]:
        """A handler that reads the request, lets its knobs work, and answers as `answer` has it."""

        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                body = json.loads(await request.read())
                model = str(body["model"])
                config = fault_config_of(model)
            except (ValueError, KeyError, TypeError) as error:
                return _error(400, f"the request cannot be read: {error}", "invalid_request_error")
            self.counts[request.path] += 1
            self.of_model[model] += 1
            if self.on_request is not None:
                self.on_request(request.path, dict(request.headers), body)
            config = replace(config, say=config.text_for(self.of_model[model]))
            fault = config.fault if config.strikes(self.seed, self.of_model[model]) else ""
            await asyncio.sleep(config.latency)
            refusal = _refusal(body, config)
            if refusal is not None:
                return _error(400, refusal, "invalid_request_error")
            return await _wire_fault(request, config, fault) or await _sent(
                request, answer(self, body, config, fault), fault
            )

        return handle

    def chat(self, body: Json, config: FaultConfig, fault: str) -> Json:
        """OpenAI's chat completions."""
        wanted = body.get("response_format", {}).get("json_schema", {}).get("schema")
        return openai_chat(self._say(body, wanted, texts_of(body["messages"]), config, fault))

    def messages(self, body: Json, config: FaultConfig, fault: str) -> Json:
        """Anthropic's messages: the schema is that of a tool, or of an output format."""
        tools = body.get("tools") or [{}]
        output = body.get("output_format") or body.get("output_config", {}).get("format") or {}
        wanted = tools[0].get("input_schema") or output.get("schema")
        texts = texts_of([{"content": body.get("system", "")}, *body["messages"]])
        return anthropic_messages(self._say(body, wanted, texts, config, fault), tools[0].get("name"))

    def ollama(self, body: Json, config: FaultConfig, fault: str) -> Json:
        """Ollama's chat."""
        wanted = body.get("format")
        texts = texts_of(body["messages"])
        return ollama_chat(self._say(body, wanted if isinstance(wanted, dict) else None, texts, config, fault))

    def embeddings(self, body: Json, _: FaultConfig, fault: str) -> Json:
        """OpenAI's embeddings."""
        vectors = list(enumerate(self._vectors(body)))
        if fault == "shuffled":
            vectors.reverse()
        if fault == "no_index":
            vectors.pop()
        tokens = None if fault == "no_usage" else tokens_of(*inputs_of(body))
        return openai_embeddings(_named(body), vectors, tokens)

    def embed(self, body: Json, _: FaultConfig, fault: str) -> Json:
        """Ollama's embeddings."""
        tokens = None if fault == "no_usage" else tokens_of(*inputs_of(body))
        return ollama_embeddings(_named(body), self._vectors(body), tokens)

    def _vectors(self, body: Json) -> list[list[float]]:
        size = body.get("dimensions") or DIMENSIONS
        return [vector_of(text, self.seed, size) for text in inputs_of(body)]

    def _say(self, body: Json, wanted: Json | None, texts: list[str], config: FaultConfig, fault: str) -> FakeReply:
        schema = wanted or schema_in("\n".join(texts))
        value: Any = {"text": PROSE} if schema is None else value_for(schema, self.seed, RANDOM_WORD.sub("", texts[-1]))
        if config.prefer:
            value = {**value, "better": _preferred(texts[-1], config.prefer)}
        text, stop_reason = _spoilt(config.say or json.dumps(value), fault)
        usage = None if fault == "no_usage" else (tokens_of(*texts), tokens_of(text))
        return FakeReply(_named(body), text, stop_reason, usage)


_JUDGED = re.compile(r'<(judged-[0-9a-f]{32}) text="\d+">\n(.*?)\n</\1>', re.DOTALL)


def _preferred(text: str, word: str) -> str:
    """Return which of the last two judged texts has a word: `first`, `second`, or `neither` if both or none has."""
    first, second = (word in judged for _, judged in _JUDGED.findall(text)[-2:])
    return "neither" if first == second else "first" if first else "second"


def _spoilt(text: str, fault: str) -> tuple[str, StopReason]:
    """The text of an answer and how it ends, when the fault is the model's and not the wire's."""
    if fault == "refusal":
        return "I cannot help with that.", "refused"
    if fault == "filtered":
        return "", "filtered"
    if fault == "cut_off":
        return text[: len(text) // 2], "cut_off"
    replaced = {"empty": "", "prose": PROSE, "misfit": '{"verdict": "certainly"}', "fenced": f"```json\n{text}\n```"}
    return replaced.get(fault, text), "done"


def _refusal(body: Json, config: FaultConfig) -> str | None:
    """Return a provider's message for a response format, a parameter or a text that it refuses."""
    form = body.get("response_format", {}).get("type") or ("json_schema" if "tools" in body or "format" in body else "")
    if form and form in config.refuse.split(","):
        return f"Invalid parameter: 'response_format' of type '{form}' is not supported with this model."
    for name in filter(None, config.reject.split(",")):
        if name in body:
            return f"Unsupported parameter: '{name}' is not supported with this model."
    if config.forbid and any(config.forbid in text for text in inputs_of(body)):
        return "One of the inputs cannot be embedded."
    return None


async def _wire_fault(request: web.Request, config: FaultConfig, fault: str) -> web.StreamResponse | None:
    if fault == "rate_limited":
        return _error(429, "Rate limit reached", "rate_limit_error", {"Retry-After": config.retry_after})
    if fault == "quota":
        return _error(429, "You exceeded your current quota", "insufficient_quota")
    if fault == "error":
        return _error(500, "The server had an error", "server_error")
    if fault == "overloaded":
        return _error(529, "Overloaded", "overloaded_error")
    if fault == "unauthorized":
        key = request.headers.get("Authorization") or request.headers.get("x-api-key")
        return _error(401, f"Incorrect API key provided: {key}", "invalid_api_key")
    if fault == "garbled":
        return web.Response(text="<html>everything is fine</html>", content_type="application/json")
    if fault == "hang":
        await asyncio.Event().wait()
    if fault == "dropped" and request.transport:
        request.transport.abort()
        return web.Response()
    return None


async def _sent(request: web.Request, answer: Json, fault: str) -> web.StreamResponse:
    whole = json.dumps(answer).encode()
    if fault != "truncated":
        return web.Response(body=whole, content_type="application/json")
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(len(whole))})
    await response.prepare(request)
    await response.write(whole[: len(whole) // 2])
    if request.transport:
        request.transport.close()
    return response


def _error(status: int, message: str, kind: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response(
        {"type": "error", "error": {"message": message, "type": kind, "code": kind}}, status=status, headers=headers
    )


def _named(body: Json) -> str:
    return f"{str(body['model']).partition('?')[0]} (stand-in)"


def application(
    seed: int = 7,
    on_request: Callable[[str, dict[str, str], Json], None] | None = None,
) -> web.Application:
    """The stand-in as an aiohttp application."""
    server = Server(seed, on_request)
    app = web.Application(client_max_size=16 * 1024 * 1024)
    app.add_routes(
        [
            web.get("/", server.about),
            web.post("/v1/chat/completions", server.on(Server.chat)),
            web.post("/v1/embeddings", server.on(Server.embeddings)),
            web.post("/v1/messages", server.on(Server.messages)),
            web.post("/api/chat", server.on(Server.ollama)),
            web.post("/api/embed", server.on(Server.embed)),
            web.route("*", "/{other:.*}", server.unknown),
        ]
    )
    return app
