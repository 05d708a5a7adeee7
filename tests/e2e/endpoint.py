"""An agent on a real socket that misbehaves as its question tells it to, and that remembers what it was asked."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Asked:
    """One request: its question, and its headers, names in lower case."""

    question: str
    headers: dict[str, str]


@dataclass
class Endpoint:
    """A server on the loopback. `{"question": "html 3"}` is answered with HTML; what is no fault is echoed.

    Every answer takes `delay` seconds, none is given while `held`, which the request of number `holds_from` makes it,
    none to a question in `kept_waiting`, only 502 while `out_of_order`, and nothing is echoed while `wrong`.
    """

    delay: float = 0.0
    held: bool = False
    holds_from: int | None = None
    kept_waiting: set[str] = field(default_factory=set)
    out_of_order: bool = False
    wrong: bool = False
    asked: list[Asked] = field(default_factory=list)
    under_way: int = 0
    most_at_once: int = 0
    elsewhere: str = "http://localhost:1/ask"
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/ask"

    @property
    def questions(self) -> Counter[str]:
        """How often each question was asked."""
        return Counter(asked.question for asked in self.asked)


@contextmanager
def serving(delay: float = 0.0) -> Iterator[Endpoint]:
    """An endpoint in a thread of its own, for the length of a `with` block."""
    endpoint = Endpoint(delay)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="endpoint", daemon=True)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(_start(endpoint), loop).result(10)
    try:
        yield endpoint
    finally:
        asyncio.run_coroutine_threadsafe(_stop(server), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _start(endpoint: Endpoint) -> asyncio.Server:
    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await _answer(endpoint, reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has gone, or the test has ended
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    endpoint.port = server.sockets[0].getsockname()[1]
    return server


async def _stop(server: asyncio.Server) -> None:
    server.close()
    connections = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for connection in connections:
        connection.cancel()
    await asyncio.gather(*connections, return_exceptions=True)


async def _answer(endpoint: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    """Answer one request; whether the connection stays open."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    lines = [line.partition(":") for line in head.split("\r\n")[1:] if line]
    headers = {name.lower(): value.strip() for name, _, value in lines}
    if "content-length" not in headers:  # no question of ours
        writer.write(_http("404 Not Found", b""))
        return True
    question = json.loads(await reader.readexactly(int(headers["content-length"])))["question"]
    endpoint.asked.append(Asked(question, headers))
    endpoint.held = endpoint.held or len(endpoint.asked) == endpoint.holds_from
    tries = endpoint.questions[question]
    endpoint.under_way += 1
    endpoint.most_at_once = max(endpoint.most_at_once, endpoint.under_way)
    try:
        await asyncio.sleep(endpoint.delay)
        while endpoint.held or question in endpoint.kept_waiting:  # noqa: ASYNC110  # set from another thread, which an asyncio.Event would not hear of
            await asyncio.sleep(0.01)
    finally:
        endpoint.under_way -= 1
    if endpoint.out_of_order:
        writer.write(_http("502 Bad Gateway", b"nobody is here"))
        return True
    fault = FAULTS.get(question.split(" ")[0])
    if fault is not None and await fault(_Call(endpoint, question, writer, tries, headers)):
        await writer.drain()
        return False
    if fault is None:
        writer.write(_ok("I do not know" if endpoint.wrong else question))
    await writer.drain()
    return True


@dataclass
class _Call:
    endpoint: Endpoint
    question: str
    writer: asyncio.StreamWriter
    tries: int
    headers: dict[str, str]


def _http(status: str, body: bytes, *more: str, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = [f"HTTP/1.1 {status}", f"Content-Length: {size}", *more]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


def _ok(answer: Any) -> bytes:
    return _http("200 OK", json.dumps({"answer": answer, "tokens": 10}).encode(), "Content-Type: application/json")


async def _reset(call: _Call) -> bool:
    return True


async def _hang(call: _Call) -> bool:
    await asyncio.sleep(60)
    return True


async def _error(call: _Call) -> bool:
    call.writer.write(_http("500 Internal Server Error", b"out of order"))
    return False


async def _busy(call: _Call) -> bool:
    """Too many requests, twice, then an answer."""
    busy = _http("429 Too Many Requests", b"slow down", "Retry-After: 1")
    call.writer.write(busy if call.tries < 2 else _ok("patience"))
    return False


async def _fail(call: _Call) -> bool:
    """`fail 3 …`: out of order so many times, then an answer."""
    answers = call.tries > int(call.question.split()[1])
    call.writer.write(_ok(call.question) if answers else _http("500 Internal Server Error", b"not yet"))
    return False


async def _html(call: _Call) -> bool:
    call.writer.write(_http("200 OK", b"<html><body>Log in first</body></html>", "Content-Type: text/html"))
    return False


async def _truncated(call: _Call) -> bool:
    call.writer.write(_http("200 OK", b'{"answer": "half an ans', "Content-Type: application/json"))
    return False


async def _cut(call: _Call) -> bool:
    call.writer.write(_http("200 OK", b'{"answer": "', "Content-Type: application/json", length=5_000))
    return True


async def _huge(call: _Call) -> bool:
    call.writer.write(_http("200 OK", b'{"answer": "', "Content-Type: application/json", length=50_000_000))
    for _ in range(50):
        call.writer.write(b"x" * 1_000_000)
        await call.writer.drain()
    return True


async def _redirect(call: _Call) -> bool:
    call.writer.write(_http("302 Found", b"", f"Location: {call.endpoint.elsewhere}"))
    return False


async def _drip(call: _Call) -> bool:
    call.writer.write(_http("200 OK", b"", "Content-Type: application/json", length=5_000))
    while True:
        call.writer.write(b" ")
        await call.writer.drain()
        await asyncio.sleep(0.2)


async def _long(call: _Call) -> bool:
    call.writer.write(_ok("x" * 100_000))
    return False


async def _echo(call: _Call) -> bool:
    """The caller's credentials, in the answer."""
    call.writer.write(_ok(f"I was called with {call.headers['authorization']}"))
    return False


async def _echo_error(call: _Call) -> bool:
    body = f"no such tenant for {call.headers['authorization']}".encode()
    call.writer.write(_http("403 Forbidden", body))
    return False


async def _echo_redirect(call: _Call) -> bool:
    token = call.headers["authorization"].removeprefix("Bearer ")
    call.writer.write(_http("302 Found", b"", f"Location: http://{token}.example.test/login?token={token}"))
    return False


FAULTS: dict[str, Callable[[_Call], Awaitable[bool]]] = {
    "reset": _reset,
    "hang": _hang,
    "error": _error,
    "busy": _busy,
    "fail": _fail,
    "html": _html,
    "truncated": _truncated,
    "cut": _cut,
    "huge": _huge,
    "redirect": _redirect,
    "drip": _drip,
    "long": _long,
    "echo": _echo,
    "echo-error": _echo_error,
    "echo-redirect": _echo_redirect,
}
"""By the first word of the question; each gives whether the connection is to be dropped."""
