"""Processes that tests have started, or that what they test has."""

from __future__ import annotations

import psutil


def is_running(pid: int) -> bool:
    """Whether it has not ended; an orphan that has is there until the first process of the machine notes it."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
