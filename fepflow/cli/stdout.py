"""Keeping stdout for our own output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TextIO


@contextmanager
def stdout_for_us_alone() -> Iterator[TextIO]:
    """The command's stdout; whatever else is written there, by agents in this process too, goes to stderr.

    For good, where stdout is a file descriptor: a call that was given up may print when all is over.
    """
    sys.stdout.flush()
    try:
        descriptor, others = sys.stdout.fileno(), sys.stderr.fileno()
    except (OSError, ValueError):  # a stream in memory
        own = sys.stdout
        with redirect_stdout(sys.stderr):
            yield own
        return
    with os.fdopen(os.dup(descriptor), "w", encoding=sys.stdout.encoding) as own:
        os.dup2(others, descriptor)
        with redirect_stdout(sys.stderr):
            yield own
