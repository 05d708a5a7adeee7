"""Addresses of endpoints: what is wrong with one in a suite, and what may be shown and followed of any."""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

_ADVICE = "it reads like https://host/path"
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?")
PORTS = {"http": 80, "https": 443}
"""Ports of addresses that name none."""


def address_problem(url: str) -> tuple[str, str] | None:
    """Return why an address cannot be called, and what to do; None if it can. Shows no password and no query."""
    if not url.strip():
        return "the address is empty", _ADVICE
    if re.search(r"\{\{|\$\.", url):
        return "an address is the same for all test cases", "paths go into body; ${NAME} is read from the environment"
    if re.search(r"\s", url):
        return "there is a space in the address", "take it out, or write %20"
    scheme, separator, _ = url.partition("://")
    if url.startswith("/"):
        return "the address has no host", _ADVICE
    if not separator:
        return "the address has no scheme", "write http:// or https:// before it"
    if scheme.lower() not in PORTS:
        return f"{scheme[:20]}:// is not known", "an address starts with http:// or https://"
    if placeholder := re.search(r"(?<!\$)\{\w*\}", url):
        return f"{placeholder[0]} stays as it is in an address", "${NAME} is read from the environment"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        port = 0
    if port == 0:
        advice = "a port is a number from 1 to 65535, and an IPv6 address stands in brackets: http://[::1]:8000/"
        return "the host or the port is not valid", advice
    if not host:
        return "the address has no host", _ADVICE
    numbers = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)\.(\d+)", host)
    if numbers and any(int(number) > 255 for number in numbers.groups()):
        return f"{host} is not an IP address", "each of its numbers is at most 255"
    if ":" not in host and host.isascii() and (not _HOST.fullmatch(host) or ".." in host):
        return f"the host {host[:60]} is not valid", _ADVICE
    return None


def host_and_port(url: str) -> str:
    """Return `host:port` of an address, for messages: the rest of it may hold secrets."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, _port(parts)
    except ValueError:
        host = port = None
    if not host:
        return "an address that cannot be read"
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{port}" if port else host


def is_same_host(here: str, there: str) -> bool:
    """Return whether a redirect may be followed: to the same host and port, or to HTTPS on the same host."""
    try:
        one, other = urlsplit(here), urlsplit(there)
        same_port = (one.scheme, _port(one)) == (other.scheme, _port(other))
    except ValueError:
        return False
    upgraded = (one.scheme, other.scheme) == ("http", "https")
    return one.hostname == other.hostname and (same_port or upgraded)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by its name."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _port(parts: SplitResult) -> int | None:
    return parts.port or PORTS.get(parts.scheme)
