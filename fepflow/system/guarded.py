"""Processes that run other people's programs, each under a guard, so that none outlives this process."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fepflow.system import guard

KILL_SECONDS = 5.0
"""How long the end of a process is waited for that was killed: longer only if the system holds it."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process has ended: its exit code, negative for a signal, None if its guard killed it.

    Or why it could not be started.
    """

    code: int | None = None
    errno: int | None = None


class GuardedProcess:
    """A process with pipes. Its end is that of its process group, and of all that it has started."""

    def __init__(
        self,
        stdin: asyncio.WriteTransport,
        stdout: asyncio.StreamReader,
        stderr: asyncio.StreamReader,
        control: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        pipes: Sequence[asyncio.BaseTransport],
    ) -> None:
        self.stdin: Final = stdin
        self.stdout: Final = stdout
        self.stderr: Final = stderr
        self._listener, self._control = control
        self._pipes = pipes
        self._ended = asyncio.ensure_future(self._listen())

    async def _listen(self) -> Ending:
        """What the guard says of its worker, until the guard has ended, too."""
        said: dict[str, int] = {}
        with suppress(ConnectionError):
            while line := await self._listener.readline():
                said |= json.loads(line)
        return Ending(said.get("code"), said.get("errno"))

    async def wait(self, seconds: float) -> Ending | None:
        """How it has ended, all that it has started included; None if it has not so soon."""
        await asyncio.wait({self._ended}, timeout=seconds)
        return self._ended.result() if self._ended.done() else None

    def close_stdin(self) -> None:
        """Let it read no more. What it has not read yet is lost, for it may never read it."""
        if not self.stdin.is_closing():
            self.stdin.abort()

    def terminate(self) -> None:
        """Send SIGTERM to its process group."""
        self._control.write(b"T")

    async def kill(self) -> None:
        """Kill it, and all that it has started, wait for that, and close what connects it with us."""
        try:
            with suppress(OSError, RuntimeError):  # it has ended by itself
                self._control.write_eof()
            await self.wait(KILL_SECONDS)
        finally:
            self._ended.cancel()
            self._control.close()
            self.close_stdin()
            for pipe in self._pipes:
                pipe.close()


class GuardServer:
    """Starts processes, each under a guard; see `fepflow.system.guard`. Belongs to one event loop."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None

    async def start(self, arguments: Sequence[str], env: Mapping[str, str], folder: Path) -> GuardedProcess:
        """Start a program in `folder`, with no other variables than `env`; its path is the first of the arguments.

        Whether it could be started is known by its `Ending`. Raises OSError when no process can be had.
        """
        ours, theirs = socket.socketpair()
        descriptors: list[int] = []
        try:
            for _ in range(3):
                descriptors += os.pipe()
            stdin, write, read_out, stdout, read_err, stderr = descriptors
            request = {"arguments": list(arguments), "env": dict(env), "folder": str(folder)}
            self._send(json.dumps(request).encode(), [stdin, stdout, stderr, theirs.fileno()])
        except BaseException:
            ours.close()
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        finally:
            theirs.close()
        for descriptor in (stdin, stdout, stderr):
            os.close(descriptor)
        connected = asyncio.ensure_future(_connected(ours, write, read_out, read_err))
        try:
            return await asyncio.shield(connected)
        except asyncio.CancelledError:
            await (await connected).kill()
            raise

    def _send(self, request: bytes, descriptors: list[int]) -> None:
        """Hand a request to the server, which is started for the first one, and anew if it has been killed."""
        if self._requests is not None:
            with suppress(ConnectionError):
                return _send(self._requests, request, descriptors)
            self._close()
        return _send(self._open(), request, descriptors)

    def _open(self) -> socket.socket:
        self._requests, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-I", "-S", str(guard.__file__), str(theirs.fileno())]
            self._server = subprocess.Popen(  # noqa: S603  # our own script
                command,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        return self._requests

    def _close(self) -> None:
        if self._requests is not None and self._server is not None:
            self._requests.close()
            self._server.wait(KILL_SECONDS)
        self._requests = self._server = None

    async def aclose(self) -> None:
        """End the server. Processes that are still there go on; their guards end them with this process."""
        await asyncio.to_thread(self._close)


def _send(requests: socket.socket, request: bytes, descriptors: list[int]) -> None:
    socket.send_fds(requests, [len(request).to_bytes(guard.LENGTH_BYTES, "big")], descriptors)
    requests.sendall(request)


async def _connected(control: socket.socket, write: int, read_out: int, read_err: int) -> GuardedProcess:
    loop = asyncio.get_running_loop()
    stdin, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(write, "wb", 0))
    stdout, out = await _reader(read_out)
    stderr, err = await _reader(read_err)
    return GuardedProcess(stdin, stdout, stderr, await asyncio.open_connection(sock=control), [out, err])


async def _reader(descriptor: int) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(descriptor, "rb", 0))
    return reader, pipe
