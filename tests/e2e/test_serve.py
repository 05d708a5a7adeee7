"""`fepflow serve` from a person's side: one stack, which heals itself, tells the truth and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from tests.conftest import login_of
from tests.prefect_api import PrefectAPI

from .conftest import Workplace, wait_for
from .endpoint import Endpoint, serving

pytestmark = pytest.mark.e2e

SCRIPTED = """
name: greeting
target: {recorded: {path: outputs.jsonl, id: $.id}}
test_cases: [{id: hello, input: hello}]
checks: [{type: contains, arguments: {text: $.output.value, phrases: [hello]}}]
"""

OWN_DEPLOYMENT = """
deployments:
  - name: mine
    entrypoint: flows.evaluate.evaluate
    parameters: {suite: suite.yaml}
    work_pool: {name: fepflow}
"""


class Served:
    """A `fepflow serve` in a folder of its own."""

    def __init__(self, workplace: Workplace, process: subprocess.Popen[bytes], log: Path) -> None:
        self.workplace = workplace
        self.process = process
        self._log = log
        self.api_url = workplace.env.get("PREFECT_API_URL", f"http://127.0.0.1:{workplace.env['FEPFLOW_PORT']}/api")

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def pids(self, child: str) -> list[int]:
        """The processes that this child has been, the newest last."""
        return [int(pid) for pid in re.findall(rf"^{child} +│ started, process (\d+)$", self.log, re.MULTILINE)]

    @property
    def login(self) -> dict[str, str]:
        """What makes Prefect use its server, as `fepflow status --env` says it."""
        env = self.workplace.env
        login = env.get("PREFECT_API_AUTH_STRING") or login_of(env["FEPFLOW_HOME"])
        return {"PREFECT_API_URL": self.api_url, "PREFECT_API_AUTH_STRING": login}

    @property
    def api(self) -> PrefectAPI:
        return PrefectAPI(self.api_url.replace("://", f"://{self.login['PREFECT_API_AUTH_STRING']}@", 1))

    def prefect(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        env = {**self.workplace.env, **self.login}
        command = [sys.executable, "-P", "-m", "prefect", *arguments]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=180, check=False)

    def run_suite(self) -> subprocess.CompletedProcess[str]:
        path = f"suite={self.workplace.suite}"
        return self.prefect("deployment", "run", "evaluate/suite", "--param", path, "--watch")

    def flow_run(self, flow_run_id: str | None) -> dict[str, Any]:
        return self.api.get(f"/flow_runs/{flow_run_id}").raise_for_status().json()

    def family(self) -> list[int]:
        """Every process of this stack that is there, by the home that is in its environment."""
        home = self.workplace.env["FEPFLOW_HOME"]
        return [process.pid for process in psutil.process_iter() if _environment(process).get("FEPFLOW_HOME") == home]


def _environment(process: psutil.Process) -> Mapping[str, str]:
    try:
        return {} if process.status() == psutil.STATUS_ZOMBIE else process.environ()
    except psutil.Error:
        return {}


@contextmanager
def serve(workplace: Workplace) -> Iterator[Served]:
    """A serve that is ready; killed at the end with all its processes if it is still there."""
    log = workplace.folder / "serve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "surfaces.cli.main", "serve"],
            cwd=workplace.folder,
            env=workplace.env,
            stdout=output,
            stderr=output,
        )
    served = Served(workplace, process, log)
    try:
        wait_for(lambda: "ready: " in served.log or process.poll() is not None, "a stack that is ready", 400)
        assert process.poll() is None, served.log
        yield served
    finally:
        process.kill()
        process.wait()
        for pid in served.family():
            os.kill(pid, signal.SIGKILL)


def serve_in_vain(workplace: Workplace) -> subprocess.CompletedProcess[str]:
    """A serve that ends by itself."""
    command = [sys.executable, "-P", "-m", "surfaces.cli.main", "serve"]
    done = subprocess.run(
        command, cwd=workplace.folder, env=workplace.env, capture_output=True, text=True, timeout=120, check=False
    )
    assert "Traceback" not in done.stdout + done.stderr
    return done


def place(stack, folder: Path, **env: str) -> Workplace:
    """A folder with a FEPFLOW_HOME and a store of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    own = {
        "FEPFLOW_HOME": str(stack.new_home(folder / "home")),
        "FEPFLOW_PORT": port,
        "PREFECT_WORKER_QUERY_SECONDS": "2",
    }
    store = f"sqlite:///{folder / 'store.db'}"
    return Workplace(stack, folder, {**own, "FEPFLOW_STORE_URL": store, **env})


@pytest.fixture(scope="module")
def agent() -> Iterator[Endpoint]:
    with serving() as running:
        yield running


@pytest.fixture(scope="module")
def served(stack, agent: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The stack of all tests here; the last one ends it."""
    workplace = place(stack, tmp_path_factory.mktemp("served"), AGENT_URL=agent.url)
    workplace.write_suite(["hello"], target={"timeout": "300s"})
    with serve(workplace) as running:
        yield running


@pytest.fixture
def held(agent: Endpoint) -> Iterator[Endpoint]:
    """An agent that answers nobody."""
    agent.held = True
    yield agent
    agent.held = False


@contextmanager
def run_under_way(served: Served, agent: Endpoint) -> Iterator[subprocess.Popen[str]]:
    asked = len(agent.asked)
    with served.workplace.running("run", served.workplace.suite, **served.login) as process:
        wait_for(lambda: len(agent.asked) > asked, "a call")
        yield process


def record_when(served: Served, condition: Callable[[RunRecord], bool], what: str, seconds: float) -> RunRecord:
    """The newest run, read without reaping, once it is so."""
    with Store.open(served.workplace.env["FEPFLOW_STORE_URL"]) as store:
        wait_for(lambda: condition(store.run("latest")), what, seconds)
        return store.run("latest")


def test_a_deployment_runs_on_its_worker(served: Served) -> None:
    done = served.run_suite()
    assert done.returncode == 0, done.stdout + done.stderr
    record = served.workplace.record
    assert record.outcome == "pass"
    assert served.flow_run(record.flow_run_id)["state_name"] == "Completed"
    assert "worker   │ " in served.log


def test_it_listens_on_the_loopback_only(served: Served) -> None:
    family = [psutil.Process(pid) for pid in served.family()]
    listening = [socket for one in family for socket in one.net_connections() if socket.status == psutil.CONN_LISTEN]
    assert {socket.laddr.ip for socket in listening} == {"127.0.0.1"}


@pytest.mark.battery
def test_a_second_serve_of_the_same_home_names_the_first(served: Served) -> None:
    done = serve_in_vain(served.workplace)
    assert done.returncode == 3
    assert f"process {served.process.pid}" in done.stderr
    assert "FEPFLOW_HOME" in done.stderr


@pytest.mark.battery
def test_a_worker_that_was_killed_is_started_again(served: Served) -> None:
    os.kill(served.pids("worker")[-1], signal.SIGKILL)
    wait_for(lambda: len(served.pids("worker")) == 2, "another worker")
    done = served.run_suite()
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.battery
def test_a_server_that_was_killed_is_started_again_at_the_same_place(served: Served) -> None:
    state = served.workplace.fepflow("status").stdout
    (pid,) = map(int, re.findall(r"local server, process (\d+)", state))
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: len(served.pids("server")) == 2, "another server")
    wait_for(lambda: _is_healthy(served.api_url), "its answer", 120)
    assert served.workplace.fepflow("status").stdout != state


@pytest.mark.battery
def test_a_run_whose_process_was_killed_is_interrupted_within_a_minute(served: Served, held: Endpoint) -> None:
    with run_under_way(served, held) as process:
        process.kill()
        killed = time.monotonic()
        record = record_when(served, lambda run: run.status == "interrupted", "an interrupted run", 60)
        left = 60 - (time.monotonic() - killed)
        wait_for(lambda: served.flow_run(record.flow_run_id)["state_name"] == "Crashed", "a crashed flow run", left)
    assert record.id in served.flow_run(record.flow_run_id)["state"]["message"]


def test_ctrl_c_ends_everything_also_a_run_that_is_under_way(served: Served, held: Endpoint) -> None:
    asked = len(held.asked)
    started = served.prefect("deployment", "run", "evaluate/suite", "--param", f"suite={served.workplace.suite}")
    assert started.returncode == 0, started.stderr
    wait_for(lambda: len(held.asked) > asked, "a call", 120)
    served.process.send_signal(signal.SIGINT)
    assert served.process.wait(timeout=20) == 0
    assert served.family() == []
    assert served.log.index("worker   │ stopped") < served.log.index("reaper   │ stopped")
    assert served.log.index("reaper   │ stopped") < served.log.index("server   │ stopped")
    assert not _is_healthy(served.api_url)
    record = record_when(served, lambda _: True, "a run", 1)
    assert record.status in ("interrupted", "cancelled")


@pytest.mark.battery
def test_an_api_that_is_configured_is_used_and_stays(stack, tmp_path: Path) -> None:
    workplace = place(stack, tmp_path, **stack.prefect)
    (tmp_path / "prefect.yaml").write_text(OWN_DEPLOYMENT, encoding="utf-8")
    workplace.suite.write_text(SCRIPTED, encoding="utf-8")
    (tmp_path / "outputs.jsonl").write_text('{"id": "hello", "value": "hello there"}\n', encoding="utf-8")
    with serve(workplace) as served:
        assert served.pids("server") == []
        done = served.prefect("deployment", "run", "evaluate/mine", "--watch")
        assert done.returncode == 0, done.stdout + done.stderr
        assert workplace.record.outcome == "pass"
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(timeout=20) == 0
        assert served.family() == []
    assert _is_healthy(stack.api_url)


@pytest.mark.battery
def test_deployments_that_cannot_be_registered_are_reported(stack, tmp_path: Path) -> None:
    workplace = place(stack, tmp_path, **stack.prefect)
    broken = OWN_DEPLOYMENT.replace("flows.evaluate.evaluate", "flows.evaluate.nobody")
    (tmp_path / "prefect.yaml").write_text(broken, encoding="utf-8")
    done = serve_in_vain(workplace)
    assert done.returncode == 3
    assert "nobody" in done.stdout
    assert str(tmp_path / "prefect.yaml") in done.stdout
    assert "not registered" in done.stderr


@pytest.mark.battery
def test_a_port_in_use_is_an_error(stack, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        workplace = place(stack, tmp_path, FEPFLOW_PORT=str(taken.getsockname()[1]))
        done = serve_in_vain(workplace)
    assert done.returncode == 3
    assert "FEPFLOW_PORT" in done.stdout
    assert "did not start" in done.stderr


def _is_healthy(api_url: str) -> bool:
    try:
        return httpx.get(f"{api_url}/health", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False
