"""Python's own settings while a run lasts."""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Iterator

LOADING_ALLOCATIONS = 1_000_000
RUN_ALLOCATIONS = 20_000
"""Objects that are allocated before the youngest are searched for cycles; Python's own number is 700."""


@contextlib.contextmanager
def rare_collections(allocations: int = LOADING_ALLOCATIONS) -> Iterator[None]:
    """Let Python look for cycles less often: importing modules makes few, and the search took a sixth of its time."""
    before = gc.get_threshold()
    gc.set_threshold(allocations, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextlib.contextmanager
def tuned_gc() -> Iterator[None]:
    """Let Python look for cycles less often, and its threads take turns more often.

    A run makes few cycles, and the search took a sixth of its time. What waits for the database waits for its turn
    after each answer, and the event loop for its own after each wait.
    """
    from fepflow.calls.thread_pool import short_turns  # which loads asyncio: not for `fepflow --help`

    freezes = not _had_frozen()
    if freezes:
        gc.freeze()  # what was loaded before is not searched at all
    try:
        with rare_collections(RUN_ALLOCATIONS), short_turns():
            yield
    finally:
        if freezes:
            gc.unfreeze()


@functools.cache
def _had_frozen() -> bool:
    """Whether the program that calls us had frozen anything before its first run: that stays so.

    Asked once: Python counts one by one, which holds up the event loop for tenths of a second where there are many.
    """
    return gc.get_freeze_count() > 0
