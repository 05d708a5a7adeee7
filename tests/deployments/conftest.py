"""A running demo agent, and what it tells about the cases of the demo suite."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "deployments" / "suites" / "demo"


@dataclass(frozen=True)
class Told:
    """What became of a question: how its tries ended (a status, or "dropped"), and the last reply."""

    tries: tuple[int | str, ...]
    reply: dict[str, Any]


@dataclass(frozen=True)
class Agent:
    """A demo agent in a process of its own."""

    process: subprocess.Popen[str]
    address: str

    def ask(self, question: str, tries: int = 3) -> Told:
        """Ask until there is an answer, at most `tries` times."""
        return _ask(httpx, self.address, question, tries)

    def ask_all(self, questions: list[str]) -> list[Told]:
        """Ask many questions at a time; the result is in their order."""
        with httpx.Client() as client, ThreadPoolExecutor(40) as threads:
            return list(threads.map(lambda question: _ask(client, self.address, question, 3), questions))


def _ask(client: Any, address: str, question: str, tries: int) -> Told:
    ends: list[int | str] = []
    reply: dict[str, Any] = {}
    while len(ends) < tries and 200 not in ends:
        try:
            response = client.post(f"{address}/ask", json={"question": question}, timeout=30)
        except httpx.TransportError:
            ends.append("dropped")
        else:
            ends.append(response.status_code)
            reply = response.json()
    return Told(tuple(ends), reply)


@contextmanager
def _started(seed: int) -> Iterator[Agent]:
    command = [sys.executable, "-m", "fepflow.deployments.simulators.demo_agent", "--port", "0", "--seed", str(seed)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Agent(process, process.stdout.readline().strip())
        finally:
            process.terminate()


@pytest.fixture(scope="session")
def start_agent() -> Callable[[int], AbstractContextManager[Agent]]:
    """Starts an agent with a seed, for the length of a `with` block."""
    return _started


@pytest.fixture(scope="session")
def agent() -> Iterator[Agent]:
    """An agent with the demo's seed."""
    with _started(7) as running:
        yield running


@pytest.fixture(scope="session")
def cases() -> list[dict[str, Any]]:
    """The cases of the demo suite, as they stand in their file."""
    return [json.loads(line) for line in (DEMO / "cases.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="session")
def story(agent: Agent, cases: list[dict[str, Any]]) -> list[Told]:
    """What the agent tells about each case."""
    return agent.ask_all([case["input"] for case in cases])
