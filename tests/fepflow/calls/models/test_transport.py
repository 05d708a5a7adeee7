"""What comes over the wire from models is bounded, comes from the host that was asked, and is told as it was."""

from __future__ import annotations

import asyncio
import gzip
import json
import resource
import zlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from fepflow.calls.models import structured
from fepflow.calls.models.client import ModelRequests
from fepflow.calls.models.model import ChatResponse, Model, Usage
from fepflow.calls.models.structured import StructuredPrompt
from fepflow.errors import CheckArgumentsError, ModelError
from fepflow.security.redaction import MASK

from .conftest import InMemory

MESSAGES = [{"role": "user", "content": "?"}]
KEY = "sk-canary-0815-4711"
MODELS = ["openai/gpt-4o-mini", "anthropic/claude-3-5-haiku-latest", "ollama_chat/llama3"]
Write = Callable[[asyncio.StreamWriter], Awaitable[None]]
Serve = Callable[[Write], Awaitable[str]]


@pytest.fixture
def serve(serve_raw: Callable[..., Awaitable[str]]) -> Serve:
    """Begin a server that answers every request as `write` does, and then closes the connection; its address."""

    async def begin(write: Write) -> str:
        return (await serve_raw(lambda _, writer: write(writer))).removesuffix("/ask")

    return begin


def http(body: bytes, *headers: str, status: str = "200 OK") -> Write:
    async def write(writer: asyncio.StreamWriter) -> None:
        head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Content-Type: application/json", *headers]
        writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + body)

    return write


def chat(content: str, **usage: Any) -> bytes:
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
    said = {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    return json.dumps(said).encode()


async def complete(requests: ModelRequests, model: Model) -> ChatResponse:
    return await requests.client.complete(model, MESSAGES, requests.context)


def model(base: str, name: str = MODELS[0], **more: Any) -> Model:
    return Model(name, base, KEY, **{"attempts": 1, "timeout": 20, **more})


def resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


async def endless(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 600000000\r\nContent-Type: application/json\r\n\r\n")
    for _ in range(600):
        writer.write(b" " * 1_000_000)
        await writer.drain()


def bomb(encoding: str) -> Write:
    """800 MB of zeros, made a piece at a time."""

    async def write(writer: asyncio.StreamWriter) -> None:
        packer = zlib.compressobj(wbits=31 if encoding == "gzip" else 15)
        head = [b"HTTP/1.1 200 OK", b"Connection: close", b"Content-Encoding: " + encoding.encode(), b"", b""]
        writer.write(b"\r\n".join(head))
        for _ in range(800):
            writer.write(packer.compress(bytes(1_000_000)) + packer.flush(zlib.Z_FULL_FLUSH))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(packer.flush())

    return write


@pytest.mark.parametrize(
    ("name", "write"),
    [(MODELS[0], endless), (MODELS[0], bomb("deflate")), *((name, bomb("gzip")) for name in MODELS)],
    ids=["600 MB", "deflate", *MODELS],
)
async def test_an_answer_of_hundreds_of_megabytes_is_not_taken(
    requests: ModelRequests, serve: Serve, name: str, write: Write
) -> None:
    base = await serve(write)
    await _load_litellm(requests, serve)
    before = resident()
    with pytest.raises(ModelError, match="answers with more than 4,000,000 bytes") as failure:
        await complete(requests, model(base, name))
    assert (failure.value.kind, failure.value.recoverable) == ("too_large", False)
    assert resident() - before < 100


async def _load_litellm(requests: ModelRequests, serve: Serve) -> None:
    await complete(requests, model(await serve(http(chat("yes")))))


async def test_embeddings_are_bounded_too(requests: ModelRequests, serve: Serve) -> None:
    with pytest.raises(ModelError, match="more than 48,000,000 bytes") as failure:
        await requests.client.embed(
            model(await serve(bomb("gzip")), "openai/text-embedding-3-small"), ["red"], requests.context
        )
    assert failure.value.kind == "too_large"


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_compressed_answer_is_read(requests: ModelRequests, serve: Serve, encoding: str) -> None:
    pack = gzip.compress if encoding == "gzip" else zlib.compress
    base = await serve(http(pack(chat("yes")), f"Content-Encoding: {encoding}"))
    assert (await complete(requests, model(base))).text == "yes"


@pytest.mark.parametrize(("encoding", "said"), [("br", "not asked for"), ("gzip", "damaged")])
async def test_an_unreadable_encoding_is_an_error(
    requests: ModelRequests, serve: Serve, encoding: str, said: str
) -> None:
    base = await serve(http(chat("yes"), f"Content-Encoding: {encoding}"))
    with pytest.raises(ModelError, match=said) as failure:
        await complete(requests, model(base))
    assert failure.value.kind == "malformed"


@pytest.mark.parametrize(
    ("name", "status"),
    [
        (MODELS[0], "301 Moved"),
        (MODELS[1], "302 Found"),
        (MODELS[2], "307 Temporary Redirect"),
        ("openai/text-embedding-3-small", "308 Permanent Redirect"),
    ],
)
async def test_redirects_to_another_host_are_refused(
    requests: ModelRequests, serve: Serve, name: str, status: str
) -> None:
    came: list[str] = []

    async def elsewhere(writer: asyncio.StreamWriter) -> None:
        came.append("prompt, answers and key")
        await http(chat("yes"))(writer)

    other = (await serve(elsewhere)).replace("127.0.0.1", "localhost")
    for target in (other, other.replace("localhost", "127.0.0.1")):  # another host, and another port of the same
        base = await serve(http(b"", f"Location: {target}/x?key={KEY}", status=status))
        asked, client = model(base, name), requests.client
        ask = client.embed(asked, ["red"], requests.context) if "embedding" in name else complete(requests, asked)
        with pytest.raises(ModelError, match="and no other host is asked") as failure:
            await ask
        assert failure.value.kind == "redirect"
        assert KEY not in str(failure.value)
    assert came == []


async def test_within_the_host_a_redirect_is_followed(requests: ModelRequests, serve: Serve) -> None:
    answers = [
        http(b"", "Location: /elsewhere/on/it", "Connection: close", status="307 Temporary Redirect"),
        http(chat("yes")),
    ]

    async def write(writer: asyncio.StreamWriter) -> None:
        await answers.pop(0)(writer)

    assert (await complete(requests, model(await serve(write)))).text == "yes"


@pytest.mark.parametrize("name", MODELS)
async def test_a_closed_port_is_a_connection_error(requests: ModelRequests, name: str) -> None:
    with pytest.raises(ModelError, match=r"no answer from .* at 127\.0\.0\.1:9: ") as failure:
        await complete(requests, model(f"http://me:{KEY}@127.0.0.1:9", name))
    assert (failure.value.kind, failure.value.status, failure.value.recoverable) == ("connect", None, True)
    assert KEY not in str(failure.value)


@pytest.mark.parametrize("name", MODELS)
async def test_a_web_page_is_a_malformed_response(requests: ModelRequests, serve: Serve, name: str) -> None:
    async def page(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 21\r\nContent-Type: text/html\r\n\r\n<html>Log in</html>  ")

    with pytest.raises(ModelError, match="HTTP 200, but not as a model does") as failure:
        await complete(requests, model(await serve(page), name))
    assert failure.value.kind == "malformed"
    assert "500" not in str(failure.value).replace(failure.value.args[0].partition(" answered")[0], "")


async def test_a_judge_that_echoes_the_key_does_not_get_it_stored(
    serve: Serve, caching: ModelRequests, memory: InMemory
) -> None:
    base = await serve(http(chat(json.dumps({"passed": True, "reason": f"you sent {KEY}"}))))
    value, _ = await structured.ask(caching, model(base), PROMPT, lambda value: value)
    assert value == {"passed": True, "reason": f"you sent {MASK}"}
    assert KEY not in repr(memory.kept)
    base = await serve(http(json.dumps({"error": {"message": f"bad key {KEY}"}}).encode(), status="401 Unauthorized"))
    with pytest.raises(ModelError, match=r"bad key \*\*\*"):
        await complete(caching, model(base))


PROMPT = StructuredPrompt("Judge.", "a text", {"type": "object", "properties": {}})


@pytest.mark.parametrize("tokens", [-1, 10**400, 10**12, "many", None, 1.5])
async def test_impossible_token_counts_are_ignored(requests: ModelRequests, serve: Serve, tokens: Any) -> None:
    usage = {"prompt_tokens": tokens, "completion_tokens": 3, "total_tokens": 3}
    base = await serve(http(chat("yes", **usage)))
    with suppress(ModelError):  # litellm itself may find that it is no answer
        reply = await complete(requests, model(base))
        assert reply.usage == Usage(None, 3, None)
    assert requests.context.usage()["tokens"] in (None, 0)


async def test_a_score_of_400_digits_is_requested_again_and_not_cached(
    serve: Serve, caching: ModelRequests, memory: InMemory
) -> None:
    base = await serve(http(chat('{"score": 1' + "0" * 400 + "}")))
    with pytest.raises(ModelError, match="a number is too large") as failure:
        await structured.ask(caching, model(base), PROMPT, lambda value: value)
    assert failure.value.kind == "invalid"
    assert memory.kept == {}


async def test_an_unusable_response_cached_by_an_older_version_is_requested_again(
    serve: Serve, caching: ModelRequests, memory: InMemory
) -> None:
    good = model(await serve(http(chat('{"score": 1}'))))
    await structured.ask(caching, good, PROMPT, lambda value: value)
    (key,) = memory.kept
    object.__setattr__(memory.kept[key], "text", '{"score": 1' + "0" * 400 + "}")
    value, asked = await structured.ask(caching, good, PROMPT, lambda value: value)
    assert (value, asked.cached) == ({"score": 1}, False)


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('  ```\n{"a": 1}\n  ```  \n', {"a": 1}),
        ('```JSON \n{"a": 1}```', {"a": 1}),
        ('{"a": 1}', {"a": 1}),
    ],
)
def test_json_in_a_code_fence_is_read(text: str, bare: Any) -> None:
    assert structured._read(text, {}, "prompt") == bare


@pytest.mark.parametrize(
    "text",
    [
        "```json" + "\n" * 1_000_000,
        "```json\n" + "\n " * 500_000 + "x",
        "```" * 300_000,
        "```\n" * 300_000,
        " " * 10**6,
    ],
    ids=["newlines", "newlines and blanks", "fences", "fences in lines", "blanks"],
)
def test_a_megabyte_of_beginnings_of_fences_is_read_at_once(text: str) -> None:
    with pytest.raises(CheckArgumentsError):
        structured._read(text, {}, "prompt")
