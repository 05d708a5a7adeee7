"""What may be shown of an address, and which redirects may be followed."""

from __future__ import annotations

import pytest

from fepflow.security.addresses import host_and_port, is_loopback, is_same_host


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://ann:pa55word@host/path?key=s3cret#x", "host:80"),
        ("https://HOST:8443", "host:8443"),
        ("https://[::1]/", "[::1]:443"),
        ("ftp://host/", "host"),
        ("http://host:99999/", "an address that cannot be read"),
        ("http://[::1/", "an address that cannot be read"),
        ("mailto:somebody", "an address that cannot be read"),
    ],
)
def test_only_host_and_port_are_shown(url: str, shown: str) -> None:
    assert host_and_port(url) == shown


@pytest.mark.parametrize(
    ("there", "same"),
    [
        ("http://host/else", True),
        ("http://HOST:80/", True),
        ("https://host/", True),
        ("https://host:8443/", True),
        ("http://host:81/", False),
        ("http://host.evil/", False),
        ("http://host@evil/", False),
        ("ftp://host:80/", False),
        ("//host/", False),
        ("http://host:99999/", False),
        ("", False),
    ],
)
def test_a_redirect_stays_on_its_host(there: str, same: bool) -> None:
    assert is_same_host("http://host/ask", there) is same


def test_no_redirect_leads_back_to_the_open_side() -> None:
    assert not is_same_host("https://host/", "http://host/")
    assert not is_same_host("https://host/", "http://host:443/")


@pytest.mark.parametrize("host", ["localhost", "api.localhost", "127.0.0.1", "127.8.9.10", "::1"])
def test_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["localhost.example", "10.0.0.1", "0.0.0.0", "", "::2", "mylocalhost"])
def test_another_machine(host: str) -> None:
    assert not is_loopback(host)
