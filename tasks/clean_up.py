"""The steps of maintenance: delete old runs from the store, and their flow runs from Prefect."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from prefect import get_client, task
from prefect.cache_policies import NO_CACHE
from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    DeploymentFilter,
    DeploymentFilterTags,
    FlowRunFilter,
    FlowRunFilterEndTime,
    FlowRunFilterId,
)
from prefect.client.schemas.objects import FlowRun
from prefect.exceptions import ObjectNotFound

from fepflow.store.database import chunks
from fepflow.store.store import Store
from fepflow.tasks.flow_state import run_log
from fepflow.tasks.prune import Pruned, prune

AT_ONCE = 50
"""Flow runs that are read and deleted together."""

DEPLOYED_BY_US = DeploymentFilter(tags=DeploymentFilterTags(all_=["fepflow"]))


@task(name="prune the store", task_run_name="prune the store", cache_policy=NO_CACHE, persist_result=False)
async def prune_store_task(store: Store, keep: float, keep_last: int, archive: Path | None) -> tuple[Pruned, list[str]]:
    """Delete old runs, see `fepflow.tasks.prune.prune`. Also returns the ids of their flow runs."""
    flow_runs: list[str] = []
    pruned = await asyncio.to_thread(prune, store, keep, keep_last, flow_runs=flow_runs, archive=archive)
    run_log().info("%s", pruned)
    return pruned, flow_runs


@task(name="prune Prefect", task_run_name="prune Prefect", cache_policy=NO_CACHE, persist_result=False)
async def prune_prefect_task(keep: float, flow_run_ids: Sequence[str]) -> int:
    """Delete the flow runs with these ids, and all of our deployments that ended more than `keep` seconds ago, with
    their task runs, logs and artifacts. Returns their number."""
    before = datetime.now(UTC) - timedelta(seconds=keep)
    old = FlowRunFilter(end_time=FlowRunFilterEndTime(before_=before))
    count = 0
    async with get_client() as client:
        for chunk in chunks(flow_run_ids, AT_ONCE):
            chosen = FlowRunFilter(id=FlowRunFilterId(any_=list(map(UUID, chunk))))
            count += await _delete(client, await client.read_flow_runs(flow_run_filter=chosen, limit=AT_ONCE))
        while page := await client.read_flow_runs(flow_run_filter=old, deployment_filter=DEPLOYED_BY_US, limit=AT_ONCE):
            count += await _delete(client, page)
    run_log().info("Deleted %d flow runs of Prefect", count)
    return count


async def _delete(client: PrefectClient, flow_runs: Sequence[FlowRun]) -> int:
    if not flow_runs:
        return 0
    of_these = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run.id for flow_run in flow_runs]))
    while artifacts := await client.read_artifacts(artifact_filter=of_these):  # no more than a page at a time
        await _require_gone(client.delete_artifact(artifact.id) for artifact in artifacts)
    await _require_gone(client.delete_flow_run(flow_run.id) for flow_run in flow_runs)
    return len(flow_runs)


async def _require_gone(deletions: Iterable[Awaitable[None]]) -> None:
    for error in await asyncio.gather(*deletions, return_exceptions=True):
        if isinstance(error, BaseException) and not isinstance(error, ObjectNotFound):
            raise error
