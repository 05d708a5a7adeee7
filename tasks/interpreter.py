"""Python's own settings while a run lasts."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator

USUAL_COLLECTIONS = gc.get_threshold()
ALLOCATIONS = 20_000
"""Objects that are allocated before the youngest are searched for cycles; Python's own number is 700."""
TURN = 0.0005
"""Seconds that a thread may compute while another one waits; Python's own number is ten times that."""


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Let Python look for cycles less often: importing modules makes few, and the search took a sixth of its time."""
    gc.set_threshold(ALLOCATIONS, *USUAL_COLLECTIONS[1:])
    try:
        yield
    finally:
        gc.set_threshold(*USUAL_COLLECTIONS)


@contextlib.contextmanager
def tuned_interpreter() -> Iterator[None]:
    """Let Python look for cycles less often, and its threads take turns more often.

    A run makes few cycles, and the search took a sixth of its time. What waits for the database waits for its turn
    after each answer, and the event loop for its own after each wait.
    """
    usual = sys.getswitchinterval()
    gc.freeze()  # what was loaded before is not searched at all
    sys.setswitchinterval(TURN)
    try:
        with rare_collections():
            yield
    finally:
        sys.setswitchinterval(usual)
        gc.unfreeze()
