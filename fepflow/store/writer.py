"""Many callers' rows in few transactions."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Self

from fepflow.store.records import NewCheck, NewOutput
from fepflow.store.store import Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Request:
    outputs: Sequence[NewOutput]
    checks: Sequence[NewCheck]
    committed: asyncio.Future[None]

    @property
    def rows(self) -> int:
        return len(self.outputs) + len(self.checks)


class GroupWriter:
    """Gathers the rows of concurrent callers and commits them together; used as an async context manager.

    A commit costs the disk the same for one row as for a hundred. So rows wait for company: as long as the last commit
    took, at most `interval` seconds, and not at all once `max_rows` are there. Longer would be no favour: who waits for
    a commit has nothing else to do, and soon everybody waits.
    """

    def __init__(self, store: Store, run_id: str, interval: float = 0.1, max_rows: int = 5_000) -> None:
        self._store = store
        self._run_id = run_id
        self._interval = interval
        self._max_rows = max_rows
        self._pending: deque[_Request] = deque()
        self._pending_rows = 0
        self._arrived = asyncio.Event()
        self._full = asyncio.Event()
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._commit_groups(), name="fepflow-group-writer")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        self._arrived.set()
        self._full.set()
        assert self._task is not None
        try:
            await asyncio.shield(self._task)
        except asyncio.CancelledError:
            await self._task  # what was handed over is written even so
            raise

    async def write(self, outputs: Sequence[NewOutput], checks: Sequence[NewCheck]) -> None:
        """Hand over rows and wait until they are committed, all of them in one transaction.

        A caller that is cancelled while it waits has handed its rows over all the same. Raises InfrastructureError
        if the commit failed; then none of them is stored.
        """
        if self._task is None or self._closing:
            raise RuntimeError("a GroupWriter takes rows only inside its `async with`")
        request = _Request(outputs, checks, asyncio.get_running_loop().create_future())
        if not request.rows:
            return
        self._pending.append(request)
        self._pending_rows += request.rows
        self._arrived.set()
        if self._pending_rows >= self._max_rows:
            self._full.set()
        await request.committed

    async def _commit_groups(self) -> None:
        pause = 0.0
        while True:
            await self._arrived.wait()
            await self._gather(pause)
            group = self._take_group()
            if not group:
                return
            started = monotonic()
            await self._commit(group)
            pause = min(self._interval, monotonic() - started)

    async def _gather(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._full.wait()
        except TimeoutError:
            pass

    def _take_group(self) -> list[_Request]:
        group: list[_Request] = []
        rows = 0
        while self._pending and rows < self._max_rows:
            group.append(self._pending.popleft())
            rows += group[-1].rows
        self._pending_rows -= rows
        if not self._closing:
            if not self._pending:
                self._arrived.clear()
            if self._pending_rows < self._max_rows:
                self._full.clear()
        return group

    async def _commit(self, group: list[_Request]) -> None:
        outputs = [row for request in group for row in request.outputs]
        checks = [row for request in group for row in request.checks]
        failure: Exception | None = None
        try:
            await asyncio.to_thread(self._store.write, self._run_id, outputs, checks)
        except Exception as error:
            failure = error
            if all(request.committed.done() for request in group):
                logger.error("Nobody waits for %d rows that could not be stored: %s", len(outputs) + len(checks), error)
        for request in group:
            if request.committed.done():
                continue  # its caller was cancelled
            if failure is None:
                request.committed.set_result(None)
            else:
                request.committed.set_exception(failure)
