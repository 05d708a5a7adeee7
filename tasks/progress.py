"""How far a run is, as a progress artifact on its page in Prefect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from uuid import UUID

from prefect.artifacts import ProgressArtifact, aupdate_progress_artifact

from tasks.events import slug
from tasks.log import run_log
from tasks.runtime import Runtime

SECONDS = 2.0
"""Between two updates, at least. Prefect changes the artifact in place: a long run leaves one row, as a short one."""

SHARE = 20
"""What counting takes, at most, as a part of the time: a large run is counted less often."""

LAST_SECONDS = 1.0
"""How long the end of a run waits for its last update."""


@asynccontextmanager
async def progress_shown(runtime: Runtime) -> AsyncIterator[None]:
    """Keep the artifact up to date while the body runs. Never fails it: what goes wrong is logged, once."""
    over = asyncio.Event()
    showing = asyncio.create_task(_show(runtime, over), name="fepflow-progress")
    try:
        yield
    finally:
        over.set()
        await asyncio.wait({showing}, timeout=LAST_SECONDS)
        showing.cancel()
        await asyncio.wait({showing})


async def _show(runtime: Runtime, over: asyncio.Event) -> None:
    artifact: UUID | None = None
    told = last = False
    while not last:
        last = over.is_set()
        pause = SECONDS
        try:
            began = monotonic()
            percent, words = await asyncio.to_thread(progress_of, runtime, over=last)
            pause = max(SECONDS, SHARE * (monotonic() - began))
            artifact = await _put(artifact, f"progress-{slug(runtime.run.name)}", percent, words)
        except Exception as error:
            if not told:
                run_log().warning("progress cannot be shown in Prefect: %s", error)
            told = True
        if not last:
            await _wait(over, pause)


async def _put(artifact: UUID | None, key: str, percent: float, words: str) -> UUID:
    if artifact is not None:
        return await aupdate_progress_artifact(artifact, percent, words)
    return (await ProgressArtifact(key=key, progress=percent, description=words).acreate()).id


async def _wait(over: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await over.wait()
    except TimeoutError:
        pass


def progress_of(runtime: Runtime, *, over: bool = False) -> tuple[float, str]:
    """The part of the calls that is in the store, in percent, and the counts in words; 100 % only once it is over."""
    seen = runtime.store.progress(runtime.run.id)
    words = (
        f"Run {runtime.run.id[:8]}: {seen.outputs:,} of {runtime.calls:,} calls, "
        f"{seen.failed_outputs:,} without an answer; "
        f"checks: {seen.passed:,} passed, {seen.failed:,} failed, {seen.error:,} in error."
    )
    return min(100 * seen.outputs / runtime.calls, 100 if over else 99), words
