"""A stand-in for language models, over HTTP in the shape of OpenAI's chat completions.

No model runs here. Answers are made up from the JSON Schema in a request, and are the same for the same seed and text.
The name of the model that answered says so.

    POST /v1/chat/completions
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import signal
from typing import Any

import click
from aiohttp import web

from fepflow.json.values import referred

SENTENCE = "A stand-in made this up."

_MOST_LEVELS = 8

# A random word that keeps apart what is judged says nothing about it.
RANDOM_WORD = re.compile(r"[0-9a-f]{32}")


def fraction(*parts: object) -> float:
    """Return a number from 0 up to 1 that depends on the parts only."""
    digest = hashlib.sha256(json.dumps(parts, default=str).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def value_for(schema: dict[str, Any], *parts: object) -> Any:
    """Return a value that the schema allows, as far as this generator knows schemas; `parts` decide which."""
    return _value(schema, schema, parts, 0)


def _value(schema: Any, root: dict[str, Any], parts: tuple[object, ...], level: int) -> Any:
    if not isinstance(schema, dict) or level > _MOST_LEVELS:
        return None
    if "$ref" in schema:
        return _value(referred(root, str(schema["$ref"])), root, parts, level + 1)
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][int(fraction(*parts) * len(schema["enum"]))]
    for word in ("anyOf", "oneOf", "allOf"):
        if schema.get(word):
            return _value(schema[word][0], root, parts, level + 1)
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object" or (kind is None and "properties" in schema):
        members = schema.get("properties", {}).items()
        return {name: _value(item, root, (*parts, name), level + 1) for name, item in members}
    if kind == "array":
        count = max(1, schema.get("minItems", 0))
        return [_value(schema.get("items", {}), root, (*parts, index), level + 1) for index in range(count)]
    return _scalar(str(kind), schema, parts)


def _scalar(kind: str, schema: dict[str, Any], parts: tuple[object, ...]) -> Any:
    if kind == "boolean":
        return fraction(*parts) < 0.5
    if kind in ("integer", "number"):
        lowest = schema.get("minimum", 0)
        number = lowest + fraction(*parts) * (schema.get("maximum", lowest + 1) - lowest)
        return round(number) if kind == "integer" else round(number, 3)
    if kind == "string":
        text = SENTENCE.ljust(schema.get("minLength", 0), ".")
        return text[: schema.get("maxLength", len(text))]
    return None


def texts_of(messages: list[dict[str, Any]]) -> list[str]:
    """Return the text of each message; parts are joined."""
    contents = [message.get("content") or "" for message in messages]
    return [text if isinstance(text, str) else "".join(part.get("text", "") for part in text) for text in contents]


def tokens_of(*texts: str) -> int:
    """Return the number of tokens that texts are said to have: that of their words."""
    return sum(len(text.split()) for text in texts)


def application(seed: int) -> web.Application:
    """Return the stand-in as an aiohttp application."""

    async def chat(request: web.Request) -> web.Response:
        body = await request.json()
        texts = texts_of(body["messages"])
        schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
        text = SENTENCE
        if schema is not None:
            text = json.dumps(value_for(schema, seed, RANDOM_WORD.sub("", texts[-1])))
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": tokens_of(*texts), "completion_tokens": tokens_of(text)}
        head = {
            "id": "chatcmpl-stand-in",
            "object": "chat.completion",
            "created": 0,
            "model": f"{body['model']} (stand-in)",
        }
        return web.json_response({**head, "choices": [choice], "usage": {**usage, "total_tokens": sum(usage.values())}})

    app = web.Application()
    app.add_routes([web.post("/v1/chat/completions", chat)])
    return app


def run(app: web.Application, port: int) -> None:
    """Serve. Raises ClickException, in a sentence, if the port is taken."""
    try:
        asyncio.run(serve(app, port))
    except OSError as error:
        raise click.ClickException(
            f"cannot listen on 127.0.0.1:{port}: {error.strerror} (choose another --port; 0 picks a free one)"
        ) from None


async def serve(app: web.Application, port: int) -> None:
    """Listen on 127.0.0.1 until SIGTERM or SIGINT; print the address when it answers. Raises OSError for a taken
    port."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        click.echo(f"http://127.0.0.1:{runner.addresses[0][1]}")
        await stop.wait()
    finally:
        await runner.cleanup()


@click.command()
@click.option("--port", default=8766, show_default=True, help="Port on 127.0.0.1; 0 picks a free one.")
@click.option("--seed", default=7, show_default=True, help="Another seed gives other answers.")
def main(port: int, seed: int) -> None:
    """Serve a stand-in for models; print its address when it listens."""
    run(application(seed), port)


if __name__ == "__main__":
    main()
