"""Requests that several callers share: one flight for each key, and texts that are embedded in one request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Generic, TypeVar

from fepflow.calls.models.model import EmbeddingResponse, Usage
from fepflow.errors import ModelError

T = TypeVar("T")

MAX_TEXTS = 64
MAX_CHARACTERS = 100_000
"""Most characters in one request: a third of the providers' limits, even if each character is a token."""

BATCH_WINDOW = 0.005
"""Seconds that a text waits for others."""

_REJECTED = (400, 413, 422)
"""Statuses by which a provider rejects the content of a request: one of its texts, or their number."""

Send = Callable[[list[str]], Awaitable[EmbeddingResponse]]


class SingleFlight(Generic[T]):
    """Work that is done once for all callers with the same key. For callers in one event loop."""

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[T]] = {}

    async def join(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of the work, or raise its exception. It starts only if no work of the key is under way.

        It is cancelled when all its callers are.
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
                self._forget(key, flight)  # the next caller starts again
                flight.task.cancel()

    def _forget(self, key: Hashable, flight: _Flight[T]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]


@dataclass
class _Flight(Generic[T]):
    task: asyncio.Task[T]
    waiting: int = 0


class Batcher:
    """Batches of texts that wait for further ones, and texts under way. For callers in one event loop."""

    def __init__(self) -> None:
        self.single_flight: SingleFlight[EmbeddingResponse] = SingleFlight()
        self._open: dict[Hashable, _Batch] = {}

    async def embed(self, key: Hashable, text: str, send: Send) -> EmbeddingResponse:
        """Return the vector of a text, with its share of the usage. Texts of one key share a request."""
        batch = self._open.get(key)
        if batch is not None and not batch.has_room_for(text):
            batch.close()
            batch = None
        if batch is None:
            batch = self._open[key] = _Batch(send, lambda: self._open.pop(key))
        return await batch.embed(text)


class _Batch:
    """Texts of one request, which is sent when there are enough of them, or at the end of the window."""

    def __init__(self, send: Send, on_close: Callable[[], object]) -> None:
        self._send = send
        self._on_close = on_close
        self._waiting: dict[str, asyncio.Future[EmbeddingResponse]] = {}
        self._characters = 0
        self._full = asyncio.Event()
        self._task = asyncio.create_task(self._work())

    def has_room_for(self, text: str) -> bool:
        """Return whether a text fits. A text that is too long for any batch has its own."""
        return not self._waiting or self._characters + len(text) <= MAX_CHARACTERS

    async def embed(self, text: str) -> EmbeddingResponse:
        """Add a text, and wait for its vector."""
        future: asyncio.Future[EmbeddingResponse] = asyncio.get_running_loop().create_future()
        self._waiting[text] = future
        self._characters += len(text)
        if len(self._waiting) >= MAX_TEXTS:
            self.close()
        try:
            return await future
        except asyncio.CancelledError:
            if all(other.cancelled() for other in self._waiting.values()):
                self.close()
                self._task.cancel()
            raise

    def close(self) -> None:
        """Take no further text."""
        if not self._full.is_set():
            self._full.set()
            self._on_close()

    async def _work(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(BATCH_WINDOW):
                await self._full.wait()
        self.close()
        texts = [text for text, future in self._waiting.items() if not future.cancelled()]
        for text, outcome in zip(texts, await _sent(self._send, texts), strict=True):
            future = self._waiting[text]
            if future.done():
                continue
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)


async def _sent(send: Send, texts: list[str]) -> list[EmbeddingResponse | Exception]:
    """Return the vector of each text, or its error. If one text may be the cause, halves are sent, down to one."""
    try:
        return list(_split(await send(texts), texts))
    except ModelError as error:
        if len(texts) == 1 or error.status not in _REJECTED:
            return [error] * len(texts)
    except Exception as error:
        return [error] * len(texts)
    middle = len(texts) // 2
    halves = await asyncio.gather(_sent(send, texts[:middle]), _sent(send, texts[middle:]))
    return [outcome for half in halves for outcome in half]


def _split(whole: EmbeddingResponse, texts: Sequence[str]) -> Iterable[EmbeddingResponse]:
    """Yield the vectors, each with its text's share of the usage by length. The shares sum to the whole."""
    ends = list(accumulate(max(len(text), 1) for text in texts))
    usage = whole.usage
    for start, end, vector in zip([0, *ends], ends, whole.vectors, strict=False):
        share = Usage(
            _share(usage.prompt_tokens, start, end, ends[-1]),
            _share(usage.completion_tokens, start, end, ends[-1]),
            None if usage.cost_usd is None else usage.cost_usd * (end - start) / ends[-1],
        )
        yield replace(whole, vectors=[vector], usage=share)


def _share(number: int | None, start: int, end: int, whole: int) -> int | None:
    return None if number is None else number * end // whole - number * start // whole
