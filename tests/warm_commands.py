"""`fepflow` commands that begin warm: each is forked from a process that has imported Prefect, litellm and fepflow.

To import them takes a processor about two seconds for `run`, ten times as long as a short run itself, and as long
again for litellm. `fepflow.deployments.warm_worker` does the same with the runs of a worker. What a process takes from
its environment at import is that of the stack here: a command with other variables of that kind begins cold.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

READ_AT_IMPORT = (
    *("PREFECT_", "PYTHON", "LITELLM_", "LANG", "LC_", "FEPFLOW_HOME", "FEPFLOW_PORT", "HOME", "TMPDIR", "TZ"),
    *("SSL_", "OTEL_PROPAGATORS", "COLUMNS", "NO_COLOR", "FORCE_COLOR"),
)
"""Beginnings of the names of such variables."""
SET_PREFECT_UP = {"--verbose", "-v", "--env-file"}
"""Options with which Prefect is set up in another way."""


def read_at_import(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a command has to share with the process that it is forked from."""
    return {name: value for name, value in env.items() if name.startswith(READ_AT_IMPORT)}


class WarmCommands:
    """The process that commands are forked from, one after the other; started with the first of them."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = dict(env)
        self._process: subprocess.Popen[str] | None = None
        self._busy = threading.Lock()

    def take(self, arguments: Sequence[str], env: Mapping[str, str]) -> bool:
        """Return whether a command may begin warm; if so, `run` is to be called, and no other thread's does."""
        same = read_at_import(env) == read_at_import(self._env)
        return sys.platform == "linux" and same and SET_PREFECT_UP.isdisjoint(arguments) and self._busy.acquire(False)

    def run(
        self, arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout: float, code: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as `subprocess.run` does, or this code instead of it."""
        try:
            with TemporaryDirectory(prefix="fepflow-warm-") as folder:
                order = {"arguments": list(arguments), "cwd": str(cwd), "env": dict(env), "code": code}
                return self._run(Path(folder), order, timeout)
        finally:
            self._busy.release()

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            with self._process:  # which closes its pipes, and waits for it
                self._process.kill()
            self._process = None

    def _run(self, folder: Path, order: dict[str, Any], timeout: float) -> subprocess.CompletedProcess[str]:
        try:
            code, is_late = self._answer({**order, "folder": str(folder)}, timeout)
        except BaseException:  # a test's time limit too: the next command would read the answer to this one
            self.end()
            raise
        command = ["fepflow", *order["arguments"]]
        stdout, stderr = (Path(folder, name).read_text(encoding="utf-8") for name in ("stdout", "stderr"))
        if is_late:
            raise subprocess.TimeoutExpired(command, timeout, stdout, stderr)
        return subprocess.CompletedProcess(command, code, stdout, stderr)

    def _answer(self, order: dict[str, Any], timeout: float) -> tuple[int, bool]:
        """Return the exit code of an order's process, and whether it was killed because it took too long."""
        process = self._process = self._process or subprocess.Popen(
            [sys.executable, "-P", __file__],
            env=self._env,
            cwd=os.sep,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        pid = int(process.stdout.readline())
        late = threading.Event()

        def stop() -> None:
            late.set()
            os.kill(pid, signal.SIGKILL)

        timer = threading.Timer(timeout, stop)
        timer.start()
        try:
            return int(process.stdout.readline()), late.is_set()
        except BaseException:
            stop()
            raise
        finally:
            timer.cancel()


def main() -> None:
    """Fork a process for each line of the standard input, and answer with its id, and then with its exit code."""
    from fepflow.calls.models import _litellm
    from fepflow.security import redaction
    from fepflow.services import prefect_api
    from fepflow.settings import current_file, settings

    prefect_api.use(prefect_api.usable_api(), show_logs=False)
    prefect_api._in_use.clear()
    import fepflow.cli.main
    import fepflow.deployments.warm_start  # all that a run needs

    _litellm.load()
    gc.collect()
    gc.freeze()
    orders, answers = os.fdopen(os.dup(0)), os.dup(1)
    for line in orders:
        pid = os.fork()
        if pid:
            os.write(answers, f"{pid}\n".encode())
            _, status = os.waitpid(pid, 0)
            os.write(answers, f"{os.waitstatus_to_exitcode(status)}\n".encode())
            continue
        order = json.loads(line)
        os.close(answers)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(Path(order["folder"], name), os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
        os.chdir(order["cwd"])
        os.environ.clear()
        os.environ.update(_litellm._ENVIRONMENT)
        os.environ.update(order["env"])
        for cache in (settings, current_file, redaction._secrets_of_process):
            cache.cache_clear()
        sys.argv = ["fepflow", *order["arguments"]]
        if order["code"]:
            exec(order["code"], {"__name__": "__main__"})
        else:
            fepflow.cli.main.main()
        return  # the next order is not this process's


if __name__ == "__main__":
    main()
