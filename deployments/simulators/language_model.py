"""A stand-in for language and embedding models, over HTTP in the shapes of OpenAI, Anthropic and Ollama.

There is no model behind it: answers are made up from the JSON Schema that a request carries, and vectors from its
words, the same for the same seed and text. `GET /` and the name of the model that answered say so.

    POST /v1/chat/completions, /v1/embeddings     OpenAI and all that is compatible with it
    POST /v1/messages                             Anthropic
    POST /api/chat, /api/embed                    Ollama

It can be configured to fail, for all requests by the command line and for one by its model's name: see `config`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import click
from aiohttp import web

from fepflow.deployments.simulators.faults import FAULTS, FaultConfig, fault_config_of
from fepflow.deployments.simulators.generators import DIMENSIONS, schema_in, value_for, vector_of
from fepflow.deployments.simulators.serving import run
from fepflow.deployments.simulators.wire_formats import (
    FakeReply,
    StopReason,
    anthropic_messages,
    ollama_chat,
    ollama_embeddings,
    openai_chat,
    openai_embeddings,
)

NOTICE = "A stand-in for tests and demonstrations: answers are made up from the schema, no model judges anything."
PROSE = "I think that this is a good answer."

# A random word that keeps apart what is judged says nothing about it.
_RANDOM_WORD = re.compile(r"[0-9a-f]{32}")

Json = dict[str, Any]


@dataclass
class Server:
    """The stand-in of one process; `on_request` sees the path, headers and body of every request."""

    seed: int
    usual: FaultConfig
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
                config = fault_config_of(model, self.usual)
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
        return openai_chat(self._say(body, wanted, _texts(body["messages"]), config, fault))

    def messages(self, body: Json, config: FaultConfig, fault: str) -> Json:
        """Anthropic's messages: the schema is that of a tool, or of an output format."""
        tools = body.get("tools") or [{}]
        output = body.get("output_format") or body.get("output_config", {}).get("format") or {}
        wanted = tools[0].get("input_schema") or output.get("schema")
        texts = _texts([{"content": body.get("system", "")}, *body["messages"]])
        return anthropic_messages(self._say(body, wanted, texts, config, fault), tools[0].get("name"))

    def ollama(self, body: Json, config: FaultConfig, fault: str) -> Json:
        """Ollama's chat."""
        wanted = body.get("format")
        texts = _texts(body["messages"])
        return ollama_chat(self._say(body, wanted if isinstance(wanted, dict) else None, texts, config, fault))

    def embeddings(self, body: Json, _: FaultConfig, fault: str) -> Json:
        """OpenAI's embeddings."""
        vectors = list(enumerate(self._vectors(body)))
        if fault == "shuffled":
            vectors.reverse()
        if fault == "no_index":
            vectors.pop()
        tokens = None if fault == "no_usage" else _tokens(*_inputs(body))
        return openai_embeddings(_named(body), vectors, tokens)

    def embed(self, body: Json, _: FaultConfig, fault: str) -> Json:
        """Ollama's embeddings."""
        tokens = None if fault == "no_usage" else _tokens(*_inputs(body))
        return ollama_embeddings(_named(body), self._vectors(body), tokens)

    def _vectors(self, body: Json) -> list[list[float]]:
        size = body.get("dimensions") or DIMENSIONS
        return [vector_of(text, self.seed, size) for text in _inputs(body)]

    def _say(self, body: Json, wanted: Json | None, texts: list[str], config: FaultConfig, fault: str) -> FakeReply:
        schema = wanted or schema_in("\n".join(texts))
        value: Any = (
            {"text": PROSE} if schema is None else value_for(schema, self.seed, _RANDOM_WORD.sub("", texts[-1]))
        )
        text, stop_reason = _spoilt(config.say or json.dumps(value), fault)
        usage = None if fault == "no_usage" else (_tokens(*texts), _tokens(text))
        return FakeReply(_named(body), text, stop_reason, usage)


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
    """What a provider says to a response format, a parameter or a text that it does not take."""
    form = body.get("response_format", {}).get("type") or ("json_schema" if "tools" in body or "format" in body else "")
    if form and form in config.refuse.split(","):
        return f"Invalid parameter: 'response_format' of type '{form}' is not supported with this model."
    for name in filter(None, config.reject.split(",")):
        if name in body:
            return f"Unsupported parameter: '{name}' is not supported with this model."
    if config.forbid and any(config.forbid in text for text in _inputs(body)):
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


def _texts(messages: list[Json]) -> list[str]:
    found = []
    for message in messages:
        content = message.get("content") or ""
        found.append(content if isinstance(content, str) else "".join(part.get("text", "") for part in content))
    return found


def _inputs(body: Json) -> list[str]:
    given = body.get("input", "")
    return [given] if isinstance(given, str) else [str(text) for text in given]


def _named(body: Json) -> str:
    return f"{str(body['model']).partition('?')[0]} (stand-in)"


def _tokens(*texts: str) -> int:
    return sum(len(text.split()) for text in texts)


def application(
    seed: int = 7,
    usual: FaultConfig = FaultConfig(),  # noqa: B008  # it never changes
    on_request: Callable[[str, dict[str, str], Json], None] | None = None,
) -> web.Application:
    """The stand-in as an aiohttp application."""
    server = Server(seed, usual, on_request)
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


@click.command()
@click.option("--port", default=8766, show_default=True, help="Port on 127.0.0.1; 0 picks a free one.")
@click.option("--seed", default=7, show_default=True, help="What is made up.")
@click.option("--latency", default=0.0, show_default=True, help="Seconds that an answer takes.")
@click.option("--fault", type=click.Choice(FAULTS), help="What goes wrong.")
@click.option("--times", default=0, show_default=True, help="With how many requests of a model; 0: with all.")
@click.option("--often", default=1.0, show_default=True, help="With which part of the requests.")
@click.option("--retry-after", default="1", show_default=True, help="What rate_limited asks for.")
@click.option("--refuse", default="", help="Response formats that are refused: json_schema,json_object.")
def main(port: int, seed: int, fault: str | None, **config: Any) -> None:
    """Serve a stand-in for models, for tests and demonstrations; prints its address when it listens."""
    run(application(seed, FaultConfig(fault=fault or "", **config)), port)


if __name__ == "__main__":
    main()
