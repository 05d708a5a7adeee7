"""The work pool of fepflow's deployments with its queue of requested runs, and whether it has a worker.

Prefect is imported where it is used: `fepflow serve`, which only names the pool, stays without it.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefect.client.orchestration import PrefectClient

POOL = "fepflow"
REQUESTED = "requested"
"""The queue, and the deployment, of runs that are requested over the network."""


async def ensure_pool(client: PrefectClient) -> None:
    """Create the pool, for processes, and its queue of requested runs, unless they are there."""
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
    from prefect.workers.process import ProcessWorker

    try:
        await client.read_work_pool(POOL)
    except ObjectNotFound:
        template = ProcessWorker.get_default_base_job_template()
        with contextlib.suppress(ObjectAlreadyExists):  # another process was faster
            await client.create_work_pool(WorkPoolCreate(name=POOL, type="process", base_job_template=template))
    try:
        await client.read_work_queue_by_name(REQUESTED, work_pool_name=POOL)
    except ObjectNotFound:
        # Each run is a process of its own: callers of the network start no more of them than there are cores. What is
        # scheduled is in another queue, and does not wait for them.
        limit = max(2, os.cpu_count() or 1)
        with contextlib.suppress(ObjectAlreadyExists):
            await client.create_work_queue(REQUESTED, concurrency_limit=limit, work_pool_name=POOL)


async def is_worked(client: PrefectClient) -> bool:
    """Return whether a worker of the pool is alive, as far as Prefect knows: it misses one a minute after its end."""
    from prefect.client.schemas.objects import WorkerStatus

    workers = await client.read_workers_for_work_pool(POOL)
    return any(worker.status == WorkerStatus.ONLINE for worker in workers)
