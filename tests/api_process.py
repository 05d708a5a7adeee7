"""The network's interfaces in a process of their own, as `fepflow serve` starts them, over a store of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fepflow.access.caller import Scope
from fepflow.access.credentials import create_key
from fepflow.store.store import Store


@dataclass(frozen=True)
class ApiProcess:
    """Where it is, what it has written, and the environment that makes commands use the same store."""

    rest: str
    grpc: str
    log: Path
    env: dict[str, str]
    process: subprocess.Popen[bytes]

    def new_key(self, *scopes: Scope) -> str:
        """A new API key in its store, as `fepflow keys create` makes it."""
        with Store.open(f"sqlite:///{self.env['FEPFLOW_HOME']}/fepflow.db") as store:
            return create_key(store, "tests", scopes or ("read", "evaluate"), None)[1]


@contextmanager
def api_process(home: Path, *options: str, **env: str) -> Iterator[ApiProcess]:
    """One that answers; ended with SIGTERM, which it has to take as the end."""
    home.mkdir(parents=True, exist_ok=True)
    own = {"FEPFLOW_HOME": str(home), "FEPFLOW_API_PORT": "0", "FEPFLOW_GRPC_PORT": "0"}
    everything = {**{name: value for name, value in os.environ.items() if name != "FEPFLOW_STORE_URL"}, **own, **env}
    log = home / "api.log"
    with log.open("wb") as output:
        command = [sys.executable, "-P", "-m", "fepflow.deployments.api", *options]
        process = subprocess.Popen(command, env=everything, cwd=home, stdout=output, stderr=output)
    try:
        at = _wait_for(home / "api.json", process, log)
        yield ApiProcess(at["rest"], at["grpc"], log, everything, process)
        process.terminate()
        assert process.wait(60) == 0, log.read_text()
        assert "Traceback" not in log.read_text()
    finally:
        process.kill()
        process.wait()


def _wait_for(file: Path, process: subprocess.Popen[bytes], log: Path) -> Any:
    deadline = time.monotonic() + 180
    while not file.exists():
        assert process.poll() is None and time.monotonic() < deadline, log.read_text()  # noqa: PT018  # one reason
        time.sleep(0.05)
    return json.loads(file.read_text(encoding="utf-8"))
