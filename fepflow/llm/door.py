"""The one door to models: who is let through when, and who tries again.

litellm lives in a thread with an event loop of its own, for as long as the process does: its import takes seconds and
each of its calls milliseconds of computing, and its connections belong to one loop. Whoever asks waits on theirs.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Lock, Thread
from typing import Any, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_random_exponential

from fepflow.breaker import Breaker
from fepflow.errors import LimitReachedError, ModelDownError, ModelError, ModelTimeoutError
from fepflow.llm import library
from fepflow.llm.failures import refused_parameter
from fepflow.llm.model import Model, Reply, Vectors
from fepflow.llm.spending import Spending, terms
from fepflow.redaction import without_secrets

T = TypeVar("T")
Answer = TypeVar("Answer", Reply, Vectors)

LONGEST_WAIT = 60.0
"""Seconds: no Retry-After holds anybody up for longer."""

PATIENCE = 5
"""So many times the time-out of one request may all attempts take together, and the waits between them."""

# Full jitter: after the n-th failure something between 0 and 0.5 s * 2^(n - 1), at most 20 s.
_BACKOFF = wait_random_exponential(multiplier=0.5, max=20)

logger = logging.getLogger("fepflow.llm")


@dataclass
class _Lane:
    """Those who use the same key at the same address: their places, until when all of them have to wait, and whether
    anybody answers there."""

    breaker: Breaker
    places: dict[int, asyncio.Semaphore] = field(default_factory=dict)
    """By how many of them there are: who wants other many has places of his own."""
    closed_until: float = 0.0

    def place(self, places: int) -> asyncio.Semaphore:
        """One of so many places."""
        return self.places.setdefault(places, asyncio.Semaphore(places))

    def close(self, seconds: float) -> None:
        """Nobody asks for so long."""
        self.closed_until = max(self.closed_until, time.monotonic() + seconds)

    async def is_open(self) -> None:
        """Return when one may ask."""
        left = self.closed_until - time.monotonic()
        if left > 0:
            await asyncio.sleep(left)
            await self.is_open()  # somebody else may have been told to wait meanwhile


_lanes: dict[tuple[str, str | None, str | None], _Lane] = {}
_refused: dict[tuple[str, str | None], set[str]] = defaultdict(set)
"""Parameters that a model does not take."""


_providers: dict[tuple[str, str | None], str] = {}


async def ask(model: Model, messages: list[dict[str, str]], response_format: dict[str, Any] | None = None) -> Reply:
    """What a chat model says. Raises ModelError, or CheckArgumentsError for a model that cannot be asked at all."""

    def request(parameters: dict[str, Any]) -> Awaitable[Reply]:
        return library.complete(model, messages, response_format, parameters)

    return await _inside(_answered(model, request))


async def embed(model: Model, texts: list[str]) -> Vectors:
    """The vectors of all texts, by one request. Raises as `ask` does."""

    def request(parameters: dict[str, Any]) -> Awaitable[Vectors]:
        return library.embed(model, texts, parameters)

    return await _inside(_answered(model, request))


def problem(model: Model) -> str | None:
    """Why the model cannot be asked at all, without asking it; see `library.problem`. Takes seconds the first time."""
    return _begin(_told(lambda: library.problem(model))).result()


def has_price(model: Model) -> bool:
    """Whether it can be known what an answer of the model costs; takes seconds the first time."""
    return _begin(_told(lambda: library.has_price(model))).result()


async def provider_of(model: Model) -> str:
    """See `library.provider_of`."""
    if model.place not in _providers:
        _providers[model.place] = await _inside(_told(lambda: library.provider_of(model)))
    return _providers[model.place]


async def _told(work: Callable[[], T]) -> T:
    return work()


def _lane_of(model: Model) -> _Lane:
    provider = library.provider_of(model)
    key = provider, model.api_base, model.api_key
    if key not in _lanes:
        _lanes[key] = _Lane(Breaker(provider or model.name, ModelDownError))
    return _lanes[key]


async def _answered(model: Model, request: Callable[[dict[str, Any]], Awaitable[Answer]]) -> Answer:
    library.require(model)
    lane, asking = _lane_of(model), terms()
    async with lane.place(asking.places):
        asking.allowance.require()
        left = asking.allowance.left()
        try:
            async with asyncio.timeout(None if left == math.inf else left) as deadline:
                await lane.breaker.admit()
                return await _all_attempts(model, lane, asking, request)
        except ModelError as error:
            raise without_secrets(error) from None
        except TimeoutError:
            if not deadline.expired():
                raise
            raise LimitReachedError(f"{model.name} was not waited for: the run's deadline was over") from None


async def _all_attempts(
    model: Model, lane: _Lane, asking: Spending, request: Callable[[dict[str, Any]], Awaitable[Answer]]
) -> Answer:
    limit, started = model.timeout * PATIENCE, time.monotonic()
    try:
        async with asyncio.timeout(limit) as deadline:
            answer = await _tried_again(model, lane, asking, request)
            return replace(answer, seconds=round(time.monotonic() - started, 3))
    except TimeoutError:
        if not deadline.expired():
            raise
        raise ModelTimeoutError(f"no answer from {model.name} within {limit:g} s, all attempts together") from None


async def _tried_again(
    model: Model, lane: _Lane, asking: Spending, request: Callable[[dict[str, Any]], Awaitable[Answer]]
) -> Answer:
    requests = 0

    async def attempt() -> Answer:
        nonlocal requests
        if requests:
            await lane.breaker.admit()
        while True:
            await lane.is_open()
            asking.allowance.require()
            refused = _refused[model.place]
            parameters = {name: value for name, value in model.parameters.items() if name not in refused}
            requests += 1
            asking.requests += 1
            try:
                answer = await _within_timeout(model, request(parameters))
            except ModelError as error:
                lane.breaker.failed(error, first=requests == 1 and asking.patient)
                name = refused_parameter(str(error), model) if error.kind == "parameter_refused" else None
                if name is not None and name not in refused:
                    refused.add(name)
                    continue
                if error.kind == "rate_limited":
                    lane.close(_seconds(error, requests))
                raise
            lane.breaker.answered()
            missing = tuple(name for name in model.parameters if name in refused)
            return replace(answer, not_honoured=missing, requests=requests)

    def wait(state: RetryCallState) -> float:
        error = _cause(state)
        return _BACKOFF(state) if error.retry_after is None else _seconds(error, state.attempt_number)

    def note(state: RetryCallState) -> None:
        logger.info("%s; asked again in %.1f s", _cause(state), state.upcoming_sleep)

    retrying = AsyncRetrying(
        stop=stop_after_attempt(model.attempts if asking.patient else 1),
        wait=wait,
        retry=retry_if_exception(lambda error: isinstance(error, ModelError) and error.retryable),
        before_sleep=note,
        reraise=True,
    )
    return await retrying(attempt)


async def _within_timeout(model: Model, request: Awaitable[Answer]) -> Answer:
    try:
        async with asyncio.timeout(model.timeout) as deadline:
            return await request
    except TimeoutError:
        if not deadline.expired():
            raise
        raise ModelTimeoutError(f"no answer from {model.name} within {model.timeout:g} s (timeout)") from None


def _seconds(error: ModelError, attempt: int) -> float:
    return min(2.0 ** (attempt - 1) if error.retry_after is None else error.retry_after, LONGEST_WAIT)


def _cause(state: RetryCallState) -> ModelError:
    error = state.outcome.exception() if state.outcome else None
    assert isinstance(error, ModelError)  # nothing else is tried again
    return error


# --- the thread ---

_lock = Lock()
_loop: asyncio.AbstractEventLoop | None = None


async def _inside(work: Coroutine[Any, Any, T]) -> T:
    return await asyncio.wrap_future(_begin(work))


def _begin(work: Coroutine[Any, Any, T]) -> Future[T]:
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            Thread(target=_loop.run_forever, name="fepflow-llm", daemon=True).start()
            atexit.register(_close)
        return asyncio.run_coroutine_threadsafe(work, _loop)


def _close() -> None:
    """When the process ends: nothing stays open, and nobody complains of it."""
    global _loop
    with _lock:
        loop, _loop = _loop, None
    if loop is not None:
        with suppress(Exception):
            asyncio.run_coroutine_threadsafe(library.close(), loop).result(2)
        loop.call_soon_threadsafe(loop.stop)
