"""Batches of concurrent callers: their rows in few transactions, their cached responses of models in few statements."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Self

from fepflow.errors import InfrastructureError
from fepflow.protocol.content_hash import CachedResponse
from fepflow.protocol.model import utc_now
from fepflow.settings import settings
from fepflow.store.records import NewCheckResult, NewOutput
from fepflow.store.store import Store

logger = logging.getLogger(__name__)
run_logger = logging.getLogger("fepflow.run")

Rows = tuple[Sequence[NewOutput], Sequence[NewCheckResult]]


class BatchWriter:
    """Gathers the rows of concurrent callers and commits them together; used as an async context manager.

    A commit costs the disk the same for one row as for a hundred. So rows wait for others: `interval` seconds, but not
    once a caller waits for them, nor once `max_rows` are there; and as long as another commit is under way. What was
    handed over is written before the context ends, even if its callers are cancelled.
    """

    def __init__(
        self, store: Store, run_id: str, interval: float = 0.1, max_rows: int = 5_000, *, are_calls: bool = True
    ) -> None:
        self._store = store
        self._run_id = run_id
        self._are_calls = are_calls
        self._write_seconds: list[float] = []
        """Durations of the commits that no commit has counted yet, in seconds."""
        self._interval = interval
        self._max_rows = max_rows
        self._pending: deque[Rows] = deque()
        self._pending_rows = 0
        self._added = 0
        self._settled = 0
        self._failure: Exception | None = None
        self._arrived = asyncio.Event()
        self._due = asyncio.Event()
        self._progress = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._commit_groups(), name="fepflow-group-writer")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._arrived.set()
        self._due.set()
        assert self._task is not None
        try:
            await asyncio.shield(self._task)
        except asyncio.CancelledError:
            await self._task  # what was handed over is written even so
            raise

    def add(self, outputs: Sequence[NewOutput] = (), checks: Sequence[NewCheckResult] = ()) -> None:
        """Hand over rows, to be committed in one transaction.

        Raises the InfrastructureError of an earlier commit that failed: further rows could not be stored either.
        """
        if self._task is None or self._closing:
            raise RuntimeError("a BatchWriter takes rows only inside its `async with`")
        self._raise_failure()
        self._pending.append((outputs, checks))
        self._added += 1
        self._pending_rows += len(outputs) + len(checks)
        self._arrived.set()
        if self._pending_rows >= self._max_rows:
            self._due.set()

    async def committed(self) -> None:
        """Wait until all that was handed over so far is committed.

        Raises InfrastructureError if a commit failed; then none of its rows is stored.
        """
        expected = self._added
        if self._pending:
            self._due.set()
        while self._settled < expected and self._failure is None:
            await self._progress.wait()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _commit_groups(self) -> None:
        while True:
            await self._arrived.wait()
            await self._gather()
            group = self._take_group()
            if not group:
                return
            await self._commit(group)

    async def _gather(self) -> None:
        try:
            async with asyncio.timeout(self._interval):
                await self._due.wait()
        except TimeoutError:
            pass

    def _take_group(self) -> list[Rows]:
        group: list[Rows] = []
        rows = 0
        while self._pending and rows < self._max_rows:
            group.append(self._pending.popleft())
            rows += sum(map(len, group[-1]))
        self._pending_rows -= rows
        if not self._closing:
            if not self._pending:
                self._arrived.clear()
            if self._pending_rows < self._max_rows:
                self._due.clear()
        return group

    async def _commit(self, group: list[Rows]) -> None:
        outputs = [row for rows, _ in group for row in rows]
        checks = [row for _, rows in group for row in rows]
        write = partial(
            self._store.results.write,
            self._run_id,
            outputs,
            checks,
            are_calls=self._are_calls,
            write_seconds=self._write_seconds,
        )
        began = time.monotonic()
        try:
            await asyncio.to_thread(write)
            self._write_seconds = [time.monotonic() - began]
        except Exception as error:
            logger.error("%d rows could not be stored: %s", len(outputs) + len(checks), error)
            self._failure = self._failure or error
        self._settled += len(group)
        self._progress.set()  # wakes the callers that wait now
        self._progress.clear()


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
                run_logger.warning("%d responses of models could not be cached: %s", len(mine), error)
