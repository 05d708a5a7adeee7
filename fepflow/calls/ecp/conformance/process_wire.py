"""A process as a raw way to an agent: any line can be written, and all that it writes is seen."""

from __future__ import annotations

import asyncio
from time import monotonic

from fepflow.calls.ecp.stdio import EOF_SECONDS
from fepflow.calls.processes import ChildProcess, Tail, drain
from fepflow.security.redaction import excerpt

_SHOWN_TAIL = 300
_ENDING_SECONDS = 1.0
_EOF_PATIENCE = 5 * EOF_SECONDS
"""Longer than a run waits before it sends SIGTERM: a busy machine is no fault of the agent's."""


class ProcessWire:
    """The stdin and stdout of a process. What it writes is read all the while, up to `limit` bytes that wait."""

    def __init__(self, process: ChildProcess, limit: int) -> None:
        self._process = process
        self._limit = limit
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._waiting = 0
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        try:
            while line := await self._process.read_line():
                if self._waiting + len(line) <= self._limit:
                    self._waiting += len(line)
                    self._lines.put_nowait(line)
        except asyncio.LimitOverrunError:
            await drain(self._process.stdout, Tail())

    async def send(self, text: str) -> None:
        """Write a line."""
        self._process.stdin.write(text.encode() + b"\n")

    async def receive(self, seconds: float) -> str | None:
        """See Wire."""
        waiting = asyncio.ensure_future(self._lines.get())
        try:
            await asyncio.wait({waiting, self._reading}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done() and self._lines.empty():
                return None
            line = await waiting
        finally:
            waiting.cancel()
        self._waiting -= len(line)
        return line.rstrip(b"\n").decode("utf-8", "replace")

    async def fault(self) -> str:
        """See Wire: how the process has ended."""
        if not self._reading.done():
            return ""
        ending = await self._process.ending(_ENDING_SECONDS) or "closed its stdout"
        stderr = self._process.stderr.text
        words = excerpt(stderr, frozenset(), len(stderr))[-_SHOWN_TAIL:]
        return f"the agent {ending}" + (f"; the end of its stderr: {words}" if words else "")

    async def end_of_input(self) -> float | None:
        """Close its stdin; return the seconds it took to end by itself, None if it has not for a while."""
        self._process.close_stdin()
        started = monotonic()
        return None if await self._process.wait(_EOF_PATIENCE) is None else monotonic() - started

    async def aclose(self) -> None:
        """See Wire."""
        try:
            await self._process.kill()
        finally:
            self._reading.cancel()
