"""Requested runs are started in Prefect; the reaper's process does it.

A run that is requested over the network is a row in the store, and whoever asked has his answer. Here its flow run is
created, once: Prefect knows it by the run's id, so a dispatcher that was killed in between, or a second one, changes
nothing. While Prefect is away the runs wait in the store.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from uuid import UUID

import click
import httpx
from prefect.client.orchestration import PrefectClient, get_client
from prefect.exceptions import ObjectNotFound, PrefectException, PrefectHTTPStatusError

from fepflow.deployments.pool import REQUESTED
from fepflow.errors import FepflowError, InfrastructureError
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.text import brief, printable

EVERY_SECONDS = 0.5
"""From one look at the store to the next."""
LONGEST_PAUSE = 10.0
"""The same while Prefect, or the store, is away."""
REFUSED = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
"""Statuses of Prefect's API that will be the same at the next try."""
MAX_WAITING = 4
"""Runs that Prefect has been told of and that have not begun. All others wait in the store: two hundred that were late
at the same moment locked the database of Prefect's server for minutes."""


async def dispatch_repeatedly(store: Store) -> None:
    """Look twice a second, for good; what goes wrong is said once, and tried again."""
    pause, said = EVERY_SECONDS, ""
    while True:
        try:
            await dispatch(store)
            pause, said = EVERY_SECONDS, ""
        except (FepflowError, httpx.HTTPError, PrefectException, OSError) as error:
            message = f"cannot start requested runs, tries again: {error or type(error).__name__}"
            if message != said:
                click.echo(message)
            pause, said = min(pause * 2, LONGEST_PAUSE), message
        await asyncio.sleep(pause)


async def dispatch(store: Store) -> int:
    """Start requested runs that Prefect has not been told of, the oldest first; how many.

    Raises InfrastructureError where the deployment is not registered, and what Prefect's client does.
    """
    runs = await asyncio.to_thread(next_runs, store)
    if not runs:
        return 0
    async with get_client() as client:
        deployment_id = await _deployment(client)
        for run in runs:
            await _start(store, client, deployment_id, run)
    return len(runs)


def next_runs(store: Store) -> list[RunRecord]:
    """The runs that are to be started now."""
    room = MAX_WAITING - len(store.requests.unbegun(MAX_WAITING))
    return store.requests.undispatched(room) if room > 0 else []


async def _start(store: Store, client: PrefectClient, deployment_id: UUID, run: RunRecord) -> None:
    """Start one; a run that Prefect refuses has failed, and holds no other up."""
    try:
        flow_run = await client.create_flow_run_from_deployment(
            deployment_id,
            name=run.name,
            parameters={"suite": "", "run_id": run.id},
            tags=run.tags,
            idempotency_key=run.id,
        )
    except PrefectHTTPStatusError as error:
        if error.response.status_code not in REFUSED:
            raise
        click.echo(f"run {run.id} is refused by Prefect: {brief(printable(str(error)))}")
        await asyncio.to_thread(store.requests.end_unbegun, run.id, "failed", "Prefect refuses to start this run.")
        return
    await asyncio.to_thread(store.requests.mark_dispatched, run.id, str(flow_run.id))


async def _deployment(client: PrefectClient) -> UUID:
    try:
        return (await client.read_deployment_by_name(f"evaluate/{REQUESTED}")).id
    except ObjectNotFound:
        raise InfrastructureError(
            f"the deployment evaluate/{REQUESTED} is not registered: `python -m fepflow.deployments.register`"
        ) from None
