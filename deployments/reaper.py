"""The reaper: `python -m fepflow.deployments.reaper` gives runs whose process is gone a truthful end, until SIGTERM.

It also notices scheduled runs that were never planned, and has those started that were requested over the network.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time

import click
from prefect.client.orchestration import get_client

from fepflow.deployments.dispatcher import dispatch_repeatedly
from fepflow.deployments.missed import report_missed_runs
from fepflow.deployments.schedule import delete_removed
from fepflow.errors import FepflowError
from fepflow.settings import settings
from fepflow.store.store import Store
from fepflow.tasks.reaping import reap

EVERY_SECONDS = 20.0
"""From one look to the next: with the 30 s of a lease, a dead run is noticed within a minute."""
LAST_SECONDS = 3.0


async def reap_repeatedly(store: Store) -> None:
    """Look every 20 s, and once more at the end: a worker that was stopped may have left runs."""
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    while not ended.is_set():
        began = time.monotonic()
        reaping = asyncio.create_task(_reap(store))
        stopping = asyncio.create_task(ended.wait())
        await asyncio.wait({reaping, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if reaping.done():
            reaping.result()
        else:
            reaping.cancel()
        await asyncio.wait({stopping}, timeout=EVERY_SECONDS - (time.monotonic() - began))
        stopping.cancel()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(_reap(store), LAST_SECONDS)


async def _reap(store: Store) -> None:
    try:
        for run_id in await reap(store):
            click.echo(f"run {run_id} was interrupted, its process is gone; `fepflow run --resume {run_id}` goes on")
    except FepflowError as error:
        click.echo(f"cannot look for dead runs, tries again: {error}")
    try:
        for missed in await report_missed_runs():
            click.echo(f"warning: {missed}")
        async with get_client() as client:
            await delete_removed(client)
    except Exception as error:  # whatever it is: runs whose process is gone are still looked for
        click.echo(f"cannot look for missed runs and removed schedules, tries again: {type(error).__name__}: {error}")


async def keep(store: Store) -> None:
    """Reap and dispatch until SIGTERM or Ctrl-C; raises what neither of them can go on after."""
    working = [asyncio.create_task(reap_repeatedly(store)), asyncio.create_task(dispatch_repeatedly(store))]
    done, _ = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


def main() -> None:
    """Do it until it is stopped."""
    with Store.open(settings().store_address) as store:
        asyncio.run(keep(store))
        os._exit(0)  # a thread may still wait for an API that is away


if __name__ == "__main__":
    main()
