"""The local Prefect server, as its state file names it: the process, and not a later one with the same id."""

from __future__ import annotations

import json
from dataclasses import dataclass

import psutil

from fepflow.settings import Settings


@dataclass(frozen=True)
class Server:
    """A server that `fepflow up` started: its process, with its start time (seconds since 1970), and its port."""

    pid: int
    started: float
    port: int

    @property
    def api_url(self) -> str:
        """Where its API is."""
        return f"http://127.0.0.1:{self.port}/api"

    @property
    def ui_url(self) -> str:
        """Where a person looks."""
        return f"http://127.0.0.1:{self.port}"

    def process(self) -> psutil.Process | None:
        """Its process, if that is still there."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < 1 and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return None
        return process if same else None


def running(config: Settings) -> Server | None:
    """The server that `up` started, if its process is alive."""
    try:
        server = Server(**json.loads(config.server_file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return server if server.process() else None
