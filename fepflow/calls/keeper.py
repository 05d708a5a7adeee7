"""The keeper of a run's child processes: it kills everything that they started, and all of them if the run is dead.

Each child has its own session, so its group can be killed at once. Processes that leave the group (`setsid`, daemons)
are found by a variable in their environment, which they inherit; only Linux shows other processes' environments. A
signal at the death of the parent (PR_SET_PDEATHSIG) would reach only the child, not what it started.

As a script, `keeper.py TOKEN`, it reads a line for each child: `NUMBER PID` once it has started, `NUMBER` when the rest
of it is to be killed. Its stdin ends with the run, also by `kill -9`. It uses only the standard library.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

VARIABLE = "FEPFLOW_CHILD"
"""Holds `TOKEN.NUMBER.` in the environment of a child: the token is the run's."""

_PATIENCE = 1_000
"""Rounds of 10 ms in which processes may start others while they are killed."""


def main() -> None:
    """Kill the rest of children when the run asks for it, and everything when the run is over."""
    token, groups, rest = sys.argv[1], dict[bytes, int](), b""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    while chunk := os.read(0, 65_536):
        *lines, rest = (rest + chunk).split(b"\n")
        ended = []
        for line in lines:
            number, _, pid = line.partition(b" ")
            if pid:
                groups[number] = int(pid)
            else:
                groups.pop(number, None)
                ended.append(f"{VARIABLE}={token}.".encode() + number + b".")
        _kill_marked(ended)
    for group in groups.values():
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    _kill_marked([f"{VARIABLE}={token}.".encode()])


def _kill_marked(marks: list[bytes]) -> None:
    """Kill the processes whose variable begins with one of the marks, until none is left."""
    for _ in range(_PATIENCE if marks else 0):
        marked = [pid for pid, mark in _children() if mark.startswith(tuple(marks))]
        for pid in marked:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not marked:
            return
        time.sleep(0.01)


def _children() -> Iterator[tuple[int, bytes]]:
    """Yield the number and the mark of each marked process."""
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if name.isdecimal():
            with suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                variables = file.read().split(b"\0")
                yield from ((int(name), text) for text in variables if text.startswith(VARIABLE.encode()))


if __name__ == "__main__":
    main()
