"""Every way in which the wire fails is an output with a cause that a person understands."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
import struct
import time
from pathlib import Path

import pytest
import trustme
from aiohttp import web

from fepflow.calls.client import RetryPolicy, TargetClient
from fepflow.calls.http import HttpTarget
from fepflow.errors import InputError
from tests.conftest import free_port
from tests.fepflow.calls.conftest import (
    CASE,
    HEAD,
    RawHandler,
    Serve,
    answer_ok,
    ask_once,
    configured,
    error_of,
    read_request,
    sending,
)


async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def test_a_closed_port_is_a_connect_error() -> None:
    port = free_port()
    error = await error_of(configured(f"http://127.0.0.1:{port}/?api_key=s3cret"))
    assert error == {
        "type": "unknown_error",
        "kind": "connect",
        "message": f"connection refused by 127.0.0.1:{port}",
        "recoverable": True,
    }


async def test_a_name_that_does_not_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    error = await error_of(configured("http://nowhere.invalid/"))
    assert (error["kind"], error["message"]) == ("connect", "name not found: nowhere.invalid")


@pytest.mark.parametrize(
    ("handler", "kind", "message"),
    [
        (reset, "connect", "connection reset by"),
        (sending(), "connect", "before the answer was complete"),
        (sending(HEAD + b"Content-Length: 100\r\n\r\n", b'{"a":'), "connect", "in the middle of the answer"),
        (sending(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab"), "connect", "in the middle of the answer"),
        (sending(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n"), "malformed", "does not answer in HTTP"),
        (sending(b"220 smtp.example.com ESMTP ready\r\n"), "malformed", "does not answer in HTTP"),
        (sending(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n"), "malformed", "header that is too long"),
        (sending(HEAD + b"Connection: close\r\n\r\n", b'{"answer": "4'), "malformed", "not valid JSON"),
    ],
)
async def test_a_broken_conversation(serve_raw: Serve, handler: RawHandler, kind: str, message: str) -> None:
    error = await error_of(configured(await serve_raw(handler)))
    assert error["kind"] == kind
    assert message in error["message"]
    assert error["recoverable"] is True


async def test_an_endless_header_is_cut_off(serve_raw: Serve) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while not writer.is_closing():
            writer.write(b"X-More: of the same\r\n" * 100)
            await writer.drain()

    error = await error_of(configured(await serve_raw(handler)))
    assert error["kind"] == "malformed"


async def test_a_slow_drip_does_not_get_round_the_deadline(serve_raw: Serve) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Content-Length: 1000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.02)

    started = time.monotonic()
    error = await error_of(configured(await serve_raw(handler), target={"timeout": 0.9, "read_timeout": 0.6}))
    assert time.monotonic() - started < 10
    assert (error["type"], error["kind"]) == ("timeout_error", "timeout")
    assert error["message"] == "no complete answer within 0.9 s (target.timeout)"


async def test_a_silent_endpoint_is_left_after_the_read_timeout(serve_raw: Serve) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    error = await error_of(configured(await serve_raw(handler), target={"read_timeout": 0.1}))
    assert error["kind"] == "timeout"
    assert "silent for 0.1 s (read_timeout)" in error["message"]


@pytest.mark.parametrize("method", ["POST", "PUT", "GET"])
async def test_no_call_is_silently_sent_twice(serve_raw: Serve, method: str) -> None:
    """The kept-alive connection dies under the second request, which a client may be tempted to send again."""
    requests = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        requests += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()
        await reader.readuntil(b"\r\n\r\n")
        requests += 1
        writer.transport.abort()

    config = configured(await serve_raw(handler), method=method)
    target = HttpTarget(config)
    await target.call(target.render(CASE))
    with pytest.raises(Exception, match="connection reset"):
        await target.call(target.render(CASE))
    await target.aclose()
    assert requests == 2


async def test_what_comes_after_an_answer_is_the_answer_to_no_later_call(serve_raw: Serve) -> None:
    connections = 0
    sent = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await asyncio.sleep(0.1)  # the client has put the connection back
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate")
        await writer.drain()
        sent.set()
        await reader.read()

    target = HttpTarget(configured(await serve_raw(handler)))
    caller = TargetClient(target, RetryPolicy(1, 30))
    first = await caller.ask(CASE)
    await sent.wait()
    await asyncio.sleep(0.1)  # it has arrived
    second = await caller.ask(CASE)
    await target.aclose()
    assert [call.output().value for call in (first, second)] == ["ok", "ok"]
    assert connections == 2


@pytest.mark.parametrize("is_read", [True, False])
@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_a_keep_alive_connection_that_closes_is_a_recorded_attempt(
    serve_raw: Serve, method: str, is_read: bool
) -> None:
    """Every second call finds its connection closed, before or after the server has read the request."""
    connections = requests = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections, requests
        connections += 1
        requests += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()
        if is_read:
            await read_request(reader)
            requests += 1
        else:
            await reader.readexactly(1)  # what comes then is not read: the client gets a reset
        writer.transport.abort()

    target = HttpTarget(configured((await serve_raw(handler)) + "?api_key=s3cret", method=method))
    caller = TargetClient(target, RetryPolicy(2, 30))
    calls = [await caller.ask(CASE) for _ in range(4)]
    await target.aclose()
    assert [call.response is not None for call in calls] == [True] * 4
    assert [len(call.attempts) for call in calls] == [1, 2, 2, 2]
    for call in calls[1:]:
        assert re.fullmatch(r"connection reset by 127\.0\.0\.1:\d+ .*", str(call.attempts[0].error))
    assert connections == 4
    assert requests == (sum(len(call.attempts) for call in calls) if is_read else connections)


async def test_an_invalid_reason_phrase_is_not_shown(serve_raw: Serve) -> None:
    answers = iter([b"HTTP/1.1 200 \xff\xfe\r\n", b"HTTP/1.1 400 Z\xff\r\n"])

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(next(answers) + b"Content-Length: 2\r\n\r\nok")

    url = await serve_raw(handler)
    assert (await ask_once(configured(url))).value == "ok"
    assert (await error_of(configured(url)))["message"] == "HTTP 400 Z?: ok"


async def test_the_log_never_shows_the_address(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    url = (await serve(answer_ok)).replace("http://", "http://ann:pa55word@") + "?api_key=s3cret"
    await ask_once(configured(url))
    assert "s3cret" not in caplog.text
    assert "pa55word" not in caplog.text


class TestTls:
    @pytest.fixture
    def authority(self) -> trustme.CA:
        return trustme.CA()

    @pytest.fixture
    def server_side(self, authority: trustme.CA) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
        return context

    @pytest.fixture
    def trusted(self, authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))

    async def test_a_stranger_is_refused(self, serve: Serve, server_side: ssl.SSLContext) -> None:
        error = await error_of(configured(await serve(answer_ok, server_side)))
        assert (error["kind"], error["recoverable"]) == ("connect", False)
        assert "not trusted" in error["message"]
        assert "SSL_CERT_FILE" in error["message"]

    @pytest.mark.usefixtures("trusted")
    async def test_an_authority_in_ssl_cert_file_is_trusted(self, serve: Serve, server_side: ssl.SSLContext) -> None:
        assert (await ask_once(configured(await serve(answer_ok, server_side)))).value == "ok"

    @pytest.mark.usefixtures("trusted")
    async def test_a_redirect_to_the_encrypted_side_of_the_host_is_followed(
        self, serve: Serve, server_side: ssl.SSLContext
    ) -> None:
        encrypted = await serve(answer_ok, server_side)

        async def handler(request: web.Request) -> web.Response:
            raise web.HTTPPermanentRedirect(encrypted)

        assert (await ask_once(configured(await serve(handler)))).value == "ok"

    @pytest.mark.usefixtures("trusted")
    async def test_a_redirect_back_to_the_open_side_is_not(self, serve: Serve, server_side: ssl.SSLContext) -> None:
        plain = await serve(answer_ok)

        async def handler(request: web.Request) -> web.Response:
            raise web.HTTPPermanentRedirect(plain)

        error = await error_of(configured(await serve(handler, server_side)))
        assert error["kind"] == "redirect"

    async def test_a_server_that_speaks_no_tls(self, serve: Serve) -> None:
        error = await error_of(configured((await serve(answer_ok)).replace("http://", "https://")))
        assert error["kind"] == "connect"
        assert "TLS" in error["message"]

    def test_a_file_of_authorities_that_is_not_there_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
        with pytest.raises(InputError, match=r"/nowhere/ca\.pem"):
            HttpTarget(configured("https://host/"))
