"""The response cache that runs share, in the store: many concurrent lookups and writes take few statements."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from fepflow.errors import InfrastructureError
from fepflow.protocol.content_hash import CachedResponse
from fepflow.protocol.model import utc_now
from fepflow.settings import settings
from fepflow.store.store import Store

logger = logging.getLogger("fepflow.run")


def delete_expired_responses(store: Store) -> None:
    """Delete responses that are too old to be reused. Raises InfrastructureError."""
    store.results.delete_cached_responses(before=utc_now() - _max_age())


def _max_age() -> timedelta:
    return timedelta(seconds=settings().cache_ttl)


@dataclass
class _Lookup:
    keys: set[str] = field(default_factory=set)
    responses: Mapping[str, CachedResponse] | None = None


class StoredResponseCache:
    """`ResponseCache` in the store; callers that arrive while the database is busy are served together, next."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._age = _max_age()
        self._lookup = _Lookup()
        self._new: dict[str, CachedResponse] = {}
        self._reading = asyncio.Lock()
        self._writing = asyncio.Lock()

    async def get(self, keys: Collection[str]) -> Mapping[str, CachedResponse]:
        """See ResponseCache. Raises InfrastructureError."""
        mine = self._lookup
        mine.keys.update(keys)
        async with self._reading:
            responses = mine.responses
            if responses is None:
                await asyncio.sleep(0)  # concurrent lookups join this one
                if self._lookup is mine:
                    self._lookup = _Lookup()
                responses = mine.responses = await asyncio.to_thread(
                    self._store.results.cached_responses, mine.keys, utc_now() - self._age
                )
        return {key: responses[key] for key in keys if key in responses}

    async def put(self, key: str, answer: CachedResponse) -> None:
        """See ResponseCache. A response that cannot be stored is logged, and still valid."""
        mine = self._new
        mine[key] = answer
        async with self._writing:
            if self._new is not mine:
                return  # another batch has taken it along
            await asyncio.sleep(0)
            self._new = {}
            try:
                await asyncio.to_thread(self._store.results.cache_responses, mine)
            except InfrastructureError as error:
                logger.warning("%d responses of models could not be cached: %s", len(mine), error)
