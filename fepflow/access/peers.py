"""The IP address in what gRPC calls a peer."""

from __future__ import annotations

from urllib.parse import unquote


def address_of_peer(peer: str) -> str | None:
    """`127.0.0.1` of `ipv4:127.0.0.1:50051`, `::1` of `ipv6:%5B::1%5D:50051`; None for a socket of the file system.

    What has another form stays as it is, and is from nowhere that we trust (`Access`).
    """
    kind, _, rest = peer.partition(":")
    if kind in ("unix", "unix-abstract"):
        return None
    host = unquote(rest).rpartition(":")[0]
    return host.strip("[]").partition("%")[0] if kind in ("ipv4", "ipv6") and host else peer
