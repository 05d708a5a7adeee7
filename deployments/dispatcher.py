"""The dispatcher: `python -m deployments.dispatcher` starts requested runs in Prefect, until SIGTERM.

A run that is requested over the network is a row in the store, and whoever asked has his answer. Here its flow run is
created, once: Prefect knows it by the run's id, so a dispatcher that was killed in between, or a second one, changes
nothing. While Prefect is away the runs wait in the store.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from uuid import UUID

import click
import httpx
from prefect.client.orchestration import PrefectClient, get_client
from prefect.exceptions import ObjectNotFound, PrefectException

from deployments.pool import REQUESTED
from fepflow.errors import FepflowError, InfrastructureError
from fepflow.settings import settings
from fepflow.store.records import RunRecord
from fepflow.store.store import Store

EVERY_SECONDS = 0.5
"""From one look at the store to the next."""
LONGEST_PAUSE = 10.0
"""The same while Prefect, or the store, is away."""
MAX_RUNS = 50
"""Runs that are dispatched in one go."""
AT_ONCE = 5


async def dispatch_repeatedly(store: Store) -> None:
    """Look twice a second until SIGTERM or Ctrl-C; what goes wrong is said once, and tried again."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    pause, said = EVERY_SECONDS, ""
    while not ended.is_set():
        try:
            await dispatch(store)
            pause, said = EVERY_SECONDS, ""
        except (FepflowError, httpx.HTTPError, PrefectException, OSError) as error:
            message = f"cannot start requested runs, tries again: {error or type(error).__name__}"
            if message != said:
                click.echo(message)
            pause, said = min(pause * 2, LONGEST_PAUSE), message
        try:
            await asyncio.wait_for(ended.wait(), pause)
        except TimeoutError:
            continue


async def dispatch(store: Store) -> int:
    """Start the requested runs that Prefect has not been told of, the oldest first; how many.

    Raises InfrastructureError where the deployment is not registered, and what Prefect's client does.
    """
    runs = await asyncio.to_thread(store.undispatched_runs, MAX_RUNS)
    if not runs:
        return 0
    async with get_client() as client:
        deployment_id = await _deployment(client)
        for start in range(0, len(runs), AT_ONCE):
            await _start(store, client, deployment_id, runs[start : start + AT_ONCE])
    return len(runs)


async def _start(store: Store, client: PrefectClient, deployment_id: UUID, runs: Sequence[RunRecord]) -> None:
    async with asyncio.TaskGroup() as group:
        for run in runs:
            group.create_task(_start_one(store, client, deployment_id, run))


async def _start_one(store: Store, client: PrefectClient, deployment_id: UUID, run: RunRecord) -> None:
    flow_run = await client.create_flow_run_from_deployment(
        deployment_id,
        name=run.name,
        parameters={"suite": "", "run_id": run.id},
        tags=run.tags,
        idempotency_key=run.id,
    )
    await asyncio.to_thread(store.mark_dispatched, run.id, str(flow_run.id))


async def _deployment(client: PrefectClient) -> UUID:
    try:
        return (await client.read_deployment_by_name(f"evaluate/{REQUESTED}")).id
    except ObjectNotFound:
        raise InfrastructureError(
            f"the deployment evaluate/{REQUESTED} is not registered: `python -m deployments.register`"
        ) from None


def main() -> None:
    """Dispatch until it is stopped."""
    with Store.open(settings().store_address) as store:
        asyncio.run(dispatch_repeatedly(store))
        os._exit(0)  # a thread may still wait for an API that is away


if __name__ == "__main__":
    main()
