"""Clients of models, with a cache in memory and without one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import replace

import pytest

from fepflow.calls.models.client import ModelClient, ModelRequests
from fepflow.calls.models.model import RequestContext
from fepflow.protocol.content_hash import CachedResponse


class InMemory:
    """A ResponseCache in a dict; knows how often it was asked."""

    def __init__(self) -> None:
        self.kept: dict[str, CachedResponse] = {}
        self.lookups = 0

    async def get(self, keys: Collection[str]) -> Mapping[str, CachedResponse]:
        self.lookups += 1
        return {key: self.kept[key] for key in keys if key in self.kept}

    async def put(self, key: str, response: CachedResponse) -> None:
        self.kept[key] = response


@pytest.fixture
def memory() -> InMemory:
    return InMemory()


@pytest.fixture
async def requests() -> AsyncIterator[ModelRequests]:
    """As in an evaluation: nothing is cached."""
    async with ModelClient() as client:
        yield ModelRequests(client, RequestContext())


@pytest.fixture
async def caching(memory: InMemory) -> AsyncIterator[ModelRequests]:
    """As in a run: responses are cached, in `memory`."""
    async with ModelClient(memory) as client:
        yield ModelRequests(client, RequestContext())


def of_repeat(requests: ModelRequests, repeat: int) -> ModelRequests:
    """Requests about another output of the target."""
    return replace(requests, context=RequestContext(repeat=repeat))
