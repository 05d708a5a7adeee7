"""One request to a model: when it may be made, and how often it is retried."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from fepflow.errors import ModelError, ModelTimeoutError, RunLimitExceededError
from fepflow.models.endpoint_state import ModelState
from fepflow.models.errors import refused_parameter
from fepflow.models.model import ChatResponse, EmbeddingResponse, Model
from fepflow.models.request_context import RequestContext
from fepflow.security.redaction import without_secrets

if TYPE_CHECKING:
    from tenacity import RetryCallState

Response = TypeVar("Response", ChatResponse, EmbeddingResponse)

Send = Callable[[dict[str, Any]], Awaitable[Response]]
"""Makes one request, with these parameters."""

MAX_RETRY_AFTER = 60.0
"""Seconds: no Retry-After holds requests back for longer."""

TOTAL_TIMEOUT_FACTOR = 5
"""All attempts and the waits between them may take so many times the time-out of one request."""

logger = logging.getLogger("fepflow.models")


async def request(model: Model, state: ModelState, context: RequestContext, send: Send[Response]) -> Response:
    """The response to what `send` sends with the parameters that it is given.

    Raises ModelError, and RunLimitExceededError when the run's budget or deadline is reached.
    """
    async with state.endpoint.semaphore(context.concurrency):
        context.budget.require()
        left = context.budget.left()
        try:
            async with asyncio.timeout(None if left == math.inf else left) as deadline:
                await state.endpoint.circuit_breaker.admit()
                return await _within_total_timeout(model, state, context, send)
        except ModelError as error:
            raise without_secrets(error) from None
        except TimeoutError:
            if not deadline.expired():
                raise
            raise RunLimitExceededError(f"{model.name} was not waited for: the run's deadline was over") from None


async def _within_total_timeout(
    model: Model, state: ModelState, context: RequestContext, send: Send[Response]
) -> Response:
    limit, started = model.timeout * TOTAL_TIMEOUT_FACTOR, time.monotonic()
    try:
        async with asyncio.timeout(limit) as deadline:
            response = await _with_retries(model, state, context, send)
            return replace(response, seconds=round(time.monotonic() - started, 3))
    except TimeoutError:
        if not deadline.expired():
            raise
        raise ModelTimeoutError(f"no answer from {model.name} within {limit:g} s, all attempts together") from None


async def _with_retries(model: Model, state: ModelState, context: RequestContext, send: Send[Response]) -> Response:
    # Of the extra `run`: checks that ask a function of the user's own do without.
    from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random_exponential

    # Full jitter: after the n-th failure something between 0 and 0.5 s * 2^(n - 1), at most 20 s.
    backoff = wait_random_exponential(multiplier=0.5, max=20)
    endpoint, rejected = state.endpoint, state.rejected_params
    requests = 0

    async def attempt() -> Response:
        nonlocal requests
        if requests:
            await endpoint.circuit_breaker.admit()
        while True:
            await endpoint.unblocked()
            context.budget.require()
            parameters = {name: value for name, value in model.parameters.items() if name not in rejected}
            requests += 1
            context.requests += 1
            try:
                response = await _within_timeout(model, send(parameters))
            except ModelError as error:
                endpoint.circuit_breaker.failed(error, first=requests == 1 and context.retry)
                name = refused_parameter(str(error), model) if error.kind == "parameter_refused" else None
                if name is not None and name in parameters:
                    rejected.add(name)
                    continue
                if error.kind == "rate_limited":
                    endpoint.block(_seconds(error, requests))
                raise
            endpoint.circuit_breaker.answered()
            dropped = tuple(name for name in model.parameters if name in rejected)
            return replace(response, dropped_params=dropped, requests=requests)

    def wait(state: RetryCallState) -> float:
        error = _cause(state)
        return backoff(state) if error.retry_after is None else _seconds(error, state.attempt_number)

    def note(state: RetryCallState) -> None:
        logger.info("%s; asked again in %.1f s", _cause(state), state.upcoming_sleep)

    retrying = AsyncRetrying(
        stop=stop_after_attempt(model.attempts if context.retry else 1),
        wait=wait,
        retry=retry_if_exception(lambda error: isinstance(error, ModelError) and error.retryable),
        before_sleep=note,
        reraise=True,
    )
    return await retrying(attempt)


async def _within_timeout(model: Model, response: Awaitable[Response]) -> Response:
    try:
        async with asyncio.timeout(model.timeout) as deadline:
            return await response
    except TimeoutError:
        if not deadline.expired():
            raise
        raise ModelTimeoutError(f"no answer from {model.name} within {model.timeout:g} s (timeout)") from None


def _seconds(error: ModelError, attempt: int) -> float:
    return min(2.0 ** (attempt - 1) if error.retry_after is None else error.retry_after, MAX_RETRY_AFTER)


def _cause(state: RetryCallState) -> ModelError:
    error = state.outcome.exception() if state.outcome else None
    assert isinstance(error, ModelError)  # nothing else is retried
    return error
