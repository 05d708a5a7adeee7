"""`fepflow` commands that begin warm: each is forked from a process that has imported Prefect, litellm and fepflow.

To import them takes a processor about two seconds for `run`, ten times as long as a short run itself, and as long
again for litellm. `fepflow.deployments.warm_worker` does the same with the runs of a worker. Whoever starts a command
starts `warm_command.py`, which takes 20 ms: it has the command forked, passes signals on, and ends as the command does.
What a process takes from its environment at import is that of the stack here: a command with other variables of that
kind begins cold.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import marshal
import os
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

READ_AT_IMPORT = (
    *("PREFECT_", "PYTHON", "LITELLM_", "LANG", "LC_", "HOME", "TMPDIR", "TZ"),
    *("SSL_", "OTEL_PROPAGATORS", "COLUMNS", "NO_COLOR", "FORCE_COLOR"),
)
"""Beginnings of the names of such variables."""
READ_AGAIN = {
    *("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", "PREFECT_HOME", "PREFECT_CLIENT_MAX_RETRIES"),
    *("PREFECT_WORKER_QUERY_SECONDS", "PYTHONUNBUFFERED"),
}
"""Variables of these that a forked process reads again."""
OF_LOGS = {"PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "PREFECT_LOGGING_INTERNAL_LEVEL"}
"""Variables that a command sets by itself: `--verbose` sets them in another way."""
CLIENT = Path(__file__).with_name("warm_command.py")
_LENGTH = 8
"""Bytes of the length of an order, of a process id, and of an exit code."""


def read_at_import(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a command has to share with the process that it is forked from."""
    return {name: value for name, value in env.items() if name.startswith(READ_AT_IMPORT) and name not in READ_AGAIN}


class WarmCommands:
    """The process that commands are forked from; started with the first of them."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = dict(env)
        self._folder = tempfile.TemporaryDirectory(prefix="fepflow-warm-")  # a socket's path has to be short
        self._process: subprocess.Popen[str] | None = None

    def command(self, arguments: Sequence[str], env: Mapping[str, str], code: str = "") -> list[str]:
        """Return the words that start a command, or this code instead of it: warm where that is possible."""
        if sys.platform != "linux" or read_at_import(env) != read_at_import(self._env):
            return [sys.executable, "-P", *(["-c", code] if code else ["-m", "fepflow.cli.main"]), *arguments]
        return [sys.executable, "-I", "-S", str(CLIENT), self._address(), code, *arguments]

    def install(self, folder: Path) -> None:
        """Write a `fepflow` into a folder that begins warm."""
        words = shlex.join([sys.executable, "-I", "-S", str(CLIENT), self._address(), ""])
        file = folder / "fepflow"
        file.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
        file.chmod(0o700)

    def end(self) -> None:
        """End the process, and those that are forked from it."""
        if self._process is not None:
            self._process.communicate(timeout=60)
        self._folder.cleanup()

    def _address(self) -> str:
        """Return the process's socket, once it listens."""
        address = f"{self._folder.name}/socket"
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, address],
                env=self._env,
                cwd=os.sep,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert self._process.stdout is not None
            assert self._process.stdout.readline() == "ready\n"
        return address


class Forks:
    """Processes that are forked, each for a client that has connected, and that end with their clients."""

    def __init__(self, address: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen(100)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(0, selectors.EVENT_READ)
        self._clients: dict[int, tuple[int, socket.socket]] = {}
        """Id and client of each process, by its file descriptor."""

    def next_order(self) -> tuple[list[str], str, dict[str, str]] | None:
        """Return, in a process that was forked for it, an order; None when the standard input has been closed."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    if (order := self._fork()) is not None:
                        return order
                elif key.fd == 0:
                    for pid, _ in self._clients.values():
                        os.kill(pid, signal.SIGKILL)
                    return None
                elif key.data is None:
                    self._end_of(key.fd)
                elif key.data in self._clients:  # its client is gone
                    self._selector.unregister(key.fileobj)
                    os.kill(self._clients[key.data][0], signal.SIGKILL)

    def _fork(self) -> tuple[list[str], str, dict[str, str]] | None:
        client, _ = self._listener.accept()
        length, descriptors, _, _ = socket.recv_fds(client, _LENGTH, 3)
        with client.makefile("rb") as stream:
            arguments, code, folder, env = marshal.loads(stream.read(int.from_bytes(length)))
        if pid := os.fork():
            for number in descriptors:
                os.close(number)
            client.sendall(pid.to_bytes(_LENGTH))
            process = os.pidfd_open(pid)
            self._clients[process] = pid, client
            self._selector.register(process, selectors.EVENT_READ)
            self._selector.register(client, selectors.EVENT_READ, process)
            return None
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes ignore it
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        for process, (_, other) in self._clients.items():
            os.close(process)
            other.close()
        client.close()
        self._listener.close()
        os.chdir(folder)
        return arguments, code, env

    def _end_of(self, process: int) -> None:
        """Tell a client the exit code of its process."""
        pid, client = self._clients.pop(process)
        self._selector.unregister(process)
        os.close(process)
        _, status = os.waitpid(pid, 0)
        with contextlib.suppress(KeyError):
            self._selector.unregister(client)
        with contextlib.suppress(OSError):
            client.sendall(os.waitstatus_to_exitcode(status).to_bytes(_LENGTH, signed=True))
        client.close()


def main() -> None:
    """Fork a process for each client that connects to a socket, until the standard input is closed."""
    from fepflow.calls.models import _litellm
    from fepflow.security import redaction
    from fepflow.services import prefect_api
    from fepflow.settings import current_file, settings

    prefect_api.use(prefect_api.usable_api(), show_logs=False)
    prefect_api._in_use.clear()
    from prefect.context import refresh_global_settings_context
    from prefect.logging.configuration import setup_logging

    import fepflow.cli.main
    import fepflow.deployments.warm_start  # all that a run needs

    in_use = {name: os.environ.get(name) for name in READ_AGAIN | OF_LOGS}

    def use_own_settings() -> None:
        wanted = {name: os.environ.get(name) for name in in_use}
        if in_use == wanted:
            return
        with contextlib.chdir(os.sep):
            refresh_global_settings_context()
            if any(in_use[name] != wanted[name] for name in OF_LOGS):
                setup_logging(incremental=False)
        in_use.update(wanted)

    _litellm.load_for_calls()
    import_module("s3fs")
    forks = Forks(sys.argv[1])
    gc.collect()
    gc.freeze()
    print("ready", flush=True)  # noqa: T201  # the one who has started it waits for it
    if (order := forks.next_order()) is None:
        return
    arguments, code, env = order
    os.environ.clear()
    os.environ.update(_litellm._ENVIRONMENT)
    os.environ.update(env)
    for cache in (settings, current_file, redaction._secrets_of_process):
        cache.cache_clear()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # whoever waits for a line gets it
    logging.raiseExceptions = True
    vars(prefect_api)["import_prefect"] = use_own_settings
    sys.argv = ["-c" if code else "fepflow", *arguments]
    if code:
        use_own_settings()
        exec(code, {"__name__": "__main__"})
    else:
        fepflow.cli.main.main()


if __name__ == "__main__":
    main()
