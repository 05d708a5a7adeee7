"""Addresses of endpoints: what is wrong with one in a suite, and what may be shown and followed of any."""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

_ADVICE = "it reads like https://host/path"
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?")
_MAX_PORT = 65_535
_PORTS = {"http": 80, "https": 443}


def address_problem(url: str) -> tuple[str, str] | None:
    """Return why an address cannot be called, and what to do; None if it can. Shows no password and no query."""
    if not url.strip():
        return "the address is empty", _ADVICE
    if re.search(r"\{\{|\$\.", url):
        return "an address is the same for all test cases", "paths go into body; ${NAME} is read from the environment"
    if url != url.strip() or re.search(r"\s", url):
        return "there is a space in the address", "take it out, or write %20"
    scheme, separator, rest = url.partition("://")
    if not separator:
        return _without_scheme(url)
    if scheme.lower() not in ("http", "https"):
        return f"{scheme[:20]}:// is not known", "an address starts with http:// or https://"
    if placeholder := re.search(r"(?<!\$)\{\w*\}", url):
        return f"{placeholder[0]} stays as it is in an address", "${NAME} is read from the environment"
    return _of_host(rest, url)


def _without_scheme(url: str) -> tuple[str, str]:
    if re.match(r"https?:?/*", url, re.IGNORECASE) and re.match(r"https?[:/]", url, re.IGNORECASE):
        return "two slashes after http: are missing", _ADVICE
    if url.startswith("/"):
        return "the address has no host", _ADVICE
    return "the address has no scheme", "write http:// or https:// before it"


def _of_host(rest: str, url: str) -> tuple[str, str] | None:
    location = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return "the host is not valid", "an IPv6 address stands in brackets: http://[::1]:8000/"
    if not host:
        return "the address has no host", _ADVICE
    port = re.search(r":([^:\]]*)$", location)
    if port and port[1] and not (port[1].isdecimal() and 0 < int(port[1]) <= _MAX_PORT):
        return f"the port {port[1][:10]} is not valid", f"a port is a number from 1 to {_MAX_PORT}"
    if location.startswith("["):
        return None
    if location.count(":") > 1:
        return "the host is not valid", "an IPv6 address stands in brackets: http://[::1]:8000/"
    if host.isascii() and (not _HOST.fullmatch(host) or ".." in host):
        return f"the host {host[:60]} is not valid", _ADVICE
    return _of_numbers(host)


def _of_numbers(host: str) -> tuple[str, str] | None:
    numbers = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)\.(\d+)", host)
    if numbers and any(int(number) > 255 for number in numbers.groups()):
        return f"{host} is not an IP address", "each of its numbers is at most 255"
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
    return parts.port or _PORTS.get(parts.scheme)
