"""What the store knows of callers over the network: their keys, and what they did."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from fepflow.protocol.model import utc_now

KeyState = Literal["active", "expired", "revoked"]


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key of a program. Of its secret there is the SHA-256 only, in hex. Times are aware, in UTC."""

    id: str
    name: str
    secret_hash: str = dataclasses.field(repr=False)
    scopes: list[str]
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    created_at: datetime = dataclasses.field(default_factory=utc_now)

    def state_at(self, now: datetime) -> KeyState:
        """Whether it may be used at that time."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "active"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """A request: who did what to which resource, from where, and what came of it.

    `caller` is `key:ID`, `jwt:SUBJECT`, or `cli:USER` for the command line, None for anybody; `outcome` an HTTP status,
    the name of a gRPC status code, `begun` or `done`.
    """

    caller: str | None
    source: str | None
    action: str
    resource: str | None
    outcome: str
    at: datetime = dataclasses.field(default_factory=utc_now)
