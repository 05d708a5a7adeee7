"""Hosts of an A2A agent: its card comes over the network, and names addresses that only some may be called at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

import httpx

from fepflow.calls.agent_addresses import AgentAddresses, AllowedHost, DialGuard, allowed_hosts
from fepflow.errors import InputError, Problem, TargetError
from fepflow.security.addresses import host_and_port, is_loopback

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Permission:
    """Permission to call an address: whether it gets the suite's headers, and what guards its connections."""

    gets_headers: bool
    guard: DialGuard | None


class AgentHosts:
    """The host of a card, and those that the suite lists (`target.a2a.hosts`).

    Only these get the suite's headers. Addresses on other hosts go through the guard of addresses that come over the
    network, and are called with TLS only. Raises InputError for an entry that is no host.
    """

    def __init__(self, card: httpx.URL, hosts: Sequence[str]) -> None:
        self._card = card
        try:
            self._listed = [entry for host in hosts for entry in allowed_hosts(host)]
        except InputError:
            advice = "write agent.example.com or agent.example.com:8443"
            raise InputError(Problem("has an entry that is no host", path="target.a2a.hosts", advice=advice)) from None
        own = [AllowedHost(None, card.host, None)]
        if is_loopback(card.host):  # an agent on this machine names it in any way; 0.0.0.0 is what many listen on
            own += allowed_hosts("localhost, 127.0.0.0/8, [::1], 0.0.0.0")
        self._own = own

    def permission(self, url: httpx.URL) -> Permission:
        """Return how an address that the card names is called; raises TargetError if it must not be called."""
        if _origin(url) == _origin(self._card):
            return Permission(True, None)
        addresses = AgentAddresses.configured(also=[*self._own, *self._listed])
        if problem := addresses.problem(str(url)):
            raise refused(url, problem)
        is_listed, is_own = _has(self._listed, url), _has(self._own, url)
        if url.scheme == "http" and not (self._card.scheme == "http" and (is_listed or is_own)):
            raise refused(url, "it is http, without encryption, and not on the card's own host")
        return Permission(is_listed, None if is_listed or is_own else addresses.for_url(str(url)))

    def is_plain(self, url: httpx.URL) -> bool:
        """Return whether gRPC speaks without TLS there: on hosts of a card that came without, unless it names TLS."""
        known = _has(self._own, url) or _has(self._listed, url)
        return known and self._card.scheme == "http" and url.scheme not in ("https", "grpcs")


def refused(url: httpx.URL, problem: str) -> TargetError:
    """Return the error of an address in a card that is not called."""
    message = f"the agent's card names {host_and_port(str(url))}, which is not called: {problem}"
    advice = "; the agent's other hosts are listed in target.a2a.hosts" if url.host else ""
    return TargetError(f"{message}{advice}", kind="connect", retryable=False)


def _has(entries: Sequence[AllowedHost], url: httpx.URL) -> bool:
    """Return whether one of the entries stands for the host and port of an address."""
    port = url.port or _PORTS.get(url.scheme, 443)
    try:
        address = ip_address(url.host)
    except ValueError:
        return any(entry.has_name(url.host, port) for entry in entries)
    return any(entry.has_name(url.host, port) or entry.has_address(address, port) for entry in entries)


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    host = "localhost" if is_loopback(url.host) or url.host == "0.0.0.0" else url.host  # noqa: S104  # not listened on
    return url.scheme, host, url.port or _PORTS.get(url.scheme)
