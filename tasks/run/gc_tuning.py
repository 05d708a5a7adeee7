"""Python's own settings while a run lasts."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

from fepflow.limits.thread_pool import short_turns

USUAL_COLLECTIONS = gc.get_threshold()
ALLOCATIONS = 20_000
"""Objects that are allocated before the youngest are searched for cycles; Python's own number is 700."""


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Let Python look for cycles less often: importing modules makes few, and the search took a sixth of its time."""
    gc.set_threshold(ALLOCATIONS, *USUAL_COLLECTIONS[1:])
    try:
        yield
    finally:
        gc.set_threshold(*USUAL_COLLECTIONS)


@contextlib.contextmanager
def tuned_gc() -> Iterator[None]:
    """Let Python look for cycles less often, and its threads take turns more often.

    A run makes few cycles, and the search took a sixth of its time. What waits for the database waits for its turn
    after each answer, and the event loop for its own after each wait.
    """
    gc.freeze()  # what was loaded before is not searched at all
    try:
        with rare_collections(), short_turns():
            yield
    finally:
        gc.unfreeze()
