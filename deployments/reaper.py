"""The reaper: `python -m deployments.reaper` gives runs whose process is gone a truthful end, until SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable

import click

from fepflow.settings import settings
from fepflow.store.store import Store

EVERY_SECONDS = 20.0
LAST_SECONDS = 3.0

Work = Callable[[], Awaitable[list[str]]]


async def reap(store: Store) -> None:
    """Look every 20 s, and once more at the end. The store does not wait for Prefect, whose API may be away."""
    from tasks.crash_interrupted import crash_interrupted

    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)

    async def interrupt() -> list[str]:
        return await asyncio.to_thread(store.reap)

    async def crash() -> list[str]:
        return await crash_interrupted(store)

    loops = [
        asyncio.create_task(_forever(interrupt, "interrupted in the store")),
        asyncio.create_task(_forever(crash, "crashed in Prefect")),
    ]
    await ended.wait()
    for loop in loops:
        loop.cancel()
    await _once(interrupt, "interrupted in the store")
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(_once(crash, "crashed in Prefect"), LAST_SECONDS)


async def _forever(work: Work, becomes: str) -> None:
    while True:
        await _once(work, becomes)
        await asyncio.sleep(EVERY_SECONDS)


async def _once(work: Work, becomes: str) -> None:
    try:
        for run_id in await work():
            click.echo(f"run {run_id} is {becomes}: its process is gone; `fepflow run --resume {run_id}` goes on")
    except Exception as error:  # the store or Prefect's API is away; it is asked again
        click.echo(f"could not look for dead runs ({type(error).__name__}: {error}); tries again")


def main() -> None:
    """Reap until somebody ends it."""
    with Store.open(settings().store_address) as store:
        asyncio.run(reap(store))
        os._exit(0)  # a thread may still wait for an API that is away


if __name__ == "__main__":
    main()
