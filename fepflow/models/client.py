"""The client of models: the shared state of the requests of one run, or of one evaluation.

litellm works in a thread of the client's: its import takes seconds and each of its calls milliseconds of computing, and
its connections belong to one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Coroutine, Mapping
from typing import Any, Self, TypeVar

from fepflow.calls.policy import CircuitBreaker
from fepflow.errors import CheckArgumentsError, ModelUnavailableError
from fepflow.models import _litellm, providers, retrying
from fepflow.models.batching import Batcher
from fepflow.models.loop_thread import LoopThread
from fepflow.models.model import ChatResponse, EmbeddingResponse, Model
from fepflow.models.request_context import RequestContext
from fepflow.models.response_cache import ResponseCache, SingleFlight
from fepflow.models.retrying import EndpointState, ModelState, Response, Send
from fepflow.protocol.model_response import CachedResponse

T = TypeVar("T")

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
        self.batcher = Batcher()
        self._endpoints: dict[_Key, EndpointState] = {}
        """By provider, address and key."""
        self._models: dict[_Key, ModelState] = {}
        """By name, address and key."""
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
        """Whether it has been closed."""
        return self._thread.closed

    async def complete(
        self,
        model: Model,
        messages: list[dict[str, str]],
        context: RequestContext,
        response_format: dict[str, Any] | None = None,
    ) -> ChatResponse:
        """The response of a chat model, after as many requests as it takes and may take.

        Raises ModelError, CheckArgumentsError for a model that cannot be asked at all, and RunLimitExceededError.
        """

        def send(parameters: dict[str, Any]) -> Awaitable[ChatResponse]:
            return _litellm.complete(model, messages, response_format, parameters, context)

        return await self._thread.run(self._request(model, context, send))

    async def embed(self, model: Model, texts: list[str], context: RequestContext) -> EmbeddingResponse:
        """The vectors of all texts, by one request. Raises as `complete` does."""

        def send(parameters: dict[str, Any]) -> Awaitable[EmbeddingResponse]:
            return _litellm.embed(model, texts, parameters, context)

        return await self._thread.run(self._request(model, context, send))

    async def _request(self, model: Model, context: RequestContext, send: Send[Response]) -> Response:
        return await retrying.request(model, self._usable(model), context, send)

    async def state_of(self, model: Model) -> ModelState:
        """The state of the model. Takes seconds the first time."""

        async def work() -> ModelState:
            return self._state_of(model)

        known = self._models.get(_key(model))
        return known if known is not None else await self._thread.run(work())

    def _state_of(self, model: Model) -> ModelState:
        if (state := self._models.get(_key(model))) is not None:
            return state
        provider = providers.provider_of(model)
        key = provider, model.api_base, model.api_key
        if key not in self._endpoints:
            self._endpoints[key] = EndpointState(CircuitBreaker(provider or model.name, ModelUnavailableError))
        state = self._models[_key(model)] = ModelState(provider, self._endpoints[key])
        return state

    def _usable(self, model: Model) -> ModelState:
        state = self._state_of(model)
        if not state.is_usable:
            if (why := providers.problem(model)) is not None:
                raise CheckArgumentsError(why)
            state.is_usable = bool(model.api_key)  # without a key of its own it depends on the environment
        return state

    @property
    def reuses_responses(self) -> bool:
        """Whether a response that is in the cache takes the place of a request."""
        return self._cache is not None and not self._refresh

    async def cached(self, keys: Collection[str]) -> Mapping[str, CachedResponse]:
        """The responses of these requests that may be used again."""
        return {} if self._cache is None or self._refresh else await self._cache.get(keys)

    async def store(self, key: str, response: CachedResponse) -> None:
        """Put a response into the cache, if there is one."""
        if self._cache is not None:
            await self._cache.put(key, response)

    async def at_home(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work in the client's event loop: a user's check may call from a thread with a loop of its own."""
        if asyncio.get_running_loop() is self._home:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._home))


def _key(model: Model) -> _Key:
    return *model.endpoint, model.api_key
