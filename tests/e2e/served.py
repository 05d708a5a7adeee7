"""`fepflow serve` in a folder of its own, for the tests that want a whole stack."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from tests.conftest import free_port, login_of
from tests.prefect_api import PrefectAPI

from .conftest import PREFECT_COMMAND, Workplace, wait_for


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
    def rest(self) -> str:
        """Where the REST interface is."""
        return str(json.loads(Path(self.workplace.env["FEPFLOW_HOME"], "api.json").read_text())["rest"])

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
        # Whoever has a proxy keeps Prefect's own command away from it so.
        env = {**self.workplace.env, **self.login, "NO_PROXY": "127.0.0.1"}
        command = self.workplace.stack.warm.command(arguments, env, PREFECT_COMMAND)
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=180, check=False)

    def run_suite(self) -> subprocess.CompletedProcess[str]:
        path = f"suite={self.workplace.suite}"
        return self.prefect("deployment", "run", "evaluate/suite", "--param", path, "--watch")

    def flow_run(self, flow_run_id: str | None) -> dict[str, Any]:
        return self.api.get(f"/flow_runs/{flow_run_id}").raise_for_status().json()

    def deployment(self, name: str) -> dict[str, Any]:
        return self.api.get(f"/deployments/name/evaluate/{name}").raise_for_status().json()

    def runs(self, name: str, *types: str) -> list[dict[str, Any]]:
        """The flow runs of a deployment that are in a state of one of these types."""
        body = {
            "deployments": {"id": {"any_": [self.deployment(name)["id"]]}},
            "flow_runs": {"state": {"type": {"any_": list(types)}}},
        }
        return self.api.post("/flow_runs/filter", json=body).raise_for_status().json()

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
            [sys.executable, "-P", "-m", "fepflow.cli.main", "serve"],
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
    command = [sys.executable, "-P", "-m", "fepflow.cli.main", "serve"]
    done = subprocess.run(
        command, cwd=workplace.folder, env=workplace.env, capture_output=True, text=True, timeout=120, check=False
    )
    assert "Traceback" not in done.stdout + done.stderr
    return done


def place(stack, folder: Path, **env: str) -> Workplace:
    """A folder with a FEPFLOW_HOME and a store of its own."""
    own = {
        "FEPFLOW_HOME": str(stack.new_home(folder / "home")),
        "FEPFLOW_PORT": str(free_port()),
        "FEPFLOW_API_PORT": "0",
        "FEPFLOW_GRPC_PORT": str(free_port()),  # its clients find it again when it was started again
        "PREFECT_WORKER_QUERY_SECONDS": "2",
        "FEPFLOW_REQUESTS_PER_MINUTE": "100000",  # tests look often
    }
    store = f"sqlite:///{folder / 'store.db'}"
    return Workplace(stack, folder, {**own, "FEPFLOW_STORE_URL": store, **env})


def is_healthy(api_url: str) -> bool:
    """Whether a Prefect API answers."""
    try:
        return httpx.get(f"{api_url}/health", timeout=10).status_code == 200
    except httpx.HTTPError:
        return False
