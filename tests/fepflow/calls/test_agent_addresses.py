"""Agents that are named over the network: whatever their address is, nothing on this machine hears of it.

All over real sockets. `127.0.0.1` is what the operator allows and so plays the public address; a canary listens where
nothing may be called.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from fepflow.calls.agent_addresses import AgentAddresses, allowed_hosts
from fepflow.errors import FepflowError
from tests.fepflow.calls.test_allowed_addresses import LOOPBACK, NO_HOST, NO_HTTP

from .conftest import Serve, ask_once, configured, echo, read_request

NOTHING = AgentAddresses()
SHORT = {"connect_timeout": 1.0, "timeout": 3.0}
DIALLED = ("127.0.0.1", "0.0.0.0", "localhost", "[::1]", "[::]", "[::ffff:127.0.0.1]")
"""What the client does not refuse by itself."""


class Canary:
    """Listens on all addresses of this machine, and counts who comes."""

    def __init__(self, server: asyncio.Server) -> None:
        self.port = server.sockets[0].getsockname()[1]
        self.connections = 0


@pytest.fixture
async def canary() -> AsyncIterator[Canary]:
    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.connections += 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await read_request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\ncaught")
            await writer.drain()
        writer.close()

    both = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    server = await asyncio.start_server(connection, sock=both)
    found = Canary(server)
    yield found
    server.close()


async def message_of(url: str, addresses: AgentAddresses = NOTHING) -> str:
    """Why a call past everything that judges the address by its text comes to nothing; empty if it gets an answer."""
    try:
        output = await ask_once(configured(url, target=SHORT), addresses=addresses)
    except (FepflowError, ValueError) as error:  # no address that the client can read
        return str(error)
    return "" if output.metadata is None or "error" not in output.metadata else str(output.metadata["error"]["message"])


async def test_no_way_of_writing_this_machine_is_dialled(canary: Canary) -> None:
    for host in [*LOOPBACK, *NO_HOST]:
        for scheme in ("http", "https"):
            message = await message_of(f"{scheme}://{host.replace(':80', '')}:{canary.port}/")
            assert message, host
            assert host not in DIALLED or "is not a public address" in message, (host, message)
    for url in NO_HTTP:
        assert await message_of(url), url
    assert canary.connections == 0


async def test_the_canary_would_have_heard_of_it(canary: Canary) -> None:
    allowed = AgentAddresses(allowed_hosts("127.0.0.0/8, ::1"))
    for host in ("127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]"):
        assert await message_of(f"http://{host}:{canary.port}/", allowed) == "", host
    assert canary.connections == 4


async def test_our_own_port_is_not_dialled_though_its_address_is_allowed(canary: Canary) -> None:
    addresses = AgentAddresses(allowed_hosts("0.0.0.0/0, ::/0, localhost"), {canary.port})
    for host in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0", socket.gethostname()):
        message = await message_of(f"http://{host}:{canary.port}/", addresses)
        assert "fepflow's or Prefect's own" in message, (host, message)
    assert canary.connections == 0


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (web.Response(status=401, text="who?"), "HTTP 401 Unauthorized: who?: it is called without credentials"),
        (web.Response(status=404, text="what?"), "HTTP 404 Not Found: what?: check agent_endpoint_url"),
        (
            web.Response(status=405, text="no"),
            "HTTP 405 Method Not Allowed: no: check agent_endpoint_url: it gets POST",
        ),
        (web.Response(text="x" * 101), "the answer is larger than 100 bytes"),
        (
            web.Response(text="<html>", content_type="application/json"),
            "the answer is HTML, but JSON is needed: check that agent_endpoint_url is the agent's API, and not a web "
            "or login page: <html>",
        ),
    ],
)
async def test_errors_name_what_the_caller_of_the_interface_has_given(
    serve: Serve, reply: web.Response, message: str
) -> None:
    async def handler(request: web.Request) -> web.Response:
        return reply

    config = configured(await serve(handler), target={"attempts": 1}, output=["$.output", "$"], max_bytes=100)
    output = await ask_once(config, addresses=AgentAddresses(allowed_hosts("127.0.0.1")))
    assert output.metadata is not None
    assert output.metadata["error"]["message"] == message


@pytest.mark.parametrize("flips", [50])
async def test_a_name_that_is_resolved_to_another_address_each_time_is_judged_by_the_one_dialled(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, flips: int
) -> None:
    heard: list[str] = []
    port = int((await serve(_hearing(heard))).rpartition(":")[2].partition("/")[0])
    hidden = await asyncio.start_server(lambda reader, writer: heard.append("hidden"), "127.0.0.2", port)
    answers = itertools.cycle([["127.0.0.1"], ["127.0.0.2"], ["127.0.0.2", "127.0.0.1"], ["127.0.0.1", "127.0.0.2"]])
    resolve(monkeypatch, "rebound.example", answers)
    addresses = AgentAddresses(allowed_hosts("127.0.0.1"))
    url = f"http://rebound.example:{port}/"
    assert addresses.problem(url) is None, "by its text there is nothing wrong with it"
    messages = [await message_of(url, addresses) for _ in range(flips)]
    hidden.close()
    assert set(heard) == {"127.0.0.1"}
    refused = [message for message in messages if message]
    assert len(refused) + len(heard) == flips
    assert 0 < len(refused) < flips
    assert all("rebound.example is not a public address" in message for message in refused)


async def test_a_name_of_a_metadata_service_is_not_dialled(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "10.0.0.1", "fe80::1"):
        resolve(monkeypatch, "metadata.example", itertools.repeat([address]))
        message = await message_of("http://metadata.example/latest/meta-data/")
        assert message == (
            "not called: metadata.example is not a public address, and FEPFLOW_AGENT_HOSTS does not allow it"
        )


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed(serve: Serve, canary: Canary, status: int) -> None:
    asked: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=status, headers={"Location": request.query["to"]})

    url = await serve(handler)
    own_place = url.rpartition("/")[0]
    places = [
        f"http://127.0.0.1:{canary.port}/",
        f"//[::1]:{canary.port}/",
        "/elsewhere",
        f"{own_place}/x",
        "file:///x",
    ]
    addresses = AgentAddresses(allowed_hosts("127.0.0.0/8, ::1"))
    for place in places:
        message = await message_of(f"{url}?to={place}", addresses)
        assert "redirect" in message, place
    assert canary.connections == 0
    assert asked == ["/ask"] * len(places)


async def test_no_proxy_of_the_environment_is_used(
    serve: Serve, canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{canary.port}")
        monkeypatch.setenv(name.lower(), os.environ[name])
    resolve(monkeypatch, "agent.example", itertools.repeat(["127.0.0.1"]))
    url = (await serve(echo)).replace("127.0.0.1", "agent.example")
    assert await message_of(url, AgentAddresses(allowed_hosts("127.0.0.1"))) == ""
    assert canary.connections == 0


async def test_a_line_break_in_an_address_makes_no_header(serve: Serve) -> None:
    breaks = "%0d%0aX-Injected:%20yes%0d%0a%0d%0aGET%20/%20HTTP/1.1"
    url = f"{await serve(echo)}?q={breaks}"
    output = await ask_once(configured(url, target=SHORT), addresses=AgentAddresses(allowed_hosts("127.0.0.1")))
    assert isinstance(output.value, dict)
    assert "X-Injected" not in output.value["headers"]
    assert output.value["query"]["q"].startswith("\r\nX-Injected"), "it has arrived as what it is"
    assert AgentAddresses().problem(url.replace("%0d%0a", "\r\n")) is not None


def _hearing(heard: list[str]) -> Any:
    async def handler(request: web.Request) -> web.Response:
        heard.append("127.0.0.1")
        return web.json_response({})

    return handler


def resolve(monkeypatch: pytest.MonkeyPatch, name: str, answers: Any) -> None:
    """Have the system's resolver, which no test may teach names, know one more, with another answer each time."""
    known = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *arguments: Any, **named: Any) -> Any:
        if host != name:
            return known(host, port, *arguments, **named)
        return [found for address in next(answers) for found in known(address, port, *arguments, **named)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
