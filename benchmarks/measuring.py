"""Processes that are started, timed and weighed; and the lines that say what came of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen

import click

from benchmarks.children import CHECKS, CONCURRENCY, cases

ROOT = Path(__file__).parent.parent
VERDICTS = (0, 1, 4)


@dataclass(frozen=True)
class Line:
    """One figure against its budget; `kept` is None where there is no budget."""

    what: str
    figure: str
    budget: str = ""
    kept: bool | None = None
    against: str = ""

    def show(self) -> None:
        """Print it."""
        word = {None: "", True: "kept", False: "OVER BUDGET"}[self.kept]
        budget = f"budget {self.budget}: {word}" if self.budget else ""
        click.echo("  ".join(part for part in (f"{self.what:<38}", f"{self.figure:<34}", budget, self.against) if part))


@dataclass(frozen=True)
class Ended:
    """A process that has ended: its output, its time, and its peak memory.

    `cpu` is in seconds, with that of the processes that it has started and waited for.
    """

    code: int
    stdout: str
    seconds: float
    megabytes: float
    cpu: float


class Started:
    """A Python process of ours."""

    def __init__(self, *arguments: str, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> None:
        self.began = time.perf_counter()
        self.process = subprocess.Popen(  # noqa: S603  # our own interpreter
            [sys.executable, *arguments], env=env, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def line(self) -> str:
        """Return the first line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def end(self) -> Ended:
        """Wait for its end."""
        assert self.process.stdout is not None
        stdout = self.process.stdout.read()
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.perf_counter() - self.began
        unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in bytes there, in kilobytes elsewhere
        computing = usage.ru_utime + usage.ru_stime
        return Ended(self.process.returncode, stdout, seconds, usage.ru_maxrss * unit / 1e6, computing)

    def kill(self) -> Ended:
        """End it at once, as a crash would."""
        os.kill(self.process.pid, signal.SIGKILL)  # Popen's own would collect the process, and its memory be forgotten
        return self.end()


def child(*arguments: str) -> Ended:
    """Run a child program of the benchmarks to its end."""
    ended = Started("-m", "benchmarks.children", *arguments).end()
    if ended.code:
        raise click.ClickException(f"`benchmarks.children {' '.join(arguments)}` ended with {ended.code}")
    return ended


def middle(measure: Callable[[], float], times: int = 3) -> float:
    """Return the median of several measurements."""
    return median(measure() for _ in range(times))


@contextlib.contextmanager
def endpoint(latency: float) -> Iterator[str]:
    """Run an endpoint that answers after `latency` seconds, and yield its address."""
    service = Started("-m", "benchmarks.children", "endpoint", str(latency))
    try:
        yield service.line()
    finally:
        service.kill()


def calls_at(url: str) -> int:
    """Return the number of calls that have come to an endpoint."""
    with urlopen(f"{url}/count", timeout=5) as answer:  # noqa: S310  # our own loopback address
        return int(answer.read())


class House:
    """A separate fepflow: a store, a warm Prefect server, and the command line."""

    def __init__(self, folder: Path, port: int) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("FEPFLOW_", "PREFECT_"))}
        self.folder = folder
        self.env = {
            **kept,
            "FEPFLOW_HOME": str(folder / "fepflow"),
            "FEPFLOW_PORT": str(port),
            "PREFECT_HOME": str(folder / "prefect-client"),  # the developer's profile may name another server
        }

    def start(self, *arguments: str) -> Started:
        """Start the command line."""
        return self.module("fepflow.cli.main", *arguments)

    def module(self, *arguments: str) -> Started:
        """Start one of our modules as a command."""
        return Started("-P", "-m", *arguments, cwd=self.folder, env=self.env)

    def run(self, suite: Path) -> tuple[Ended, float]:
        """Run a suite; return the process, and the seconds that the run itself took."""
        ended = self.start("run", str(suite), "-q").end()
        if ended.code not in VERDICTS:
            raise click.ClickException(f"`fepflow run {suite}` ended with {ended.code}")
        return ended, self.seconds_inside()

    def bare_flow(self) -> Ended:
        """Run a script with only Prefect at the same server: one flow with three tasks."""
        home = Path(self.env["FEPFLOW_HOME"])
        login = (home / "prefect-login").read_text(encoding="ascii").strip()
        api = {"PREFECT_API_URL": f"http://127.0.0.1:{self.env['FEPFLOW_PORT']}/api", "PREFECT_API_AUTH_STRING": login}
        script = str(ROOT / "benchmarks" / "bare_flow.py")
        ended = Started(script, cwd=self.folder, env={**self.env, **api}).end()
        if ended.code:
            raise click.ClickException(f"the bare Prefect script ended with {ended.code}")
        return ended

    def newest(self) -> dict[str, Any]:
        """Return the newest run."""
        record: dict[str, Any] = json.loads(self.start("list", "-n", "1", "--json").end().stdout)
        return record

    def seconds_inside(self) -> float:
        """Return the seconds that the newest run took from taking its lease to its verdict."""
        run = self.newest()
        ended, began = (datetime.fromisoformat(run[name]) for name in ("completed_at", "started_at"))
        return (ended - began).total_seconds()

    def suite(self, url: str, count: int, checks: int = len(CHECKS)) -> Path:
        """Write a suite with `count` cases and the first `checks` checks."""
        folder = self.folder / f"suite-{count}-{checks}"
        folder.mkdir(exist_ok=True)
        with (folder / "cases.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(case) + "\n" for case in cases(count))
        http = {
            "url": f"{url}/ask",
            "body": {"question": "$.test_case.input"},
            "output": "$.answer",
            "metadata": {"topic": "$.topic", "score": "$.score"},
        }
        document = {
            "name": f"bench-{count}",
            "target": {"http": http, "concurrency": CONCURRENCY},
            "test_cases": "cases.jsonl",
            "checks": CHECKS[:checks],
        }
        path = folder / "suite.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        return path


@contextlib.contextmanager
def house() -> Iterator[House]:
    """Yield a house in a temporary folder, with a warm server that ends with it."""
    with TemporaryDirectory(prefix="fepflow-bench-") as name:
        home = House(Path(name), free_port())
        home.module("fepflow.deployments.server", "up").end()
        try:
            with endpoint(0.0) as url:
                home.run(home.suite(url, 10))
            yield home
        finally:
            home.module("fepflow.deployments.server", "down").end()


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
