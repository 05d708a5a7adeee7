"""The work pool of fepflow's deployments with its queues, and whether it has a worker.

Prefect is imported where it is used: `fepflow serve`, which only names the pool, stays without it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from fepflow.errors import UserError
from fepflow.settings import settings, usual_runs

if TYPE_CHECKING:
    from prefect.client.orchestration import PrefectClient

POOL = "fepflow"
REQUESTED = "requested"
"""The queue, and the deployment, of runs that are requested over the network."""
SUITES = "suites"
"""The queue of `evaluate/suite`. What is scheduled is in another one, and waits for neither."""


async def ensure_pool(client: PrefectClient, kind: str | None = None, template: dict[str, Any] | None = None) -> None:
    """Create the pool and its queues, unless they are there.

    Args:
        client: Prefect's API.
        kind: The type of the pool, such as kubernetes; default: that of the existing pool, else process.
        template: The base job template of a pool of that type. An existing pool gets it, too.

    Raises:
        UserError: The pool exists and has another type.
    """
    from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
    from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
    from prefect.workers.process import ProcessWorker

    try:
        pool = await client.read_work_pool(POOL)
    except ObjectNotFound:
        created = WorkPoolCreate(
            name=POOL,
            type=kind or "process",
            base_job_template=template or ProcessWorker.get_default_base_job_template(),
        )
        with contextlib.suppress(ObjectAlreadyExists):  # another process was faster
            await client.create_work_pool(created)
        pool = await client.read_work_pool(POOL)
    if kind is not None and pool.type != kind:
        raise UserError(
            f"the work pool {POOL} already exists, and its type is {pool.type}, not {kind}: "
            f"`prefect work-pool delete {POOL}` removes it, with the runs that wait in it"
        )
    if template is not None and pool.base_job_template != template:
        await client.update_work_pool(POOL, WorkPoolUpdate(base_job_template=template))
    config = settings()
    await _ensure_queue(client, SUITES, config.suite_runs)
    await _ensure_queue(client, REQUESTED, config.requested_runs)


async def _ensure_queue(client: PrefectClient, name: str, wanted: int | None) -> None:
    """Create a queue, or give it its limit: what the setting says, else what it has, else the default.

    A queue's runs wait for a place in it without a change of their state. With the limit of a deployment, Prefect looks
    at each waiting run again every 30 s, and a place that comes free stays empty meanwhile.
    """
    from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound

    try:
        queue = await client.read_work_queue_by_name(name, work_pool_name=POOL)
    except ObjectNotFound:
        with contextlib.suppress(ObjectAlreadyExists):
            await client.create_work_queue(name, concurrency_limit=wanted or usual_runs(), work_pool_name=POOL)
        return
    limit = wanted or queue.concurrency_limit or usual_runs()
    if queue.concurrency_limit != limit:
        await client.update_work_queue(queue.id, concurrency_limit=limit)


async def is_worked(client: PrefectClient) -> bool:
    """Return whether a worker of the pool is alive, as far as Prefect knows: it misses one a minute after its end."""
    from prefect.client.schemas.objects import WorkerStatus
    from prefect.exceptions import ObjectNotFound

    try:
        workers = await client.read_workers_for_work_pool(POOL)
    except ObjectNotFound:  # the pool is not created yet
        return False
    return any(worker.status == WorkerStatus.ONLINE for worker in workers)
