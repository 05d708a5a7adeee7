"""Addresses of agents that come over the network: which are refused by their text."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from fepflow.calls.agent_addresses import AgentAddresses, allowed_hosts
from fepflow.errors import InputError
from fepflow.settings import settings

LOOPBACK = (
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "127.255.255.254",
    "127.0.0.1.",
    "2130706433",
    "0x7f000001",
    "0X7F000001",
    "0x7f.0.0.1",
    "0x7f.1",
    "0177.0.0.1",
    "0177.0x0.1",
    "017700000001",
    "0",
    "0.0.0.0",
    "localhost",
    "LocalHost",
    "localhost.",
    "localhost.localdomain",
    "agent.localhost",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[0000:0000::0001]",
    "[::]",
    "[::127.0.0.1]",
    "[::ffff:127.0.0.1]",
    "[::FFFF:7F00:1]",
    "[::ffff:0:127.0.0.1]",
    "[::ffff:0:7f00:1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b:1::7f00:1]",
    "[2002:7f00:1::]",
    "[2001:0:7f00:1::]",
    "[2606:4700::5efe:7f00:1]",
    "[2606:4700::200:5efe:127.0.0.1]",
)
NOT_PUBLIC = (
    "10.0.0.1",
    "10.1",
    "167772161",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "0xc0a80101",
    "3232235777",
    "100.64.0.1",
    "100.127.255.254",
    "169.254.1.1",
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "169.254.170.2",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "192.0.0.9",
    "192.0.2.1",
    "192.88.99.1",
    "198.18.0.1",
    "198.51.100.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[fd20:ce::254]",
    "[fe80::1]",
    "[fec0::1]",
    "[ff02::1]",
    "[ff0e::1]",
    "[100::1]",
    "[2001:db8::1]",
    "[3fff::1]",
    "[4000::1]",
    "[::ffff:a9fe:a9fe]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:a00:1::]",
    "[2002:a9fe:a9fe::1]",
)
NO_HOST = (
    "ann@agent.example.com",
    "ann:secret@agent.example.com",
    "agent.example.com@127.0.0.1",
    "127.0.0.1:80@agent.example.com",
    "agent.example.com\\@127.0.0.1",
    "127.0.0.1\\.agent.example.com",
    "127%2e0%2e0%2e1",
    "%6c%6f%63alhost",
    "127.0.0.1%00.example.com",
    "１２７.0.0.1",  # noqa: RUF001  # that is the point
    "①②⑦.⓪.⓪.①",
    "127。0。0。1",
    "ⓛocalhost",
    "agent.example.com\r\nX-Admin: 1",
    "agent.example.com\tx",
    "agent.example.com\x00",
    "[fe80::1%25eth0]",
    "[fe80::1%eth0]",
    "[::1",
    "[127.0.0.1]",
    "[::1]x",
    "[v1.127]",
    "::1",
    "256.0.0.1",
    "0251.0376.0251.0376",
    "0300.0250.1.1",
    "1.2.3.4.5",
    "0x",
    "08.0.0.1",
    "4294967296",
    "agent.example.com:0",
    "agent.example.com:65536",
    "agent.example.com:http",
    "agent.example.com:80:80",
    "agent..example.com",
    "",
    ":80",
)
NO_HTTP = (
    "file:///etc/passwd",
    "file://127.0.0.1/etc/passwd",
    "ftp://agent.example.com/",
    "gopher://agent.example.com/_GET",
    "unix:///run/docker.sock",
    "http+unix://%2frun%2fdocker.sock/",
    "ws://agent.example.com/",
    "javascript:alert(1)",
    "data:text/plain,x",
    "//agent.example.com/",
    "http:agent.example.com",
    "http:///agent.example.com",
    "agent.example.com/",
    "",
)


def test_what_is_not_public_is_refused_however_it_is_written(subtests: pytest.Subtests) -> None:
    for host in [*LOOPBACK, *NOT_PUBLIC]:
        for scheme in ["http", "https", "HttP"]:
            with subtests.test(scheme=scheme, host=host):
                for port in ("", ":8443"):
                    problem = AgentAddresses().problem(f"{scheme}://{host}{port}/evaluate")
                    assert problem is not None
                    assert "is not a public address" in problem


def test_what_two_readers_might_read_differently_is_refused(subtests: pytest.Subtests) -> None:
    for host in NO_HOST:
        with subtests.test(host=host):
            assert AgentAddresses().problem(f"http://{host}/evaluate") is not None
            everything = AgentAddresses(allowed_hosts("0.0.0.0/0, ::/0, *.example.com"))
            assert everything.problem(f"http://{host}/evaluate") is not None, "nor is it for the operator to allow"


@pytest.mark.parametrize("url", NO_HTTP)
def test_other_protocols_are_refused(url: str) -> None:
    assert AgentAddresses().problem(url) is not None


@pytest.mark.parametrize(
    "host",
    [
        "agent.example.com",
        "agent.example.com.",
        "AGENT.example.com:8443",
        "xn--bcher-kva.example",
        "8.8.8.8",
        "1.1",
        "[2606:4700:4700::1111]",
        "[64:ff9b::808:808]",
        "[::ffff:8.8.8.8]",
    ],
)
def test_what_is_public_may_be_called(host: str) -> None:
    assert AgentAddresses().problem(f"https://{host}/evaluate?q=1#x") is None


@pytest.mark.parametrize(
    ("allowed", "url", "may"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000/", True),
        ("127.0.0.1", "http://[::ffff:7f00:1]:8000/", True),
        ("127.0.0.1", "http://127.0.0.2/", False),
        ("10.0.0.0/8:8000", "http://10.1.2.3:8000/", True),
        ("10.0.0.0/8:8000", "http://10.1.2.3:8001/", False),
        ("[fd00::/8]:443", "https://[fd12::1]/", True),
        ("fd00::/8", "http://[fe80::1]/", False),
        ("localhost", "http://localhost:1/", True),
        ("localhost", "http://127.0.0.1:1/", False),
        ("*.localhost:80", "http://a.localhost/", True),
        ("*.localhost", "http://localhost/", False),
        ("169.254.169.254", "http://169.254.169.254/", True),
    ],
)
def test_the_operator_may_allow_more(allowed: str, url: str, may: bool) -> None:
    assert (AgentAddresses(allowed_hosts(allowed)).problem(url) is None) is may


@pytest.mark.parametrize(
    "entry", ["a b", "10.0.0.0/33", "http://a", "a:0", "a:70000", "a/b", "*", "*.*.a", "127.1", "@"]
)
def test_a_list_that_cannot_be_used_says_which_entry(entry: str) -> None:
    with pytest.raises(InputError, match="FEPFLOW_AGENT_HOSTS"):
        allowed_hosts(f"agent.example.com, {entry}")


def test_our_own_ports_are_refused_whatever_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {
        "HOME": str(tmp_path),
        "PORT": "4901",
        "API_PORT": "0",
        "GRPC_PORT": "4903",
        "AGENT_HOSTS": "0.0.0.0/0, ::/0",
    }
    for name, value in env.items():
        monkeypatch.setenv(f"FEPFLOW_{name}", value)
    settings.cache_clear()
    settings().api_file.write_text(json.dumps({"pid": 1, "rest": "http://[::1]:4902", "grpc": ""}), encoding="utf-8")
    addresses = AgentAddresses.configured()
    own = socket.gethostbyname(socket.gethostname())
    for host in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0", "[::ffff:127.0.0.1]", "2130706433", own):
        for port in (4901, 4902, 4903):
            assert "own" in (addresses.problem(f"http://{host}:{port}/") or ""), (host, port)
        assert addresses.problem(f"http://{host}:4904/") is None
    assert addresses.problem("http://8.8.8.8:4901/") is None
    settings.cache_clear()
