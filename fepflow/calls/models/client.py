"""The client of models: the shared state of the requests of one run, or of one evaluation, and how each is made.

litellm runs in a thread of the client: its import takes seconds, each of its calls milliseconds of computing, and its
connections belong to one event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Generic, Protocol, Self, TypeVar

from fepflow.calls.models import _litellm
from fepflow.calls.models.answers import refused_parameter
from fepflow.calls.models.model import Api, ChatResponse, EmbeddingResponse, Model, ModelOutput, RequestContext, Usage
from fepflow.calls.policy import LONGEST_WAIT, CircuitBreaker, Retries, time_limit
from fepflow.calls.thread_pool import LoopThread
from fepflow.errors import (
    CheckArgumentsError,
    ModelError,
    ModelTimeoutError,
    ModelUnavailableError,
    RunLimitExceededError,
)
from fepflow.protocol.content_hash import CachedResponse
from fepflow.security.redaction import without_secrets

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
        return await request(model, self._usable(model), context, send)

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


# --- one request: limits, retries and the circuit breaker ------------------------------------------------------------


Response = TypeVar("Response", ChatResponse, EmbeddingResponse)

Send = Callable[[dict[str, Any]], Awaitable[Response]]
"""Makes one request with the given parameters."""

BACKOFF, LONGEST_BACKOFF = 0.5, 20.0

TOTAL_TIMEOUT_FACTOR = 5
"""Time limit of all attempts with the waits between them, as a multiple of the time-out of one request."""

logger = logging.getLogger("fepflow.calls.models")


@dataclass
class EndpointState:
    """State of one key at one address of a provider. Used in the event loop of the client's thread only."""

    circuit_breaker: CircuitBreaker
    _semaphores: dict[int, asyncio.Semaphore] = field(default_factory=dict)
    _blocked_until: float = 0.0

    def semaphore(self, concurrency: int) -> asyncio.Semaphore:
        """Return the semaphore of a concurrency limit."""
        return self._semaphores.setdefault(concurrency, asyncio.Semaphore(concurrency))

    def block(self, seconds: float) -> None:
        """Hold back all requests for this time."""
        self._blocked_until = max(self._blocked_until, time.monotonic() + seconds)

    async def unblocked(self) -> None:
        """Return when a request may be made."""
        # Another response may ask for a longer pause meanwhile.
        while (left := self._blocked_until - time.monotonic()) > 0:  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(left)


@dataclass
class ModelState:
    """State of a model at an endpoint."""

    provider: str
    """litellm's name of the provider; empty if it knows none."""
    endpoint: EndpointState
    is_usable: bool = False
    """True once its settings were found complete: the check takes a tenth of a request's computing."""
    rejected_params: set[str] = field(default_factory=set)
    rejected_modes: set[tuple[str, str]] = field(default_factory=set)
    """Output modes that the model rejects, each with the rejected schema; an empty text means any schema."""


async def request(model: Model, state: ModelState, context: RequestContext, send: Send[Response]) -> Response:
    """Return the response that `send` gets with the accepted parameters, after retries if necessary.

    Raises ModelError, and RunLimitExceededError when the run's budget or deadline is reached.
    """
    total = model.timeout * TOTAL_TIMEOUT_FACTOR
    retries = Retries(ModelError, model.attempts if context.retry else 1, BACKOFF, LONGEST_BACKOFF)
    call = _Call(model, state, context, send)
    async with state.endpoint.semaphore(context.concurrency):
        context.budget.require()
        try:
            async with time_limit(context.budget.left(), lambda: _over(model)):
                await state.endpoint.circuit_breaker.admit()
                started = time.monotonic()
                async with time_limit(total, lambda: _late(model, total, "all attempts together")):
                    response = await retries.run(call.attempt, _log_retry)
        except ModelError as error:
            raise without_secrets(error) from None
    return replace(response, seconds=round(time.monotonic() - started, 3))


class _Call(Generic[Response]):
    """The attempts of one request, without parameters that the model rejects."""

    def __init__(self, model: Model, state: ModelState, context: RequestContext, send: Send[Response]) -> None:
        self._model = model
        self._state = state
        self._context = context
        self._send: Send[Response] = send
        self._requests = 0

    async def attempt(self) -> Response:
        """Send the request, and at once again without each parameter that the model rejects."""
        model, endpoint, rejected = self._model, self._state.endpoint, self._state.rejected_params
        if self._requests:
            await endpoint.circuit_breaker.admit()
        while True:
            await endpoint.unblocked()
            self._context.budget.require()
            parameters = {name: value for name, value in model.parameters.items() if name not in rejected}
            self._requests += 1
            self._context.requests += 1
            try:
                async with time_limit(model.timeout, lambda: _late(model, model.timeout, "(timeout)")):
                    response = await self._send(parameters)
            except ModelError as error:
                endpoint.circuit_breaker.failed(error, first=self._requests == 1 and self._context.retry)
                name = refused_parameter(str(error), model) if error.kind == "parameter_refused" else None
                if name is not None and name in parameters:
                    rejected.add(name)
                    continue
                if error.kind == "rate_limited":
                    asked = error.retry_after
                    endpoint.block(min(2.0 ** (self._requests - 1) if asked is None else asked, LONGEST_WAIT))
                raise
            endpoint.circuit_breaker.answered()
            dropped = tuple(name for name in model.parameters if name in rejected)
            return replace(response, dropped_params=dropped, requests=self._requests)


def _late(model: Model, seconds: float, what: str) -> ModelTimeoutError:
    glue = " " if what.startswith("(") else ", "
    return ModelTimeoutError(f"no answer from {model.name} within {seconds:g} s{glue}{what}")


def _over(model: Model) -> RunLimitExceededError:
    return RunLimitExceededError(f"{model.name} was not waited for: the run's deadline was over")


def _log_retry(number: int, error: ModelError, seconds: float) -> None:
    logger.info("%s; asked again in %.1f s", error, seconds)


# --- requests that several callers share -----------------------------------------------------------------------------


MAX_TEXTS = 64
MAX_CHARACTERS = 100_000
"""Most characters in one request: a third of the providers' limits, even if each character is a token."""

BATCH_WINDOW = 0.005
"""Seconds that a text waits for others."""

_REJECTED = (400, 413, 422)
"""Statuses by which a provider rejects the content of a request: one of its texts, or their number."""

SendTexts = Callable[[list[str]], Awaitable[EmbeddingResponse]]


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

    async def embed(self, key: Hashable, text: str, send: SendTexts) -> EmbeddingResponse:
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

    def __init__(self, send: SendTexts, on_close: Callable[[], object]) -> None:
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


async def _sent(send: SendTexts, texts: list[str]) -> list[EmbeddingResponse | Exception]:
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
