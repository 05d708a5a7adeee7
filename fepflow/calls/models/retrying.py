"""One request to a model under the policy of `fepflow.calls.policy`: limits, retries and the circuit breaker."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from fepflow.calls.models.errors import refused_parameter
from fepflow.calls.models.model import ChatResponse, EmbeddingResponse, Model, RequestContext
from fepflow.calls.policy import LONGEST_WAIT, CircuitBreaker, Retries, time_limit
from fepflow.errors import ModelError, ModelTimeoutError, RunLimitExceededError
from fepflow.security.redaction import without_secrets

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
