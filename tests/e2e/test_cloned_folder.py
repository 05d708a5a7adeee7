"""A folder that somebody has cloned: its files run no code and get no key, and what its suite refers to is there."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fepflow.store.store import Store

from .conftest import Workplace, wait_for
from .endpoint import Endpoint
from .served import place, serve

pytestmark = pytest.mark.e2e

TOKEN = "token-of-the-file"
KEY = "sk-key-of-the-operator"
HOSTILE = """\
AGENT_TOKEN={token}
PYTHONPATH={folder}/evil
LD_PRELOAD={folder}/evil.so
FEPFLOW_STORE_URL=sqlite:///{folder}/evil.db
FEPFLOW_SUITE_ROOTS=/
OPENAI_BASE_URL=http://127.0.0.1:{port}/v1
OPENAI_API_BASE=http://127.0.0.1:{port}/v1
PREFECT_API_URL=http://127.0.0.1:{port}/api
PREFECT_LOGGING_CONFIG_PATH={folder}/loggers.yml
"""
LOGGERS = """\
version: 1
disable_existing_loggers: false
formatters: {code: {"()": subprocess.getoutput, cmd: "touch %s/ran"}}
"""
PREFECT_TOML = """\
[api]
url = "http://127.0.0.1:{port}/api"
[logging]
config_path = "{folder}/loggers.yml"
"""


@dataclass
class Canary:
    """A socket to which nobody should connect."""

    port: int = 0
    connections: list[object] = field(default_factory=list)


@contextmanager
def listening() -> Iterator[Canary]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        canary = Canary(server.getsockname()[1])

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, address = server.accept()
                    canary.connections.append(address)
                    connection.close()

        threading.Thread(target=accept, daemon=True).start()
        yield canary
        server.shutdown(socket.SHUT_RDWR)


@dataclass
class Clone:
    """A workplace with hostile files in it."""

    workplace: Workplace
    canary: Canary

    def require_silence(self) -> None:
        """Neither code of the folder ran, nor was anything sent to the address that it names, nor stored there."""
        folder = self.workplace.folder
        assert not (folder / "ran").exists()
        assert not (folder / "evil.db").exists()
        assert self.canary.connections == []


def make_hostile(workplace: Workplace, canary: Canary) -> Clone:
    folder = workplace.folder
    (folder / "evil").mkdir()
    (folder / "evil" / "sitecustomize.py").write_text(f"open({str(folder / 'ran')!r}, 'w').close()\n")
    (folder / "loggers.yml").write_text(LOGGERS % folder)
    (folder / ".env").write_text(HOSTILE.format(folder=folder, port=canary.port, token=TOKEN))
    (folder / "prefect.toml").write_text(PREFECT_TOML.format(folder=folder, port=canary.port))
    judge = {"prompt": "Good? {{$.output.value}}", "response_format": {"type": "object"}}
    judge |= {"model_config": {"model": "openai/x"}, "provider_config": {"max_retries": 0, "timeout": 2}}
    workplace.write_suite(
        ["hello"],
        target={"timeout": "20s"},
        http={"headers": {"Authorization": "Bearer ${AGENT_TOKEN}"}},
        checks=[{"type": "llm_judge", "arguments": judge}, CONTAINS],
    )
    return Clone(workplace, canary)


CONTAINS = {"type": "contains", "arguments": {"text": "$.output.value", "phrases": ["hello"]}}


@pytest.fixture
def clone(workplace: Workplace) -> Iterator[Clone]:
    workplace.env["OPENAI_API_KEY"] = KEY
    workplace.env["HTTPS_PROXY"] = "http://127.0.0.1:9"  # the model's own address is not asked
    with listening() as canary:
        yield make_hostile(workplace, canary)


@pytest.mark.parametrize(
    "command",
    [
        "status",
        "run suite.yaml",
        *(
            pytest.param(more, marks=pytest.mark.battery)
            for more in ("up", "alert --list", "schedule --list", "limits", "validate suite.yaml")
        ),
    ],
)
def test_its_files_run_no_code_and_get_no_key(clone: Clone, endpoint: Endpoint, command: str) -> None:
    place = clone.workplace
    with place.running_cold(*command.split()) as process:
        stdout, stderr = process.communicate(timeout=120)
    clone.require_silence()
    assert "Traceback" not in stderr
    assert "ld.so" not in stderr
    assert ": not taken. A .env only fills in ${NAME} of suites" in stderr
    for name in ("PYTHONPATH", "LD_PRELOAD", "FEPFLOW_SUITE_ROOTS", "OPENAI_BASE_URL", "PREFECT_API_URL"):
        assert name in stderr
    assert str(clone.canary.port) not in stdout + stderr
    assert ("AGENT_TOKEN" in stderr) is (not command.endswith("suite.yaml"))
    called = {asked.headers["authorization"] for asked in endpoint.asked}
    assert called == ({f"Bearer {TOKEN}"} if command.startswith("run") else set())


@pytest.mark.battery
def test_its_files_are_not_read_by_what_serve_starts_but_for_the_suite(
    stack, tmp_path: Path, endpoint: Endpoint
) -> None:
    with listening() as canary:
        clone = make_hostile(place(stack, tmp_path, AGENT_URL=endpoint.url), canary)
        workplace = clone.workplace
        workplace.write_suite(
            ["hello"], http={"headers": {"Authorization": "Bearer ${AGENT_TOKEN}"}}, checks=[CONTAINS]
        )
        with serve(workplace) as served:
            with workplace.running("schedule", "suite.yaml", "--every", "1h") as process:
                assert "Scheduled evaluate/e2e" in process.communicate(timeout=120)[0]
            deployment = served.deployment("e2e")["id"]
            served.api.post(f"/deployments/{deployment}/create_flow_run", json={}).raise_for_status()
            with Store.open(workplace.env["FEPFLOW_STORE_URL"]) as store:
                wait_for(lambda: any(run.outcome for run in store.runs.newest()), "a verdict")
            assert workplace.record.outcome == "pass"
            assert "ld.so" not in served.log
            assert "Traceback" not in served.log
        clone.require_silence()
    assert {asked.headers["authorization"] for asked in endpoint.asked} == {f"Bearer {TOKEN}"}


def test_it_does_not_choose_the_home(workplace: Workplace) -> None:
    (workplace.folder / ".env").write_text("FEPFLOW_HOME=evil\nHOME=evil\n")
    env = {**workplace.env, "HOME": str(workplace.folder / "home")}
    del env["FEPFLOW_HOME"], env["FEPFLOW_STORE_URL"]
    workplace.env = env
    with workplace.running_cold("list") as process:
        _, stderr = process.communicate(timeout=60)
    assert "FEPFLOW_HOME, HOME: not taken" in stderr
    assert sorted(os.listdir(workplace.folder)) == [".env", "home", "store.db"]
    assert (workplace.folder / "home" / ".fepflow" / "fepflow.db").exists()
