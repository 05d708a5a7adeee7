"""The examples of the documentation: the commands of each page, to the verdict that the page tells."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import free_port

from .conftest import Stack, wait_for

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
SERVICES = ("RAG", "JUDGE", "AGENT", "MODEL")


class Shell:
    """A user's terminal in the repository: it knows the few commands that the pages of examples have."""

    def __init__(self, stack: Stack, store: str) -> None:
        ports = {name: free_port() for name in SERVICES}
        self._ports = {f"{name}_PORT": str(port) for name, port in ports.items()}
        addresses = {f"{name}_URL": f"http://127.0.0.1:{port}" for name, port in ports.items()}
        self._env = {**stack.env, **self._ports, **addresses, "FEPFLOW_STORE_URL": store}
        self._stack = stack
        self._services: list[subprocess.Popen[bytes]] = []

    def run(self, line: str) -> subprocess.CompletedProcess[str] | None:
        """Run a line; returns what a command of fepflow printed, None for a service that was started or ended."""
        if line == "kill %1":
            self._end(self._services.pop(0))
        elif line.startswith("fepflow "):
            words = [str(ROOT / word) if word.startswith("docs/") else word for word in shlex.split(line)[1:]]
            done = self._stack.fepflow(*words, env=self._env, timeout=120)
            assert "Traceback" not in done.stderr, done.stderr
            return done
        else:
            for command in line.removesuffix("&").split("&"):
                self._start(shlex.split(command))
        return None

    def _start(self, words: list[str]) -> None:
        python, script, *options = words
        assert python == "python"
        self._services.append(subprocess.Popen([sys.executable, ROOT / script, *options], env=self._env))
        (port,) = re.findall(r'envvar="(\w+_PORT)"', (ROOT / script).read_text(encoding="utf-8"))
        wait_for(lambda: _answers(int(self._ports[port])), f"{script} to listen")

    def _end(self, service: subprocess.Popen[bytes]) -> None:
        service.terminate()
        service.wait(30)

    def close(self) -> None:
        for service in self._services:
            self._end(service)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def commands_of(example: str) -> list[str]:
    """The commands of an example's page, in their order."""
    page = (EXAMPLES / example / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```console\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    return re.findall(r"^\$ (.*)$", "".join(blocks), re.MULTILINE)


@pytest.fixture
def follow(
    stack: Stack, tmp_path: Path, new_store: Callable[[str], str]
) -> Iterator[Callable[[str], list[subprocess.CompletedProcess[str]]]]:
    """Runs the commands of an example's page; returns what those of fepflow printed."""
    shell = Shell(stack, new_store(f"sqlite:///{tmp_path / 'store.db'}"))

    def run(example: str) -> list[subprocess.CompletedProcess[str]]:
        return [done for line in commands_of(example) if (done := shell.run(line))]

    yield run
    shell.close()


def test_a_rag_service_that_makes_things_up_fails_for_its_answers_alone_until_it_is_repaired(follow) -> None:
    run, failed, _, repaired, compared = follow("rag")
    assert run.returncode == 1, run.stderr
    assert "FAIL  faithfulness: " in run.stdout
    assert "context_recall          24 " in run.stdout
    assert "context_precision       24 " in run.stdout
    assert "discount of 50 percent" in failed.stdout
    assert repaired.returncode == 0, repaired.stdout
    assert re.search(r"^faithfulness +0\.625 +1 +\+0\.375 +0\.18", compared.stdout, re.MULTILINE), compared.stdout


def test_a_tool_agent_that_pays_without_looking_fails_by_its_trajectory_until_it_is_repaired(follow) -> None:
    run, failed, repaired = follow("tool-agent")
    assert run.returncode == 1, run.stderr
    assert "3 of 16 results failed" in run.stdout
    told = re.search(r"^urgent-in-time\n(.*?)(?=^\S)", failed.stdout + "end", re.DOTALL | re.MULTILINE)
    assert told
    assert "trajectory: called refund; wanted lookup_order, then refund, and nothing else" in told[1]
    assert "answer" not in told[1]
    assert repaired.returncode == 0, repaired.stdout


def test_a_matrix_of_prompts_and_models_tells_which_is_better_and_which_passes(follow) -> None:
    run, listed = follow("prompt-matrix")
    assert run.returncode == 1, run.stderr
    shown = re.findall(r"prompt=prompts/v\d\.md .*(the first|better|no difference) *$", run.stdout, re.MULTILINE)
    assert shown == ["the first", "better", "no difference", "better"], run.stdout
    assert sorted(re.findall(r"(fail|inconclusive|pass) *$", listed.stdout, re.MULTILINE)) == [
        "fail",
        "fail",
        "inconclusive",
        "pass",
    ], listed.stdout
