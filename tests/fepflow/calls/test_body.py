"""However large an answer is or unpacks to, only so much of it is ever held."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from aiohttp import web

from .conftest import HEAD, Serve, ask_once, configured, error_of


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
async def test_a_bomb_is_never_unpacked(serve: Serve, compress: Callable[[bytes], bytes]) -> None:
    bomb = await asyncio.to_thread(compress, bytes(15_000_000))
    encoding = "gzip" if bomb[:2] == b"\x1f\x8b" else "deflate"

    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=bomb, headers={"Content-Encoding": encoding})

    url = await serve(handler)
    tracemalloc.start()
    error = await error_of(configured(url, max_bytes=1_000_000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (error["kind"], error["recoverable"]) == ("too_large", False)
    assert "1,000,000 bytes (target.http.max_bytes)" in error["message"]
    assert peak < 10_000_000


async def test_a_body_without_a_length_is_bounded(serve: Serve) -> None:
    sent = 0

    async def handler(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(50):
            await response.write(bytes(1_000_000))
            sent += 1
        return response

    error = await error_of(configured(await serve(handler), max_bytes=1_000_000))
    assert error["kind"] == "too_large"
    assert sent < 50


async def test_an_announced_size_over_the_limit_is_not_read_at_all(serve_raw: Serve) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Content-Length: 50000000\r\n\r\n")
        await reader.read()

    error = await error_of(configured(await serve_raw(handler), target={"timeout": 5.0}))
    assert error["kind"] == "too_large"


@pytest.mark.parametrize(("size", "kept"), [(1000, True), (1001, False)])
async def test_the_limit_is_exact(serve: Serve, size: int, kept: bool) -> None:
    async def handler(request: web.Request) -> web.Response:
        encoding = {"Content-Encoding": "gzip"} if request.query else {}
        return web.Response(body=gzip.compress(b"x" * size, mtime=0) if encoding else b"x" * size, headers=encoding)

    url = await serve(handler)
    for address in (url, url + "?gzip=1"):
        output = await ask_once(configured(address, max_bytes=1000))
        assert (output.value == "x" * size) is kept


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip"])
async def test_an_unrequested_encoding_is_malformed(serve: Serve, encoding: str) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=b"whatever", headers={"Content-Encoding": encoding})

    error = await error_of(configured(await serve(handler)))
    assert error["kind"] == "malformed"
    assert encoding in error["message"]


@pytest.mark.parametrize("body", [gzip.compress(b"x" * 1000, mtime=0)[:-12], b"no gzip at all"])
async def test_damaged_compressed_data_are_malformed(serve: Serve, body: bytes) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=body, headers={"Content-Encoding": "gzip"})

    error = await error_of(configured(await serve(handler)))
    assert (error["kind"], error["recoverable"]) == ("malformed", True)
