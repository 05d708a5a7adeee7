"""Cancelling a run on request: `fepflow cancel`, Cancel in Prefect's UI, SIGTERM from a worker.

Prefect does not kill a flow run that a process executes by itself, and a worker kills its processes without our store's
knowing. So each executor polls for itself, and whatever the request's source, the run is stopped once, from inside, and
says so.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any
from uuid import UUID

from prefect import get_client

from fepflow.asyncio_helpers import in_background
from fepflow.errors import RunInterruptedError
from fepflow.store.store import Store

STORE_SECONDS = 1.0
"""Interval of polling our own flag."""
PREFECT_SECONDS = 1.5
"""Interval of polling the flow run's state."""
PREFECT_TIMEOUT = 4.0
"""Seconds that one such poll may take."""

logger = logging.getLogger("fepflow.run")

StopRequest = Callable[[], Awaitable[bool]]


class _Stop:
    """Cancels a task once, whatever the number of requests: a second cancellation would interrupt its cleanup."""

    def __init__(self) -> None:
        self._body = asyncio.current_task()
        self.begun = False
        self.interrupted = False
        self.too_late = False

    def __call__(self, *, interrupted: bool = False) -> None:
        if not self.begun and not self.too_late and self._body is not None:
            self.begun = True
            self.interrupted = interrupted
            self._body.cancel()


@asynccontextmanager
async def stopped_on_request(
    store: Store, run_id: str, flow_run_id: str | None, own_flag: Callable[[], bool] = bool
) -> AsyncIterator[None]:
    """Cancel the body, as asyncio does, soon after a request to cancel the run.

    Where `own_flag` says that the body has raised the store's flag itself, for others, that is no request.

    While the store or Prefect's API is unavailable, polling goes on. Raises RunInterruptedError
    when the process got a SIGTERM that was no cancellation.
    """
    stop = _Stop()

    async def flagged() -> bool:
        return await asyncio.to_thread(store.runs.cancel_requested, run_id) and not own_flag()

    async def cancelling() -> bool:
        return flow_run_id is not None and await _is_cancelled(UUID(flow_run_id))

    async def on_sigterm() -> None:
        stop(interrupted=not (await _answer(flagged) or await _answer(cancelling)))

    async with AsyncExitStack() as watching:
        watching.enter_context(_sigterm(on_sigterm, stop))
        if await _answer(flagged):
            stop()
        await watching.enter_async_context(in_background(_watch(flagged, STORE_SECONDS, stop), "fepflow-cancelling"))
        if flow_run_id is not None:
            await watching.enter_async_context(
                in_background(_watch(cancelling, PREFECT_SECONDS, stop), "fepflow-cancelling")
            )
        try:
            yield
        except asyncio.CancelledError:
            if not stop.interrupted:
                raise
            message = f"The process was told to end (SIGTERM): `fepflow run --resume {run_id}` goes on."
            raise RunInterruptedError(message) from None
        finally:
            stop.too_late = True


async def _is_cancelled(flow_run_id: UUID) -> bool:
    async with asyncio.timeout(PREFECT_TIMEOUT), get_client() as client:
        state = (await client.read_flow_run(flow_run_id)).state
        return state is not None and (state.is_cancelling() or state.is_cancelled())


async def _answer(is_requested: StopRequest) -> bool:
    try:
        return await is_requested()
    except Exception as error:
        logger.debug("it is not known whether the run is to stop: %s", error)
        return False


async def _watch(is_requested: StopRequest, pause: float, stop: _Stop) -> None:
    await asyncio.sleep(pause)  # the flag has been looked at, and Prefect begins no run that is cancelling
    while not await _answer(is_requested):  # noqa: ASYNC110  # what is waited for is elsewhere
        await asyncio.sleep(pause)
    stop()


@contextmanager
def _sigterm(handler: Callable[[], Coroutine[Any, Any, None]], stop: _Stop) -> Iterator[None]:
    """Hear of SIGTERM between two steps of the loop.

    Prefect's own handler raises in the middle of whatever is at work, which may be what writes the results. Once the
    run is stopping, ours stays: a worker's SIGTERM must not break off how the run ends.
    """
    if threading.current_thread() is not threading.main_thread():  # only it hears signals
        yield
        return
    loop = asyncio.get_running_loop()
    before = signal.getsignal(signal.SIGTERM)
    heard: set[asyncio.Task[None]] = set()
    loop.add_signal_handler(signal.SIGTERM, lambda: heard.add(loop.create_task(handler())))
    try:
        yield
    finally:
        if not stop.begun:
            loop.remove_signal_handler(signal.SIGTERM)
            signal.signal(signal.SIGTERM, before)
