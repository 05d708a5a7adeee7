"""An ECP agent as a process: requests on stdin and answers on stdout, one JSON object on each line."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from fepflow.calls.ecp.protocol import Request
from fepflow.calls.processes import ChildProcess, Tail
from fepflow.calls.programs import Programs, end_process, obituary
from fepflow.errors import TargetError
from fepflow.suite import target


class Agents(Programs):
    """The program of a suite in `folder`, started for each connection."""

    def __init__(self, config: target.Target, folder: Path, secrets: frozenset[str]) -> None:
        assert config.ecp is not None  # its callers have looked
        super().__init__(config.ecp, folder, config.trace)
        self._limit = config.ecp.max_bytes
        self._secrets = secrets

    async def connect(self) -> StdioConnection:
        """Start the program. Raises TargetError."""
        return StdioConnection(await self.start(), self._limit, self._secrets)


class StdioConnection:
    """A process with one request at a time; at most `limit` bytes of stdout are read for one answer.

    Reading does not wait for the end of writing, so neither side blocks the other. No error shows `secrets`.
    """

    def __init__(self, process: ChildProcess, limit: int, secrets: frozenset[str]) -> None:
        self._process = process
        self._limit = limit
        self._secrets = secrets
        self._stdout = Tail()
        self._is_open = True

    @property
    def is_open(self) -> bool:
        """True while the process may still answer."""
        return self._is_open and not self._process.stdout.at_eof()

    async def ask(self, request: Request) -> dict[str, Any]:
        """Write the request, and read up to its answer."""
        self._process.stdin.write(request.text.encode("ascii") + b"\n")
        left = self._limit
        try:
            while line := await self._process.read_line():
                left -= len(line)
                if left < 0:
                    break
                if (answer := await request.answer_in(line.decode("utf-8", "replace"))) is not None:
                    return answer
                self._stdout.add(line)
            else:
                self._is_open = False
                raise await obituary(self._process, self._secrets)
        except asyncio.LimitOverrunError:
            pass
        message = f"the agent wrote more than {self._limit:,} bytes without an answer (target.ecp.max_bytes)"
        raise TargetError(message, kind="too_large", retryable=False)

    def log_tail(self) -> dict[str, str]:
        """Return the end of stderr, and of stdout without answers, and forget them."""
        tails = {"stdout": self._stdout, "stderr": self._process.stderr}
        texts = {name: tail.text for name, tail in tails.items() if tail.text}
        for tail in tails.values():
            tail.clear()
        return texts

    async def aclose(self) -> None:
        """Close stdin, then send SIGTERM, then kill the rest."""
        self._is_open = False
        await end_process(self._process, self._stdout)
