"""Proxies that the environment names."""

from __future__ import annotations

import base64

import pytest

from fepflow.calls.http import HttpTarget
from fepflow.errors import InputError

from .conftest import Serve, ask_once, configured, echo, error_of, sending


@pytest.fixture(autouse=True)
def no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def test_one_of_the_environment_is_used(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", (await serve(echo)).removesuffix("/ask"))
    output = await ask_once(configured("http://agent.invalid/ask", output="$.headers.Host"))
    assert output.value == "agent.invalid"


async def test_no_proxy_names_hosts_that_are_called_directly(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", (await serve(echo)).removesuffix("/ask"))
    monkeypatch.setenv("NO_PROXY", "agent.invalid")
    assert (await error_of(configured("http://agent.invalid/ask")))["message"] == "name not found: agent.invalid"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_none_is_used_for_a_loopback_address(serve: Serve, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    url = (await serve(echo)).replace("127.0.0.1", host)
    assert (await ask_once(configured(url))).value["method"] == "POST"


async def test_one_with_a_password_is_given_it(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", (await serve(echo)).removesuffix("/ask").replace("://", "://ann:pa55word@"))
    output = await ask_once(configured("http://agent.invalid/ask", output="$.headers['Proxy-Authorization']"))
    assert base64.b64decode(output.value.removeprefix("Basic ")) == b"ann:pa55word"


async def test_an_unreachable_proxy_is_named_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://ann:pa55word@127.0.0.1:1")
    error = await error_of(configured("http://agent.invalid/ask"))
    message = "no connection to agent.invalid:80: the proxy of the environment does not answer"
    assert (error["kind"], error["message"], error["recoverable"]) == ("connect", message, True)


async def test_a_refused_tunnel_is_reported(serve_raw: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = await serve_raw(sending(b"HTTP/1.1 407 Log in\r\nContent-Length: 0\r\n\r\n"))
    monkeypatch.setenv("HTTPS_PROXY", refusing.removesuffix("/ask"))
    error = await error_of(configured("https://agent.invalid/ask"))
    assert error["message"] == "no connection to agent.invalid:443: the proxy of the environment answered HTTP 407"


@pytest.mark.parametrize("scheme", ["gopher", "socks5"])
def test_one_that_cannot_be_used_is_refused_at_once(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"{scheme}://ann:pa55word@proxy")
    with pytest.raises(InputError, match="a proxy that the environment names cannot be used") as raised:
        HttpTarget(configured("http://agent.invalid/ask"))
    assert "pa55word" not in str(raised.value)
