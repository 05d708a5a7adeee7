"""The interface of the response cache, and single flight: requests that several callers share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from fepflow.protocol.model_response import CachedResponse

T = TypeVar("T")


class ResponseCache(Protocol):
    """Responses by the content hash of their request (see `structured` and `embeddings`)."""

    async def get(self, keys: Collection[str]) -> Mapping[str, CachedResponse]:
        """Those that are there, and not too old."""

    async def put(self, key: str, response: CachedResponse) -> None:
        """Store a response, in the place of an older one; returns when `get` finds it."""


class SingleFlight(Generic[T]):
    """Work under way that several callers wait for, each key's once. For callers in one event loop."""

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[T]] = {}

    async def join(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What the work returns or raises; it is begun only if none of the same key is under way.

        It is cancelled when all callers are.
        """
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.create_task(work()))
            flight.task.add_done_callback(lambda _: self._forget(key, flight))
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                self._forget(key, flight)  # the next caller begins anew
                flight.task.cancel()

    def _forget(self, key: Hashable, flight: _Flight[T]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]


@dataclass
class _Flight(Generic[T]):
    task: asyncio.Task[T]
    waiting: int = 0
