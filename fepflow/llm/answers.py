"""Answers that are kept, so that nothing is asked twice. Whoever executes a run hands them over; else none are kept.

    answers.kept.set(Kept(answers))     # for the run
    with answers.of_repeat(3): ...      # for all that is asked about the target's fourth answer

Both hold for what the block awaits and for the tasks that it creates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from fepflow.answer import Answer

T = TypeVar("T")


class Answers(Protocol):
    """Where answers are kept, by the content address of what was asked (see `structured` and `embeddings`)."""

    async def get(self, keys: Collection[str]) -> Mapping[str, Answer]:
        """Those that are there, and not too old."""

    async def put(self, key: str, answer: Answer) -> None:
        """Keep an answer, in the place of an older one; returns when `get` finds it."""


class Flights(Generic[T]):
    """Work under way that several may wait for. Of one event loop."""

    def __init__(self) -> None:
        self._flights: dict[Hashable, _Flight[T]] = {}

    async def join(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What the work returns or raises; it is begun only if nobody else's of the same key is under way.

        It is cancelled when all who wait for it are.
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
                self._forget(key, flight)  # who comes now begins anew
                flight.task.cancel()

    def _forget(self, key: Hashable, flight: _Flight[T]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]


@dataclass
class _Flight(Generic[T]):
    task: asyncio.Task[T]
    waiting: int = 0


@dataclass(eq=False)
class Kept:
    """What a run hands over: its answers, and whether models are asked `anew` even so, to replace what is there."""

    answers: Answers
    anew: bool = False
    flights: Flights[Answer] = field(default_factory=Flights)
    """Judges' answers that are being asked for: the same question, asked at once by several, is one request."""


kept: ContextVar[Kept | None] = ContextVar("fepflow_answers", default=None)
"""The answers of the run; None outside of runs."""

_repeat: ContextVar[int] = ContextVar("fepflow_repeat", default=0)


@contextmanager
def of_repeat(number: int) -> Iterator[None]:
    """What is asked inside is about the target's answer number `number`, from 0: no two of them share an answer."""
    before = _repeat.set(number)
    try:
        yield
    finally:
        _repeat.reset(before)


def repeat() -> int:
    """Which of the target's answers is asked about."""
    return _repeat.get()
