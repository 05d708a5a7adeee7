"""Addresses of agents from the network: which may be called, by URL and by the address of each connection.

A caller who names an address could otherwise make fepflow call what only this machine can reach. So an address must be
public, or on the operator's list (FEPFLOW_AGENT_HOSTS) by host or network. Ports of fepflow or Prefect on this machine
are never allowed. A URL is checked when it is given, as far as its text tells. Each connection is checked by the very
address that is about to be connected, whatever a name was resolved to before.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from urllib.parse import urlsplit

from fepflow.errors import InputError, Problem
from fepflow.prefect_settings import configured_api
from fepflow.security.addresses import PORTS, address_problem
from fepflow.settings import settings

Address = IPv4Address | IPv6Address
SETTING = "FEPFLOW_AGENT_HOSTS"

METADATA = frozenset(
    ip_address(text)
    for text in (
        "169.254.169.254",
        "169.254.170.2",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd20:ce::254",
    )
)
"""Addresses at which clouds tell a machine its secrets. One of them is a global address."""

_GLOBAL_UNICAST = ip_network("2000::/3")
"""Public addresses of IPv6. `is_global` also holds prefixes that nobody has, or that stand for internal addresses."""
_RESERVED = tuple(map(ip_network, ("192.0.0.0/24", "192.88.99.0/24", "3fff::/20")))
"""Global to Python 3.11, and never where an agent is: of protocols, of 6to4's relays, of documentation."""
_NAT64 = (ip_network("64:ff9b::/96"), ip_network("64:ff9b:1::/48"))
_COMPATIBLE = ip_network("::/96")
_ISATAP = (0x00005EFE, 0x02005EFE)
_NUMBER = r"(?:0[xX][0-9a-fA-F]*|[0-9]+)"
_NUMERIC_HOST = re.compile(rf"{_NUMBER}(?:\.{_NUMBER})*")
_NETLOC = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?")


class AddressRefusedError(OSError):
    """An address to which no connection may be made. It is an OSError, so that HTTP libraries pass it on."""


@dataclass(frozen=True, slots=True)
class AllowedHost:
    """An entry of the operator's list: a network, a host, or `*.` and a domain, with one port or all ports."""

    network: IPv4Network | IPv6Network | None
    host: str
    port: int | None

    def has_name(self, host: str, port: int) -> bool:
        """Return whether a host is allowed by its name."""
        if self.network is not None or self.port not in (None, port):
            return False
        return host.endswith(self.host[1:]) if self.host.startswith("*.") else host == self.host

    def has_address(self, address: Address, port: int) -> bool:
        """Return whether an address is in the network."""
        return self.network is not None and self.port in (None, port) and address in self.network


class AgentAddresses:
    """The addresses that the operator allows; `own_ports` of this machine are always refused."""

    def __init__(self, allowed: Sequence[AllowedHost] = (), own_ports: Collection[int] = ()) -> None:
        self._allowed = allowed
        self._own_ports = frozenset(own_ports)

    @classmethod
    def configured(cls, also: Sequence[AllowedHost] = ()) -> AgentAddresses:
        """Return the addresses in the settings, and `also` others. Raises InputError for an invalid list."""
        config, api = settings(), configured_api()
        ports = {config.port, config.api_port, config.grpc_port, *_served_ports(config.api_file)}
        if api is not None:
            parts = urlsplit(api.url)
            ports.add(parts.port or PORTS.get(parts.scheme, 80))
        return cls([*allowed_hosts(config.agent_hosts), *also], ports)

    def problem(self, url: str) -> str | None:
        """Return why an address must not be called, as far as its text tells, or None.

        The addresses of a name are checked when a connection is made.
        """
        if problem := address_problem(url):
            return f"{problem[0]} ({problem[1]})"
        if "$" in url or not url.isascii() or not url.isprintable() or "\\" in url:
            return "it holds characters that stand as %XX in an address; a host is written in ASCII (xn--…)"
        parts = urlsplit(url)
        if "@" in parts.netloc:
            return "it holds a user or a password"
        located = _NETLOC.fullmatch(parts.netloc)
        if located is None:
            return "its host is not valid"
        host, port = _host(located), int(located["port"] or PORTS[parts.scheme.lower()])
        if host is None:
            return "its host is no valid IP address"
        address = IPv4Address("127.0.0.1") if _names_this_machine(host) else _literal(host)
        return None if address is None else self._refusal(host, address, port)

    def for_url(self, url: str) -> DialGuard:
        """Return the guard of all connections to an address."""
        parts = urlsplit(url)
        return DialGuard(self, (parts.hostname or "").rstrip("."))

    def _refusal(self, host: str, address: Address, port: int) -> str | None:
        """Return why an address of `host` must not be connected, or None."""
        known = list(_unwrapped(address))
        if port in self._own_ports and any(map(_is_of_this_machine, known)):
            return f"port {port} of this machine is fepflow's or Prefect's own"
        if any(entry.has_name(host, port) for entry in self._allowed):
            return None
        for one in known:
            if _is_public(one) or any(entry.has_address(one, port) for entry in self._allowed):
                continue
            return f"{host} is not a public address, and {SETTING} does not allow it"
        return None


@dataclass(frozen=True, slots=True)
class DialGuard:
    """The socket factory for all connections to one host, as aiohttp calls it."""

    addresses: AgentAddresses
    host: str

    def __call__(self, info: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
        """Return a socket for a new connection. Raises AddressRefusedError."""
        family, kind, protocol, _, place = info
        refusal = self.addresses._refusal(self.host, ip_address(str(place[0])), int(str(place[1])))
        if refusal is not None:
            raise AddressRefusedError(refusal)
        return socket.socket(family=family, type=kind, proto=protocol)


def _served_ports(file: Path) -> Iterator[int]:
    """Yield the actual ports of REST and gRPC if any port was allowed (FEPFLOW_API_PORT=0)."""
    try:
        places = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    for name in ("rest", "grpc"):
        if port := re.search(r":([0-9]+)\Z", str(places.get(name))):
            yield int(port[1])


def allowed_hosts(listed: str) -> list[AllowedHost]:
    """Parse the operator's list: hosts, `*.domain`s, addresses and networks, each with or without `:port`, by commas.

    Raises InputError for other entries.
    """
    return [_entry(text.strip()) for text in listed.split(",") if text.strip()]


def _entry(text: str) -> AllowedHost:
    bracketed = re.fullmatch(r"\[([^\]]+)\](?::([0-9]+))?", text)
    if bracketed:
        name, port = bracketed[1], bracketed[2]
    elif text.count(":") > 1:
        name, port = text, None
    else:
        name, _, port = text.partition(":")
    if port and (not port.isdecimal() or not 0 < int(port[:6]) < 65_536):
        raise _unknown(text)
    number = int(port) if port else None
    try:
        return AllowedHost(ip_network(name, strict=False), "", number)
    except ValueError:
        pass
    if not re.fullmatch(r"(?:\*\.)?[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?", name) or _NUMERIC_HOST.fullmatch(
        name
    ):
        raise _unknown(text)
    return AllowedHost(None, name.lower(), number)


def _unknown(text: str) -> InputError:
    advice = "write agent.example.com, *.example.com, 10.0.0.0/8 or [fd00::/8], each with :port or without"
    return InputError(Problem(f"{text[:60]} is no host and no network", path=SETTING, advice=advice))


def _host(located: re.Match[str]) -> str | None:
    """Return the host in the form in which it is compared; None for an invalid IP address."""
    if located["v6"] is not None:
        try:
            return str(IPv6Address(located["v6"]))
        except ValueError:
            return None
    host = located["host"].lower().removesuffix(".")
    last = host.rpartition(".")[2]
    if not re.fullmatch(_NUMBER, last):
        return host
    try:  # as the system's resolver reads it: 127.1, 0x7f000001, 2130706433, 0177.0.0.1
        return str(IPv4Address(socket.inet_aton(host)))
    except OSError:
        return None


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def _names_this_machine(host: str) -> bool:
    return host in ("localhost", "localhost.localdomain") or host.endswith(".localhost")


def _unwrapped(address: Address) -> Iterator[Address]:
    """Yield the address, and those that a gateway would translate it to; for a mapped address only the other one."""
    if isinstance(address, IPv4Address):
        yield address
        return
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
        return
    yield address
    low = IPv4Address(int(address) & 0xFFFF_FFFF)
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    compatible = address in _COMPATIBLE and int(address) > 0xFFFF
    if compatible or any(address in network for network in _NAT64) or (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
        yield low


def _is_public(address: Address) -> bool:
    if not address.is_global or address.is_multicast or address in METADATA:
        return False
    if any(address in network for network in _RESERVED):
        return False
    return isinstance(address, IPv4Address) or address in _GLOBAL_UNICAST or address in _NAT64[0]


def _is_of_this_machine(address: Address) -> bool:
    if address.is_loopback or address.is_unspecified:
        return True
    import psutil  # only who calls a port of our own wants it

    interfaces = psutil.net_if_addrs().values()
    own = {str(one.address).partition("%")[0] for addresses in interfaces for one in addresses}
    return str(address) in own
