"""The work pool of fepflow's deployments, and whether it has a worker."""

from __future__ import annotations

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import WorkerStatus
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound
from prefect.workers.process import ProcessWorker

POOL = "fepflow"


async def ensure_pool(client: PrefectClient) -> None:
    """Create the pool, for processes, unless it is there."""
    try:
        await client.read_work_pool(POOL)
    except ObjectNotFound:
        template = ProcessWorker.get_default_base_job_template()
        try:
            await client.create_work_pool(WorkPoolCreate(name=POOL, type="process", base_job_template=template))
        except ObjectAlreadyExists:  # another process was faster
            return


async def is_worked(client: PrefectClient) -> bool:
    """Whether a worker of the pool is alive, as far as Prefect knows: it misses one about a minute after its end."""
    workers = await client.read_workers_for_work_pool(POOL)
    return any(worker.status == WorkerStatus.ONLINE for worker in workers)
