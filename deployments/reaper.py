"""The reaper: `python -m fepflow.deployments.reaper` gives runs whose process is gone a truthful end, until SIGTERM.

It also starts the runs that were requested over the network. A requested run is a row in the store until its flow run
is created, once: Prefect knows it by the run's id, so a reaper that was killed in between, or a second one, changes
nothing. While Prefect is away, the runs wait in the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from argparse import ArgumentParser
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from uuid import UUID

import click
import httpx
from prefect.client.orchestration import PrefectClient, get_client
from prefect.exceptions import ObjectNotFound, PrefectException, PrefectHTTPStatusError

from fepflow.deployments.http_server import metrics_port
from fepflow.deployments.schedule import delete_removed
from fepflow.errors import FepflowError, InfrastructureError
from fepflow.observability import logs
from fepflow.observability.metrics import DISPATCHED, OF_REAPER, REAPED, REAPER_ERRORS, REAPER_LOOKED
from fepflow.services.prefect_api import REQUESTED
from fepflow.settings import settings
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from fepflow.tasks.reaping import reap
from fepflow.text import brief, printable

_deployments: dict[str, UUID] = {}
"""Ids of deployments by their name, as far as Prefect was asked for them."""

EVERY_SECONDS = 20.0
"""Pause between looks for dead runs: with the 30 s of a lease, one is noticed within a minute."""
LAST_SECONDS = 3.0
DISPATCH_SECONDS = 0.2
"""Pause between looks for requested runs."""
LONGEST_PAUSE = 10.0
"""The same while Prefect, or the store, is away."""
REFUSED = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)
"""Statuses of Prefect's API that will be the same at the next try."""
Wake = Callable[[], Awaitable[object]]


async def keep(store: Store, stop: asyncio.Event, wake: Wake | None = None) -> None:
    """Reap and dispatch until `stop` is set. Raises errors after which neither can continue.

    `wake` is called after a dispatch if a worker in this process may have a place, so that it need not wait for its
    next poll.
    """
    dispatching = asyncio.create_task(_dispatch_repeatedly(store, wake))
    reaping = asyncio.create_task(_reap_repeatedly(store, stop))
    done, _ = await asyncio.wait({dispatching, reaping}, return_when=asyncio.FIRST_COMPLETED)
    dispatching.cancel()
    for task in done:
        task.result()


async def _reap_repeatedly(store: Store, stop: asyncio.Event) -> None:
    """Reap every 20 s, and once more at the end, because a stopped worker may have left runs."""
    stopping = asyncio.create_task(stop.wait())
    while not stop.is_set():
        began = time.monotonic()
        reaping = asyncio.create_task(_reap(store))
        await asyncio.wait({reaping, stopping}, return_when=asyncio.FIRST_COMPLETED)
        reaping.cancel()
        await asyncio.wait({stopping}, timeout=EVERY_SECONDS - (time.monotonic() - began))
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(_reap(store), LAST_SECONDS)


async def _reap(store: Store) -> None:
    try:
        for run_id in await reap(store):
            REAPED.inc()
            run = await asyncio.to_thread(store.runs.get, run_id)
            click.echo(f"run {run_id} is {run.status}. {run.error}")
    except FepflowError as error:
        REAPER_ERRORS.labels("reap").inc()
        click.echo(f"cannot look for dead runs, tries again: {error}")
    else:
        REAPER_LOOKED.set_to_current_time()
        await _delete_removed()


async def _delete_removed() -> None:
    """Delete deployments whose schedule was removed during a run. While Prefect is away, the next look does it."""
    try:
        async with asyncio.timeout(LONGEST_PAUSE), get_client() as client:
            await delete_removed(client)
    except (httpx.TransportError, OSError):  # TimeoutError is an OSError
        pass
    except (httpx.HTTPError, PrefectException) as error:
        REAPER_ERRORS.labels("delete").inc()
        click.echo(f"cannot delete deployments whose schedule was removed, tries again: {error}")


async def _dispatch_repeatedly(store: Store, wake: Wake | None) -> None:
    """Dispatch five times a second, until cancelled. An error is reported once, and the next try follows."""
    pause, last_message = DISPATCH_SECONDS, ""
    while True:
        try:
            if await dispatch(store) and wake is not None:
                await wake()
            pause, last_message = DISPATCH_SECONDS, ""
        except (FepflowError, httpx.HTTPError, PrefectException, OSError) as error:
            REAPER_ERRORS.labels("dispatch").inc()
            message = f"cannot start requested runs, tries again: {error or type(error).__name__}"
            if message != last_message:
                click.echo(message)
            pause, last_message = min(pause * 2, LONGEST_PAUSE), message
        await asyncio.sleep(pause)


async def dispatch(store: Store) -> bool:
    """Start requested runs that were not yet handed to Prefect, oldest first.

    Returns whether a worker may have a place for one of them. If not, it polls again when one of its runs ends.

    Raises InfrastructureError if the deployment is not registered, and the errors of Prefect's client.
    """
    waiting, runs = await asyncio.to_thread(next_runs, store)
    if runs:
        async with get_client() as client:
            deployment_id = await _deployment(client)
            for run in runs:
                await start(store, client, deployment_id, run)
    return bool(runs) and waiting < settings().most_requested_runs


def next_runs(store: Store) -> tuple[int, list[RunRecord]]:
    """Return the number of runs that wait in Prefect, and the runs to start now.

    The others wait in the store: two hundred runs that were late at the same moment locked the database of Prefect's
    server for minutes.
    """
    waiting = store.requests.count_unbegun()
    room = settings().most_waiting_runs - waiting
    return waiting, store.requests.undispatched(room) if room > 0 else []


async def start(store: Store, client: PrefectClient, deployment_id: UUID, run: RunRecord) -> None:
    """Create the flow run of a requested run. A run that Prefect refuses fails, and does not delay others."""
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
            _deployments.clear()  # it may have been registered anew
            raise
        click.echo(f"run {run.id} is refused by Prefect: {brief(printable(str(error)))}")
        await asyncio.to_thread(store.requests.end_unbegun, run.id, "failed", "Prefect refuses to start this run.")
        return
    await asyncio.to_thread(store.requests.mark_dispatched, run.id, str(flow_run.id))
    DISPATCHED.inc()


async def _deployment(client: PrefectClient) -> UUID:
    try:
        if REQUESTED not in _deployments:
            _deployments[REQUESTED] = (await client.read_deployment_by_name(f"evaluate/{REQUESTED}")).id
        return _deployments[REQUESTED]
    except ObjectNotFound:
        raise InfrastructureError(
            f"the deployment evaluate/{REQUESTED} is not registered: `python -m fepflow.deployments.register`"
        ) from None


def stop_on_signals() -> asyncio.Event:
    """Return an event that SIGTERM and Ctrl-C set, instead of ending the process."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def _main(store: Store) -> None:
    stop = stop_on_signals()
    async with metrics_port(settings(), store, OF_REAPER):
        await keep(store, stop)


def main() -> None:
    """Run the reaper until it is stopped; print errors as sentences."""
    ArgumentParser(prog="python -m fepflow.deployments.reaper", description=__doc__).parse_args()  # it takes none
    try:
        logs.set_up("reaper")
        with Store.open(settings().store_address) as store:
            asyncio.run(_main(store))
            logs.finish()
            os._exit(0)  # a thread may still wait for an API that is away
    except FepflowError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
