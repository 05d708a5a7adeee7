"""By which client, and within which limits, a check makes its requests to models."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from fepflow.models.client import ModelClient
from fepflow.models.request_context import RequestContext


@dataclass(frozen=True)
class ModelRequests:
    """What a check needs to make requests to models."""

    client: ModelClient
    context: RequestContext


# Not an argument: between a user's check and a check of ours that it calls, or an evaluation, stands the user's code,
# whose signatures are public and know nothing of clients.
_of_the_check_around: ContextVar[ModelRequests | None] = ContextVar("fepflow_model_requests", default=None)


@contextmanager
def offered_to_nested_calls(requests: ModelRequests | None) -> Iterator[None]:
    """For the call of a user's check: `nested_or_own` gives these requests inside of it."""
    before = _of_the_check_around.set(requests)
    try:
        yield
    finally:
        _of_the_check_around.reset(before)


@asynccontextmanager
async def nested_or_own() -> AsyncIterator[ModelRequests]:
    """Those of the user's check in which this is called; else by a client of its own, without a cache and limits."""
    around = _of_the_check_around.get()
    if around is not None and not around.client.closed:
        yield around
        return
    async with ModelClient() as client:
        yield ModelRequests(client, RequestContext())
