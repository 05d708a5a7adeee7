"""What conformance is checked over."""

from __future__ import annotations

from typing import Protocol


class Wire(Protocol):
    """A raw way to an agent."""

    async def send(self, text: str) -> None:
        """Send a text, a line or the body of a POST."""

    async def receive(self, seconds: float) -> str | None:
        """The next line or event that comes; None if none comes in time, or none will."""

    async def fault(self) -> str:
        """Why nothing comes any more, if that is known."""

    async def aclose(self) -> None:
        """End it."""
