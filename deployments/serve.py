"""One machine's stack: `python -m fepflow.deployments.serve`, which `fepflow serve` starts.

    server ─► register, once ─► worker, api
    (local)

It runs in the foreground until Ctrl-C, SIGTERM or the end of its terminal, and then ends its children in the opposite
order. A child that dies is started again. A configured Prefect API is used instead of a local server; a local server
that ran before stays when the rest ends.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import psutil
from filelock import FileLock, Timeout

from fepflow.access.listening import listening_on
from fepflow.asyncio_helpers import cancel_and_wait
from fepflow.deployments import server
from fepflow.errors import FepflowError, InfrastructureError
from fepflow.observability import logs
from fepflow.security.redaction import known_secrets, redact
from fepflow.services import prefect_api
from fepflow.services.prefect_api import POOL, running
from fepflow.settings import Settings, settings
from fepflow.store.store import Store

MARK = "FEPFLOW_SERVED_BY"
"""A variable that a child and whatever it starts inherit, also what has left its session or outlives it."""
FIRST_PAUSE, LONGEST_PAUSE, HEALTHY_SECONDS = 1.0, 60.0, 60.0
"""Seconds before a child that died is started again; after a long life the first pause is a short one again."""
KILL_SECONDS = 1.5
LONGEST_LINE = 65_536

PYTHON = (sys.executable, "-P", "-m")
PREFECT = (*PYTHON, prefect_api.PREFECT_MODULE)


@dataclass(frozen=True)
class Child:
    """A command, its name in the log, and the seconds that it may take to stop by itself."""

    name: str
    command: Sequence[str]
    grace_seconds: float


REGISTER = Child("register", [*PREFECT, "fepflow.deployments.register"], 1)
WORKER = Child("worker", [*PREFECT, "fepflow.deployments.worker", "--pool", POOL, "--with-reaper"], 8)


class Stack:
    """The children of one `serve`, which carry its mark; a later `serve` with the same mark finds them by it."""

    def __init__(self, mark: str, env: Mapping[str, str]) -> None:
        self._env = {**env, MARK: mark}
        self._secrets = known_secrets(env)
        self._children: list[tuple[Child, asyncio.Task[None]]] = []
        self._processes: dict[str, Process] = {}
        self._relays: set[asyncio.Task[None]] = set()

    def say(self, name: str, line: str) -> None:
        """Print a line of a child, or about it, if anybody still reads: a terminal is closed, a `tee` ends."""
        with contextlib.suppress(OSError):
            if logs.is_json():
                logs.write_line(line, name, self._secrets)
            else:
                click.echo(f"{name:<8} │ {redact(line, self._secrets)[: logs.MOST_CHARACTERS]}")

    async def supervise(self, child: Child) -> asyncio.Event:
        """Start a child, and restart it whenever it ends; the event is set when it has ended once."""
        ended = asyncio.Event()
        process = await self._start(child)
        self._children.append((child, asyncio.create_task(self._supervise(child, process, ended))))
        return ended

    async def run(self, child: Child) -> int:
        """Run a child once, to its end; return its exit code."""
        process = await self._start(child)
        try:
            return await process.wait()
        except asyncio.CancelledError:
            await self._end(child)
            raise

    async def stop(self) -> None:
        """End the children, the last one first, and all other processes with the mark."""
        while self._children:
            child, supervision = self._children.pop()
            await cancel_and_wait(supervision)
            await self._end(child)
        await self.end_leftovers()
        for relay in self._relays:
            relay.cancel()

    async def end_leftovers(self) -> int:
        """End all processes with the mark, for example those of a killed `serve`; return their number."""
        marked = await asyncio.to_thread(
            lambda: [process for process in psutil.process_iter() if self._is_ours(process)]
        )
        await asyncio.to_thread(server.end_processes, marked, KILL_SECONDS)
        return len(marked)

    async def _supervise(self, child: Child, process: Process, ended: asyncio.Event) -> None:
        pause = FIRST_PAUSE
        while True:
            began = time.monotonic()
            self.say(child.name, f"started, process {process.pid}")
            code = await process.wait()
            ended.set()
            if time.monotonic() - began > HEALTHY_SECONDS:
                pause = FIRST_PAUSE
            how = f"exit code {code}" if code >= 0 else f"signal {-code}"
            self.say(child.name, f"ended ({how}); starts again in {pause:g} s")
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)
            process = await self._start(child)

    async def _start(self, child: Child) -> Process:
        # A pipe of our own: with asyncio's, `wait()` of Python 3.11 returns only when no process holds the pipe any
        # more. The runs of a killed worker hold it until they end, which may take hours.
        lines, output = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                *child.command,
                env=self._env,
                stdin=DEVNULL,
                stdout=output,
                stderr=STDOUT,
                start_new_session=True,  # a terminal's Ctrl-C is for this process, which ends them in order
            )
        except BaseException:
            os.close(lines)
            raise
        finally:
            os.close(output)
        self._processes[child.name] = process
        relay = asyncio.create_task(self._relay(child.name, lines))
        self._relays.add(relay)
        relay.add_done_callback(self._relays.discard)
        return process

    async def _relay(self, name: str, pipe: int) -> None:
        """Print the lines that come through a pipe, until no process holds its other end."""
        stream = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(pipe, "rb", buffering=0)
        )
        reader = logs.Lines(LONGEST_LINE)

        def say(lines: list[bytes]) -> None:
            for line in lines:
                self.say(name, line.decode(errors="replace").rstrip())

        try:
            while chunk := await stream.read(LONGEST_LINE):
                say(reader.take(chunk))
            say(reader.end())
        finally:
            transport.close()

    async def _end(self, child: Child) -> None:
        """End a child and everything that it started. Only the child gets SIGTERM: a worker ends its runs itself."""
        process = self._processes[child.name]
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), child.grace_seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        self.say(child.name, "stopped")

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get(MARK) == self._env[MARK]
        except (psutil.Error, OSError):  # gone, or of another user
            return False


async def serve(config: Settings, api: Child) -> None:
    """Run the stack until it is told to end. Raises InfrastructureError if it does not come up."""
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A closed terminal is an end like the others, except under nohup.
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    external = prefect_api.external_api()
    local_server = running(config)
    port = local_server.port if local_server else prefect_api.own_port() or config.port
    local = (
        None if external else Child("server", [*PYTHON, "fepflow.deployments.server", "hold", "--port", str(port)], 5)
    )
    api_url = external or f"http://127.0.0.1:{port}/api"
    stack = Stack(str(config.home.absolute()), environment(config, prefect_api.PrefectApi(api_url, local=not external)))
    try:
        if await stack.end_leftovers():
            stack.say("serve", "ended what was left of an earlier one")
        await _unless(stopping, _start(stack, local, api, config))
        if not stopping.is_set():
            rest = json.loads(config.api_file.read_text(encoding="utf-8"))["rest"]
            places = (
                f"Prefect at {api_url.removesuffix('/api')}, REST at {rest}, results in {prefect_api.store_location()}"
            )
            stack.say("serve", f"ready: {places}; Ctrl-C ends it")
        await stopping.wait()
    finally:
        stack.say("serve", "stopping")
        await stack.stop()


async def _start(stack: Stack, local: Child | None, api: Child, config: Settings) -> None:
    config.api_file.unlink(missing_ok=True)
    if local is None:
        await asyncio.to_thread(prefect_api.prefect_api)
    else:
        ended = await stack.supervise(local)
        while not await asyncio.to_thread(_answers, config):
            if ended.is_set():
                raise InfrastructureError("the local Prefect server did not start; its lines above say why")
            await asyncio.sleep(0.2)
    if await stack.run(REGISTER) != 0:
        raise InfrastructureError("the deployments were not registered; the lines above say why")
    await stack.supervise(WORKER)
    ended = await stack.supervise(api)
    while not config.api_file.exists():
        if ended.is_set():
            raise InfrastructureError("the network's interfaces were not opened; the lines above say why")
        await asyncio.sleep(0.1)


def _answers(config: Settings) -> bool:
    local_server = running(config)
    return local_server is not None and server.healthy(local_server)


async def _unless(stopping: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Do the work, or abandon it when the stack is stopped."""
    working, waiting = asyncio.create_task(work), asyncio.create_task(stopping.wait())
    await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not working.done():
        working.cancel()
        await asyncio.wait({working})
    else:
        working.result()


def environment(config: Settings, api: prefect_api.PrefectApi) -> dict[str, str]:
    """Return the environment of all children. Runs inherit it from the worker."""
    if api.local:
        server.login(config)
    return {
        "PREFECT_CLIENT_MAX_RETRIES": "8",
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
        "PREFECT_WORKER_QUERY_SECONDS": "2",  # a scheduled run waits so long
        "PREFECT_LOGGING_LOGGERS_PREFECT_FLOW_RUNS_LEVEL": "WARNING",  # a run's log begins with the run, not the worker
        "DO_NOT_TRACK": "1",  # else Prefect's client tells its makers of its use
        **prefect_api.cheap_client(api.url),
        **({"PREFECT_CLIENT_CSRF_SUPPORT_ENABLED": "false"} if api.local else {}),  # it would ask for a token in vain
        **os.environ,
        **api.environment,
        "FEPFLOW_HOME": str(config.home.absolute()),
        "PYTHONUNBUFFERED": "1",
    }


def _alone(config: Settings) -> FileLock:
    """Return a lock on the home folder. Raises InfrastructureError if another process has it."""
    config.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = FileLock(config.home / "serve.lock", timeout=0, mode=0o600)
    note = config.home / "serve.json"
    try:
        lock.acquire()
    except Timeout:
        raise InfrastructureError(
            f"fepflow serves {config.home} already ({_noted(note)}): stop it with Ctrl-C there, or name another "
            "folder in FEPFLOW_HOME"
        ) from None
    server.write_private(note, json.dumps({"pid": os.getpid()}))
    return lock


def _noted(note: Path) -> str:
    try:
        return f"process {json.loads(note.read_text(encoding='utf-8'))['pid']}"
    except (OSError, ValueError, KeyError):
        return "another process"


def main(arguments: list[str] | None = None) -> int:
    """Serve; errors are sentences on stderr, with exit code 2 or 3."""
    parser = argparse.ArgumentParser(prog="python -m fepflow.deployments.serve", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="address that the network's interfaces listen on")
    parser.add_argument("--behind-tls", action="store_true", help="a proxy before them terminates TLS")
    options = parser.parse_args(arguments)
    try:
        config = settings()
        logs.set_up("serve")
        with Store.open(config.store_address) as store:  # whatever is wrong is said once, now
            listening_on(options.host, store, config, behind_tls=options.behind_tls)
        with _alone(config):
            behind_tls = ["--behind-tls"] if options.behind_tls else []
            command = [*PYTHON, "fepflow.deployments.api", "--host", options.host, *behind_tls]
            asyncio.run(serve(config, Child("api", command, 6)))
    except FepflowError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    except OSError as error:
        click.echo(
            f"error: cannot use {config.home} ({error.strerror}): name a writable folder in FEPFLOW_HOME", err=True
        )
        return InfrastructureError.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
