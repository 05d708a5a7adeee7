"""Progress of a run, as an artifact on its page in Prefect; of a run in shards, counted by the parent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from time import monotonic
from uuid import UUID

from prefect.artifacts import ProgressArtifact, aupdate_progress_artifact

from fepflow.errors import FepflowError
from fepflow.tasks.context import RunContext
from fepflow.tasks.flow_state import run_log
from fepflow.text import slug

FIRST_SECONDS = 3.0
"""Age of a run from which on its progress is shown. Nobody looks at that of a shorter one, and each artifact and its
update cost Prefect's server 50 ms. Of many short runs at once, each takes two or three seconds."""

SECONDS = 2.0
"""Shortest pause between two updates."""

OF_AGE = 50
"""And a fiftieth of the run's age: Prefect changes the artifact in place, but keeps an event of each update."""

OF_COUNTING = 20
"""And so many times what counting took, so that a large run is not held up by it."""

LAST_SECONDS = 1.0
"""Longest wait for the last update at the end of a run."""


@asynccontextmanager
async def progress_shown(context: RunContext) -> AsyncIterator[None]:
    """Keep the artifact up to date while the body runs. Errors are logged once, and never fail the body."""
    over = asyncio.Event()
    showing = asyncio.create_task(_show(context, over), name="fepflow-progress")
    try:
        yield
    finally:
        over.set()
        await asyncio.wait({showing}, timeout=LAST_SECONDS)
        showing.cancel()
        await asyncio.wait({showing})


def pause(age: float, counting: float) -> float:
    """Return the seconds to the next update of a run that is `age` seconds old and was counted in `counting` s."""
    return max(SECONDS, age / OF_AGE, counting * OF_COUNTING)


async def _show(context: RunContext, over: asyncio.Event) -> None:
    key = f"progress-{slug(context.run.title)}"
    artifact: UUID | None = None
    shown: tuple[float, str] | None = None
    failure_logged = last = False
    start = monotonic()
    with suppress(TimeoutError):
        async with asyncio.timeout(FIRST_SECONDS):
            await over.wait()
            return
    while not last:
        last = over.is_set()
        began = monotonic()
        try:
            progress = await asyncio.to_thread(progress_of, context, over=last)
            counted = monotonic()
            if progress != shown:
                artifact = await _put(artifact, key, *progress)
                shown = progress
        except Exception as error:
            counted = monotonic()
            if not failure_logged:
                run_log().warning("progress cannot be shown in Prefect: %s", error)
            failure_logged = True
        if not last:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause(counted - start, counted - began)):
                    await over.wait()


async def _put(artifact: UUID | None, key: str, percent: float, words: str) -> UUID:
    if artifact is not None:
        return await aupdate_progress_artifact(artifact, percent, words)
    return (await ProgressArtifact(key=key, progress=percent, description=words).acreate()).id


def progress_of(context: RunContext, *, over: bool = False) -> tuple[float, str]:
    """Return the stored share of the calls in percent, and the counts in words; 100 % once the run is over."""
    seen = context.store.results.progress(context.run.id)
    words = (
        f"{seen.outputs:,} of {context.run.calls:,} calls, "
        f"{seen.failed_outputs:,} without an answer; "
        f"checks: {seen.passed:,} passed, {seen.failed:,} failed, {seen.error:,} in error. "
        f"So far: `fepflow show {context.run.id[:8]}`"
    )
    return min(100 * seen.outputs / context.run.calls, 100 if over else 99), words


LOOK_SECONDS = 1.0
"""Shortest pause between two looks; counting a large run takes longer, and is done more seldom."""


@asynccontextmanager
async def progress_watched(context: RunContext) -> AsyncIterator[None]:
    """Count the results stored by all shards, for the progress of the run."""
    looking = asyncio.create_task(_look_repeatedly(context), name="fepflow-shards")
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.wait({looking})
    await _look(context)
    if context.target_client.budget.counts:
        await asyncio.to_thread(context.count_spending)


async def _look_repeatedly(context: RunContext) -> None:
    while True:
        began = monotonic()
        with suppress(FepflowError):  # the next time will do
            await _look(context)
        await asyncio.sleep(max(LOOK_SECONDS, OF_COUNTING * (monotonic() - began)))


async def _look(context: RunContext) -> None:
    seen = await asyncio.to_thread(context.store.results.progress, context.run.id)
    context.counts.clear()
    context.count(
        calls=seen.outputs,
        failed_calls=seen.failed_outputs,
        checks=seen.checks,
        passed=seen.passed,
        failed=seen.failed,
        errors=seen.error,
    )


async def stop_shards(context: RunContext) -> None:
    """Raise the flag that stops every executor of the run, unless another executor has resumed the run."""
    context.stopping_shards = True
    try:
        holder = (await asyncio.to_thread(context.store.runs.get, context.run.id)).lease_owner
        if holder == context.owner:
            await asyncio.to_thread(context.store.runs.request_cancel, context.run.id)
    except FepflowError as error:
        run_log().warning("the shards could not be stopped: %s", error)
