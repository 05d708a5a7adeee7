"""Limits on the connections of callers: how many there may be, and how long a request may take to come in."""

from __future__ import annotations

import resource

HEAD_SECONDS = 10.0
"""For TLS, and for the head of a request, from its first byte or the connection's beginning."""

BODY_SECONDS = 60.0
"""For the body of a request, and for a client that reads nothing of a response."""

MAX_CONNECTIONS = 1_000
_SHARE = 5


def most_connections() -> int:
    """Return how many connections an interface has at once: a fifth of what this process may open, at most 1,000.

    Two interfaces, of which one may hold two descriptors a connection, leave the rest to the store and to files.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if files == resource.RLIM_INFINITY else max(1, min(MAX_CONNECTIONS, files // _SHARE))
