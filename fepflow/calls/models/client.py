"""The client of models: the shared state of the requests of one run, or of one evaluation.

litellm works in a thread of the client's: its import takes seconds and each of its calls milliseconds of computing, and
its connections belong to one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Hashable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

from fepflow.calls.loop_thread import LoopThread
from fepflow.calls.models import _litellm, retrying
from fepflow.calls.models.batching import Batcher, SingleFlight
from fepflow.calls.models.model import Api, ChatResponse, EmbeddingResponse, Model, ModelOutput, RequestContext
from fepflow.calls.models.retrying import EndpointState, ModelState, Response, Send
from fepflow.calls.policy import CircuitBreaker
from fepflow.errors import CheckArgumentsError, ModelUnavailableError
from fepflow.protocol.model_response import CachedResponse

T = TypeVar("T")


class ResponseCache(Protocol):
    """Responses by the content hash of their request (see `structured` and `embeddings`)."""

    async def get(self, keys: Collection[str]) -> Mapping[str, CachedResponse]:
        """Return the responses that are there, and not too old."""

    async def put(self, key: str, response: CachedResponse) -> None:
        """Store a response, in the place of an older one; returns when `get` finds it."""


_Key = tuple[str, str | None, str | None]


class ModelClient:
    """Makes requests to models. Belongs to the event loop in which it is made; close it there.

    It starts nothing before the first request. With a `cache`, requests are looked up there first, unless `refresh`,
    and their responses are stored in it.
    """

    def __init__(self, cache: ResponseCache | None = None, *, refresh: bool = False) -> None:
        self._cache = cache
        self._refresh = refresh
        self.single_flight: SingleFlight[CachedResponse] = SingleFlight()
        """Prompts under way whose response several callers wait for."""
        self._answers: dict[Hashable, Any] = {}
        self._answering: SingleFlight[Any] = SingleFlight()
        self.batcher = Batcher()
        self._endpoints: dict[_Key, EndpointState] = {}
        """Endpoints by provider, address and key."""
        self._models: dict[_Key, ModelState] = {}
        """Models by name, address and key."""
        self._home = asyncio.get_running_loop()
        self._thread = LoopThread("fepflow-llm", _litellm.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Cancel the requests under way and close the connections. Further requests raise RuntimeError."""
        await self._thread.aclose()

    @property
    def closed(self) -> bool:
        """True once it has been closed."""
        return self._thread.closed

    async def complete(
        self,
        model: Model,
        messages: list[dict[str, str]],
        context: RequestContext,
        response_format: dict[str, Any] | None = None,
    ) -> ChatResponse:
        """Return the response of a chat model, after as many requests as it takes and may take.

        Raises ModelError, CheckArgumentsError for a model that cannot be asked at all, and RunLimitExceededError.
        """

        def send(parameters: dict[str, Any]) -> Awaitable[ChatResponse]:
            return _litellm.complete(model, messages, response_format, parameters, context)

        return await self._thread.run(self._request(model, context, send))

    async def output(
        self, model: Model, api: Api, request: Mapping[str, Any], headers: Mapping[str, str]
    ) -> ModelOutput:
        """Return what a model that is evaluated answers to one request: the caller limits, counts and tries again.

        Raises ModelError, and CheckArgumentsError for a model that cannot be asked at all.
        """

        async def send() -> ModelOutput:
            self._usable(model)
            return await _litellm.output(model, api, request, headers)

        return await self._thread.run(send())

    async def embed(self, model: Model, texts: list[str], context: RequestContext) -> EmbeddingResponse:
        """Return the vectors of all texts, by one request. Raises as `complete` does."""

        def send(parameters: dict[str, Any]) -> Awaitable[EmbeddingResponse]:
            return _litellm.embed(model, texts, parameters, context)

        return await self._thread.run(self._request(model, context, send))

    async def _request(self, model: Model, context: RequestContext, send: Send[Response]) -> Response:
        return await retrying.request(model, self._usable(model), context, send)

    async def state_of(self, model: Model) -> ModelState:
        """Return the state of the model. Takes seconds the first time."""

        async def work() -> ModelState:
            return self._state_of(model)

        known = self._models.get(_key(model))
        return known if known is not None else await self._thread.run(work())

    def _state_of(self, model: Model) -> ModelState:
        if (state := self._models.get(_key(model))) is not None:
            return state
        provider = _litellm.provider_of(model)
        key = provider, model.api_base, model.api_key
        if key not in self._endpoints:
            self._endpoints[key] = EndpointState(CircuitBreaker(provider or model.name, ModelUnavailableError))
        state = self._models[_key(model)] = ModelState(provider, self._endpoints[key])
        return state

    def _usable(self, model: Model) -> ModelState:
        state = self._state_of(model)
        if not state.is_usable:
            if (why := _litellm.problem(model)) is not None:
                raise CheckArgumentsError(why)
            state.is_usable = bool(model.api_key)  # without a key of its own it depends on the environment
        return state

    @property
    def reuses_responses(self) -> bool:
        """True if a response that is in the cache takes the place of a request."""
        return self._cache is not None and not self._refresh

    async def cached(self, keys: Collection[str]) -> Mapping[str, CachedResponse]:
        """Return the responses of these requests that may be used again."""
        return {} if self._cache is None or self._refresh else await self._cache.get(keys)

    async def store(self, key: str, response: CachedResponse) -> None:
        """Put a response into the cache, if there is one."""
        if self._cache is not None:
            await self._cache.put(key, response)

    async def once(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what the first work of this key returned that did not fail, whatever the cache holds."""
        return await self.at_home(self._once(key, work))

    async def _once(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if key not in self._answers:
            self._answers[key] = await self._answering.join(key, work)
        answer: T = self._answers[key]
        return answer

    async def at_home(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work in the client's event loop: a user's check may call from a thread with a loop of its own."""
        if asyncio.get_running_loop() is self._home:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._home))


def _key(model: Model) -> _Key:
    return *model.endpoint, model.api_key


@dataclass(frozen=True)
class ModelRequests:
    """The client and the limits by which a check makes requests to models."""

    client: ModelClient
    context: RequestContext


# Not an argument: between a user's check and a check of ours that it calls, or an evaluation, stands the user's code,
# whose signatures are public and know nothing of clients.
_of_the_check_around: ContextVar[ModelRequests | None] = ContextVar("fepflow_model_requests", default=None)


@contextmanager
def offered_to_nested_calls(requests: ModelRequests | None) -> Iterator[None]:
    """Have `nested_or_own` give these requests while a user's check is called."""
    before = _of_the_check_around.set(requests)
    try:
        yield
    finally:
        _of_the_check_around.reset(before)


@asynccontextmanager
async def nested_or_own() -> AsyncIterator[ModelRequests]:
    """Yield the requests of the user's check in which this is called; else those of a new client without cache and
    limits.
    """
    around = _of_the_check_around.get()
    if around is not None and not around.client.closed:
        yield around
        return
    async with ModelClient() as client:
        yield ModelRequests(client, RequestContext())
