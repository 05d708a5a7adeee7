"""`prefect server start`, with leases that end after a crash: `python -m fepflow.deployments.prefect_server`."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from itertools import count
from threading import Thread
from uuid import UUID

from prefect.cli import app
from prefect.server.concurrency.lease_storage.filesystem import ConcurrencyLeaseStorage
from prefect.server.database.configurations import SQLITE_BEGIN_MODE, AioSqliteConfiguration
from prefect.server.events.storage import database
from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction

LEASE = timedelta(minutes=1)
FULL_COLLECTION = 60  # seconds; a full one stops the server for 0.1 s or more


async def renew_leases(storage: ConcurrencyLeaseStorage) -> None:
    """Renew the leases of shared limits once, so that each one ends if its holder is gone.

    Prefect looks for ended leases in an index. A server that is killed between writing a lease and its entry in the
    index would leave its places taken for good.
    """
    for file in storage.storage_path.glob("????????-*.json"):
        await storage.renew_lease(UUID(file.stem), LEASE)


def collect_garbage() -> None:
    """Collect cyclic garbage in this thread, forever, so that the event loop never does.

    Collecting a cursor of SQLite resets it, which waits for the thread that uses its connection. If the event loop
    collected, it could wait for a thread that itself waits for a database lock, and the holder of that lock can only
    go on in the event loop: the server stood still until the lock timed out, after 60 s.
    """
    gc.disable()
    for second in count(1):
        time.sleep(1.0)
        gc.collect(1 if second % FULL_COLLECTION else 2)
        if second == FULL_COLLECTION:
            gc.freeze()  # what was loaded stays, and need not be searched each time


def begin_immediately() -> None:
    """Have each transaction of the server on SQLite take the lock of writers when it begins.

    Prefect's transactions read, then write. If another one has written in between, SQLite refuses the write at once,
    however long it may wait: "database is locked". The server answers 503, and the client waits for seconds, then
    twice as long. A transaction within another one begins as before: it would wait for what waits for it.
    """
    begin = AioSqliteConfiguration.begin_transaction

    def begin_transaction(
        self: AioSqliteConfiguration, session: AsyncSession, with_for_update: bool = False
    ) -> AbstractAsyncContextManager[AsyncSessionTransaction]:
        is_outermost = SQLITE_BEGIN_MODE.get() is None
        return begin(self, session, with_for_update=with_for_update or is_outermost)

    AioSqliteConfiguration.begin_transaction = begin_transaction  # type: ignore[method-assign, assignment]


def write_events_in_one_form() -> None:
    """Have events written on SQLite as on PostgreSQL.

    Prefect's statement for SQLite has each value of each row as a parameter of its own, so that SQLAlchemy compiles it
    anew each time: a fifth of what the server computed with many short runs.
    """
    database._write_sqlite_events = database._write_postgres_events


if __name__ == "__main__":
    begin_immediately()
    write_events_in_one_form()
    Thread(target=collect_garbage, daemon=True).start()
    asyncio.run(renew_leases(ConcurrencyLeaseStorage()))
    sys.argv[1:1] = ["server", "start"]
    app()
