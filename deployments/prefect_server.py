"""`prefect server start`, with leases that end after a crash: `python -m fepflow.deployments.prefect_server`."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from uuid import UUID

from prefect.cli import app
from prefect.server.concurrency.lease_storage.filesystem import ConcurrencyLeaseStorage

LEASE = timedelta(minutes=1)


async def renew_leases(storage: ConcurrencyLeaseStorage) -> None:
    """Renew the leases of shared limits once, so that each one ends if its holder is gone.

    Prefect looks for ended leases in an index. A server that is killed between writing a lease and its entry in the
    index would leave its places taken for good.
    """
    for file in storage.storage_path.glob("????????-*.json"):
        await storage.renew_lease(UUID(file.stem), LEASE)


if __name__ == "__main__":
    asyncio.run(renew_leases(ConcurrencyLeaseStorage()))
    sys.argv[1:1] = ["server", "start"]
    app()
