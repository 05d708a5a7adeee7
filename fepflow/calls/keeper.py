"""The keeper of a run's child processes: it ends what they have started, and all of them when the run is dead.

A child leads a session of its own, so its group can be killed at once. What leaves the group (`setsid`, daemons) is
known by a variable in its environment, which children of children inherit; only Linux shows the environment of others.
A signal at the death of the parent (PR_SET_PDEATHSIG) would reach the child alone, and not what it has started.

As a script, `keeper.py TOKEN`, it reads a line for each child: `NUMBER PID` once it has been started, `NUMBER` when all
that is left of it is to be killed. Its stdin ends when the run does, also by `kill -9`. Standard library only.
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
    """Kill what is left of children as the run asks for it, and everything when the run is over."""
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
    """Kill the processes whose variable begins with one of the marks, until there are none."""
    for _ in range(_PATIENCE if marks else 0):
        marked = [pid for pid, mark in _children() if mark.startswith(tuple(marks))]
        for pid in marked:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if not marked:
            return
        time.sleep(0.01)


def _children() -> Iterator[tuple[int, bytes]]:
    """Yield the number and the mark of each process that has one."""
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        if name.isdecimal():
            with suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                variables = file.read().split(b"\0")
                yield from ((int(name), text) for text in variables if text.startswith(VARIABLE.encode()))


if __name__ == "__main__":
    main()
