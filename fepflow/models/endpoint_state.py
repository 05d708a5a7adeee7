"""What the requests of one client have in common: limits and health of an endpoint, and what a model rejects."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from fepflow.calls.circuit_breaker import CircuitBreaker


@dataclass
class EndpointState:
    """State of one key at one address of a provider. Used in the event loop of the client's thread only."""

    circuit_breaker: CircuitBreaker
    _semaphores: dict[int, asyncio.Semaphore] = field(default_factory=dict)
    _blocked_until: float = 0.0

    def semaphore(self, concurrency: int) -> asyncio.Semaphore:
        """One semaphore per concurrency limit."""
        return self._semaphores.setdefault(concurrency, asyncio.Semaphore(concurrency))

    def block(self, seconds: float) -> None:
        """Hold back all requests for so long."""
        self._blocked_until = max(self._blocked_until, time.monotonic() + seconds)

    async def unblocked(self) -> None:
        """Return when a request may be made."""
        left = self._blocked_until - time.monotonic()
        if left > 0:
            await asyncio.sleep(left)
            await self.unblocked()  # meanwhile another response may have asked for a longer pause


@dataclass
class ModelState:
    """State of a model at an endpoint."""

    provider: str
    """The provider as litellm names it; empty if it knows none."""
    endpoint: EndpointState
    is_usable: bool = False
    """Whether it was found to have all that a request needs: to look takes a tenth of a request's computing."""
    rejected_params: set[str] = field(default_factory=set)
    rejected_modes: set[tuple[str, str]] = field(default_factory=set)
    """Output modes that it rejects, each with the schema for which it does; an empty text stands for any schema."""
