"""Runs of suites from a person's side: a folder with a suite, the command line, an endpoint that counts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest
from ruamel.yaml import YAML

from fepflow.store.records import CaseResult, RunRecord
from fepflow.store.store import Store
from tests.prefect_api import PrefectAPI
from tests.warm_commands import WarmCommands

from .endpoint import Endpoint, serving

MAIN = "import fepflow.cli.main as m; m.main()"
PREFECT_COMMAND = "from prefect.cli import app; app()"
"""Code that is Prefect's own command line."""


class Stack(Protocol):
    """The local server of the session, as `tests/conftest.py` has it."""

    home: Path
    env: dict[str, str]
    api_url: str
    api: PrefectAPI
    prefect: dict[str, str]
    fepflow: Callable[..., subprocess.CompletedProcess[str]]
    python: Callable[..., str]
    warm: WarmCommands


class Workplace:
    """A folder with a suite in it, and the command line."""

    def __init__(self, stack: Stack, folder: Path, env: Mapping[str, str]) -> None:
        self.stack = stack
        self.folder = folder
        self.env = {**stack.env, **env}

    @property
    def suite(self) -> Path:
        return self.folder / "suite.yaml"

    def write_suite(self, cases: Sequence[Any], **sections: Any) -> None:
        """A suite that asks the endpoint each case's input; a case that is a text is its own id, input and answer."""
        whole = [case if isinstance(case, dict) else {"id": case, "input": case, "expected": case} for case in cases]
        rows = "".join(json.dumps(case) + "\n" for case in whole)
        (self.folder / "cases.jsonl").write_text(rows, encoding="utf-8")
        target = {"timeout": "20s", "attempts": 2, "retries": 0, **sections.pop("target", {})}
        http = {"url": "${AGENT_URL}", "body": {"question": "$.test_case.input"}, "output": "$.answer"}
        target["http"] = {**http, **sections.pop("http", {})}
        same = {"type": "exact_match", "arguments": {"actual": "$.output.value", "expected": "$.test_case.expected"}}
        document = {"name": "e2e", "target": target, "test_cases": "cases.jsonl", "checks": [same], **sections}
        with self.suite.open("w", encoding="utf-8") as file:
            YAML().dump(document, file)

    def fepflow(self, *arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end. Whatever happens, nobody gets to see a traceback."""
        done = self.stack.fepflow(*arguments, env={**self.env, **env}, timeout=240)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def run(self, *arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
        return self.fepflow("run", self.suite, *arguments, **env)

    @property
    def record(self) -> RunRecord:
        """The newest run."""
        with Store.open(self.env["FEPFLOW_STORE_URL"]) as store:
            return store.runs.get("latest")

    @property
    def results(self) -> dict[str, CaseResult]:
        """What the store has of the newest run, by case."""
        with Store.open(self.env["FEPFLOW_STORE_URL"]) as store:
            return {result.case.id: result for result in store.results.by_case(store.runs.get("latest").id)}

    def running(
        self, *arguments: str | Path, code: str = "", **env: str
    ) -> AbstractContextManager[subprocess.Popen[str]]:
        """A command, or this code instead of it, that is under way; killed at the end of the block if it still is."""
        return self._process(self.stack.warm.command(list(map(str, arguments)), {**self.env, **env}, code), env)

    def running_cold(
        self, *arguments: str | Path, code: str = MAIN, **env: str
    ) -> AbstractContextManager[subprocess.Popen[str]]:
        """The same; the process is the command's own, and begins without any import."""
        return self._process([sys.executable, "-P", "-c", code, *map(str, arguments)], env)

    @contextmanager
    def _process(self, command: Sequence[str], env: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            command,
            cwd=self.folder,
            env={**self.env, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # A shell that runs the tests in the background lets its children ignore Ctrl-C; a terminal does not.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.kill()


def wait_for(condition: Callable[[], object], what: str, seconds: float = 120) -> None:
    """Look until it is so, every 10 ms, or less often where a look takes long; fail after a while."""
    deadline = time.monotonic() + seconds
    looked = time.monotonic()
    while not condition():
        now = time.monotonic()
        assert now < deadline, f"waited {seconds:g} s in vain: {what}"
        time.sleep(min(max(0.01, 3 * (now - looked)), 0.5))
        looked = time.monotonic()


def end(process: subprocess.Popen[str], number: signal.Signals) -> tuple[str, str]:
    """Signal a process and wait for it; what it printed."""
    os.kill(process.pid, number)
    return process.communicate(timeout=60)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with serving() as running:
        yield running


@pytest.fixture
def workplace(stack: Stack, tmp_path: Path, endpoint: Endpoint, new_store: Callable[[str], str]) -> Workplace:
    """A folder of its own, with a store of its own; the Prefect server is everybody's."""
    store = new_store(f"sqlite:///{tmp_path / 'store.db'}")
    return Workplace(stack, tmp_path, {"AGENT_URL": endpoint.url, "FEPFLOW_STORE_URL": store})
