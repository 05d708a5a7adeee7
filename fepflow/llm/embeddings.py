"""Vectors of texts: those that are kept (see `answers`), the others many in one request.

Those who ask the same model within a few milliseconds share a request, and texts that are equal are sent once. What a
request took is split among its texts by their length.
"""

from __future__ import annotations

import asyncio
import math
import struct
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any
from weakref import WeakKeyDictionary

from fepflow.answer import Answer
from fepflow.errors import ModelError
from fepflow.llm import answers, door
from fepflow.llm.model import Model, Usage, Vectors
from fepflow.llm.spending import terms
from fepflow.protocol.address import address_of

MOST_TEXTS = 64
MOST_CHARACTERS = 100_000
"""In one request: a third of what providers take, if each character is a token."""

COMPANY = 0.005
"""Seconds that a text waits for others."""

_REFUSALS = (400, 413, 422)
"""Statuses by which a provider refuses a request for what is in it: for one of its texts, or for their number."""

Send = Callable[[list[str]], Awaitable[Vectors]]


async def embed(model: Model, texts: Sequence[str], send: Send | None = None, version: str | None = "") -> Vectors:
    """The vectors of the texts, in their order; `requests` and `seconds` are those of the slowest of them.

    `send` asks the model, instead of the door; vectors are kept under its `version` then, with None not at all.
    `usage` is that of the texts which were sent for this caller, or of all of them if none was: they are `cached` then.
    Raises ModelError, and what else `send` raises.
    """
    asker = _Asker(model, send or _by_the_door(model), version, answers.kept.get())
    desk = _desk()
    different = list(dict.fromkeys(texts))
    found = dict(zip(different, await _all(_vector(desk, asker, text) for text in different), strict=True))
    cached = all(vector.cached for vector in found.values())
    paid = [vector for vector in found.values() if cached or not vector.cached]
    return replace(
        paid[0],
        vectors=[found[text].vectors[0] for text in texts],
        usage=sum((vector.usage for vector in paid), Usage(0, 0, 0.0)),
        requests=max(vector.requests for vector in paid),
        seconds=max(vector.seconds for vector in paid),
    )


def _by_the_door(model: Model) -> Send:
    async def send(texts: list[str]) -> Vectors:
        return await door.embed(model, texts)

    return send


async def _all(work: Iterable[Coroutine[Any, Any, Vectors]]) -> list[Vectors]:
    """What all of it returns. Raises the first failure when all has ended: what did not fail is kept."""
    done = await asyncio.gather(*work, return_exceptions=True)
    for outcome in done:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in done if isinstance(outcome, Vectors)]


@dataclass(frozen=True)
class _Asker:
    """Who asks whom; askers who are `alike` share requests."""

    model: Model
    send: Send
    version: str | None
    kept: answers.Kept | None

    @property
    def alike(self) -> Hashable:
        model = self.model
        how = tuple(sorted((name, repr(value)) for name, value in model.parameters.items()))
        where = model.name, model.api_base, model.api_key, model.api_version
        # Who tries only once more is not held up, nor asked for again, by those who try often.
        return self.kept, self.version, *where, model.timeout, model.attempts, terms().patient, how

    def key(self, text: str) -> str:
        """By which the vector of a text is found."""
        model = self.model
        return address_of("embedding", model.name, model.bare_base, dict(model.parameters), self.version, text)


async def _vector(desk: _Desk, asker: _Asker, text: str) -> Vectors:
    """The vector of one text, with its part of what the request took."""
    first = False

    async def work() -> Vectors:
        nonlocal first
        first = True
        kept, keeps = asker.kept, asker.kept is not None and asker.version is not None
        key = asker.key(text) if keeps else ""
        if kept is not None and keeps and not kept.anew:
            found = (await kept.answers.get([key])).get(key)
            if found is not None and (vector := _reread(found)) is not None:
                return vector
        vector = await desk.batch_for(asker, text).vector_of(text)
        if kept is not None and keeps:
            await kept.answers.put(key, _answer(asker.model, vector))
        return vector

    vector = await desk.flights.join((asker.alike, text), work)
    return vector if first else replace(vector, requests=0, seconds=0.0, cached=True)


class _Desk:
    """What is under way in one event loop: the batches that others may join, and the texts that are asked for."""

    def __init__(self) -> None:
        self.flights: answers.Flights[Vectors] = answers.Flights()
        self._open: dict[Hashable, _Batch] = {}

    def batch_for(self, asker: _Asker, text: str) -> _Batch:
        """The batch that this text goes with."""
        alike = asker.alike
        batch = self._open.get(alike)
        if batch is not None and not batch.has_place_for(text):
            batch.close()
            batch = None
        if batch is None:
            batch = self._open[alike] = _Batch(asker.send, lambda: self._close(alike))
        return batch

    def _close(self, alike: Hashable) -> None:
        del self._open[alike]


class _Batch:
    """Texts that go in one request, which is made when there are enough of them, or soon in any case."""

    def __init__(self, send: Send, closed: Callable[[], None]) -> None:
        self._send = send
        self._closed = closed
        self._waiting: dict[str, asyncio.Future[Vectors]] = {}
        self._characters = 0
        self._full = asyncio.Event()
        self._task = asyncio.create_task(self._work())

    def has_place_for(self, text: str) -> bool:
        """Whether it may come along; one that is too long for any batch has one of its own."""
        return not self._waiting or self._characters + len(text) <= MOST_CHARACTERS

    async def vector_of(self, text: str) -> Vectors:
        """Take the text along, and wait for its vector."""
        future: asyncio.Future[Vectors] = asyncio.get_running_loop().create_future()
        self._waiting[text] = future
        self._characters += len(text)
        if len(self._waiting) >= MOST_TEXTS:
            self.close()
        try:
            return await future
        except asyncio.CancelledError:
            if all(other.cancelled() for other in self._waiting.values()):
                self.close()
                self._task.cancel()
            raise

    def close(self) -> None:
        """Nobody else comes along."""
        if not self._full.is_set():
            self._full.set()
            self._closed()

    async def _work(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(COMPANY):
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


async def _sent(send: Send, texts: list[str]) -> list[Vectors | Exception]:
    """The vector of each text, or why there is none. Where a text may be to blame, halves are asked, down to one."""
    try:
        return list(_split(await send(texts), texts))
    except ModelError as error:
        if len(texts) == 1 or error.status not in _REFUSALS:
            return [error] * len(texts)
    except Exception as error:
        return [error] * len(texts)
    middle = len(texts) // 2
    halves = await asyncio.gather(_sent(send, texts[:middle]), _sent(send, texts[middle:]))
    return [outcome for half in halves for outcome in half]


def _split(whole: Vectors, texts: Sequence[str]) -> Iterable[Vectors]:
    """The vectors one by one, each with its text's part of what they took, by its length; the parts make the whole."""
    ends = list(accumulate(max(len(text), 1) for text in texts))
    usage = whole.usage
    for start, end, vector in zip([0, *ends], ends, whole.vectors, strict=False):
        part = Usage(
            _part(usage.prompt_tokens, start, end, ends[-1]),
            _part(usage.completion_tokens, start, end, ends[-1]),
            None if usage.cost_usd is None else usage.cost_usd * (end - start) / ends[-1],
        )
        yield replace(whole, vectors=[vector], usage=part)


def _part(number: int | None, start: int, end: int, whole: int) -> int | None:
    return None if number is None else number * end // whole - number * start // whole


def _answer(model: Model, one: Vectors) -> Answer:
    vector, usage = one.vectors[0], one.usage
    text = b64encode(struct.pack(f"<{len(vector)}d", *vector)).decode("ascii")
    tokens = usage.prompt_tokens, usage.completion_tokens
    return Answer("embedding", model.name, one.model, None, text, *tokens, usage.cost_usd, one.not_honoured)


def _reread(answer: Answer) -> Vectors | None:
    """The vector that an answer holds; None if it holds none."""
    try:
        packed = b64decode(answer.text, validate=True)
        vector = list(struct.unpack(f"<{len(packed) // 8}d", packed))
    except (ValueError, struct.error):
        return None
    if not vector or not all(map(math.isfinite, vector)):
        return None
    usage = Usage(answer.prompt_tokens, answer.completion_tokens, answer.cost_usd)
    return Vectors([vector], answer.model_answered, usage, answer.not_honoured, 0, 0.0, cached=True)


_desks: WeakKeyDictionary[asyncio.AbstractEventLoop, _Desk] = WeakKeyDictionary()


def _desk() -> _Desk:
    return _desks.setdefault(asyncio.get_running_loop(), _Desk())
