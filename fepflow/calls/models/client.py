"""The client of models: the shared state of the requests of one run, or of one evaluation.

litellm runs in a thread of the client: its import takes seconds, each of its calls milliseconds of computing, and its
connections belong to one event loop.
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
        """Return the stored responses that are not too old."""

    async def put(self, key: str, response: CachedResponse) -> None:
        """Store a response, replacing an older one. Returns when `get` can find it."""


_Key = tuple[str, str | None, str | None]


class ModelClient:
    """A client for requests to models. It belongs to the event loop in which it is made; close it there.

    It starts nothing before the first request. With a `cache`, responses are stored in it, and, without `refresh`,
    requests are looked up there first.
    """

    def __init__(self, cache: ResponseCache | None = None, *, refresh: bool = False) -> None:
        self._cache = cache
        self._refresh = refresh
        self.single_flight: SingleFlight[CachedResponse] = SingleFlight()
        """Prompts under way, whose response several callers may wait for."""
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
        """Return the response of a chat model, after retries if necessary.

        Raises ModelError, CheckArgumentsError for a model that cannot be asked, and RunLimitExceededError.
        """

        def send(parameters: dict[str, Any]) -> Awaitable[ChatResponse]:
            return _litellm.complete(model, messages, response_format, parameters, context)

        return await self._thread.run(self._request(model, context, send))

    async def output(
        self, model: Model, api: Api, request: Mapping[str, Any], headers: Mapping[str, str]
    ) -> ModelOutput:
        """Return the answer of an evaluated model to one request. The caller limits, counts and retries.

        Raises ModelError, and CheckArgumentsError for a model that cannot be asked.
        """

        async def send() -> ModelOutput:
            self._usable(model)
            return await _litellm.output(model, api, request, headers)

        return await self._thread.run(send())

    async def embed(self, model: Model, texts: list[str], context: RequestContext) -> EmbeddingResponse:
        """Return the vectors of all texts, from one request. Raises the errors of `complete`."""

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
            state.is_usable = bool(model.api_key)  # without its own key it depends on the environment
        return state

    @property
    def reuses_responses(self) -> bool:
        """True if a cached response replaces a request."""
        return self._cache is not None and not self._refresh

    async def cached(self, keys: Collection[str]) -> Mapping[str, CachedResponse]:
        """Return the cached responses of these requests that may be used."""
        return {} if self._cache is None or self._refresh else await self._cache.get(keys)

    async def store(self, key: str, response: CachedResponse) -> None:
        """Put a response into the cache, if there is one."""
        if self._cache is not None:
            await self._cache.put(key, response)

    async def once(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of the first successful work of this key, whatever is in the cache."""
        return await self.at_home(self._once(key, work))

    async def _once(self, key: Hashable, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        if key not in self._answers:
            self._answers[key] = await self._answering.join(key, work)
        answer: T = self._answers[key]
        return answer

    async def at_home(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work in the client's event loop: a user's check may call from a thread with another loop."""
        if asyncio.get_running_loop() is self._home:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._home))


def _key(model: Model) -> _Key:
    return *model.endpoint, model.api_key


@dataclass(frozen=True)
class ModelRequests:
    """The client and the limits for a check's requests to models."""

    client: ModelClient
    context: RequestContext


# Not an argument: the user's code stands between a user's check and our check or evaluation that it calls, and its
# public signatures have no clients.
_of_the_check_around: ContextVar[ModelRequests | None] = ContextVar("fepflow_model_requests", default=None)


@contextmanager
def offered_to_nested_calls(requests: ModelRequests | None) -> Iterator[None]:
    """Let `nested_or_own` yield these requests while a user's check is called."""
    before = _of_the_check_around.set(requests)
    try:
        yield
    finally:
        _of_the_check_around.reset(before)


@asynccontextmanager
async def nested_or_own() -> AsyncIterator[ModelRequests]:
    """Yield the requests of the user's check around this call, else those of a new client without cache and limits."""
    around = _of_the_check_around.get()
    if around is not None and not around.client.closed:
        yield around
        return
    async with ModelClient() as client:
        yield ModelRequests(client, RequestContext())
