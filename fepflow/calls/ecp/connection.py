"""What a session needs of the way to its agent."""

from __future__ import annotations

from typing import Any, Protocol

from fepflow.calls.ecp.rpc import Request


class Connection(Protocol):
    """The way to an agent, for one request at a time, unless its kind says otherwise."""

    async def ask(self, request: Request) -> dict[str, Any]:
        """The agent's answer, an object of JSON-RPC; raises TargetError. It has no deadline of its own."""

    def log_tail(self) -> dict[str, str]:
        """The end of what the agent said besides answers since the last call of this, by where it said it."""

    @property
    def is_open(self) -> bool:
        """Whether an answer may come at all."""

    async def aclose(self) -> None:
        """End it; after that nothing of the agent is left that was started for it."""


class Agents(Protocol):
    """What there is of the agent: a program that can be started many times, or an address."""

    @property
    def identity(self) -> list[Any]:
        """What tells it from others, for the fingerprint; without the values of variables and secret headers."""

    async def connect(self) -> Connection:
        """A way to it, for one scenario or several, one after the other. Raises TargetError."""

    async def aclose(self) -> None:
        """End what is there beside connections, which have been ended."""
