"""What a piece of work takes: the longest stall of the event loop, memory, time."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import psutil

TICK = 0.05
"""Seconds between two looks at the loop; each look takes a millisecond where there are many threads."""

MEMORY_TICK = 0.01
MAX_STALL = 0.25
"""Seconds that the event loop may be held up in a test."""


@dataclass
class Taken:
    """Seconds of the longest stall and of the whole, and megabytes at the most beyond those at the beginning.

    Of both times, without that in which other processes had the processor. `computed` are the seconds in which threads
    of this process had it.
    """

    stall: float = 0.0
    seconds: float = 0.0
    computed: float = 0.0
    megabytes: float = 0.0

    def refuse_stall(self, most: float = MAX_STALL) -> None:
        """Fail in the words after which pytest runs a test once more: a slow disk's stall does not come each time."""
        assert self.stall < most, f"the event loop was held up for {self.stall:.2f} s: {self}"


@asynccontextmanager
async def watched(*, memory: bool = False) -> AsyncIterator[Taken]:
    """Watch what is done inside."""
    taken = Taken()
    stop = threading.Event()
    sampler = threading.Thread(target=_sample_memory, args=(taken, stop), daemon=True)
    if memory:
        gc.collect()
        gc.freeze()  # what is left is not looked through once more by the next one
        sampler.start()
    beat = asyncio.create_task(_beat(taken))
    await asyncio.sleep(0)
    started, computed, waited = time.monotonic(), time.process_time(), _waited_for_processor()
    try:
        yield taken
        await asyncio.sleep(0)  # a stall that has just been
    finally:
        taken.seconds = time.monotonic() - started - _longest(waited, _waited_for_processor())
        taken.computed = time.process_time() - computed
        beat.cancel()
        with suppress(asyncio.CancelledError):
            await beat
        stop.set()
        if memory:
            sampler.join()


async def _beat(taken: Taken) -> None:
    last, waited = time.monotonic(), _waited_for_processor()
    try:
        while True:
            await asyncio.sleep(TICK)
            now, waited_now = time.monotonic(), _waited_for_processor()
            taken.stall = max(taken.stall, now - last - TICK - _longest(waited, waited_now))
            # Not `now`: while a thread holds the interpreter, reading takes long, and that is the watch's own doing.
            last, waited = time.monotonic(), waited_now
    except asyncio.CancelledError:
        waited_now = _waited_for_processor()
        taken.stall = max(taken.stall, time.monotonic() - last - TICK - _longest(waited, waited_now))
        raise


def _waited_for_processor() -> dict[str, int]:
    """Nanoseconds in which each thread of this process, and each child, could have run and was not let.

    Starting a child waits until it executes its program.
    """
    found = {}
    for thread in os.listdir("/proc/self/task"):
        with suppress(OSError):  # it has ended
            task = f"/proc/self/task/{thread}"
            children = {child: f"/proc/{child}" for child in _words(f"{task}/children")}
            for name, folder in {thread: task, **children}.items():
                found[name] = int(_words(f"{folder}/schedstat")[1])
    return found


def _words(file: str) -> list[str]:
    """Read without pathlib, which takes three times as long: this is done many times a second."""
    with open(file, "rb", buffering=0) as opened:
        return opened.read().decode().split()


def _longest(before: dict[str, int], after: dict[str, int]) -> float:
    """Seconds that the one thread waited which waited longest: the others may have waited for it."""
    return max((waited - before.get(thread, 0) for thread, waited in after.items()), default=0) / 1e9


def _sample_memory(taken: Taken, stop: threading.Event) -> None:
    process = psutil.Process()
    before = process.memory_info().rss
    while not stop.wait(MEMORY_TICK):
        taken.megabytes = max(taken.megabytes, (process.memory_info().rss - before) / 1e6)
