"""Flow runs whose process is gone, on a real server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from fepflow.store.records import NewRun
from fepflow.store.store import Store

pytestmark = pytest.mark.e2e

CRASH = """
import asyncio, json, sys
from fepflow.store.store import Store
from tasks.crash_interrupted import crash_interrupted
with Store.open(sys.argv[1]) as store:
    print(json.dumps(asyncio.run(crash_interrupted(store))))
"""


class Scene:
    """A store, and flow runs of a flow on the server."""

    def __init__(self, stack, folder: Path) -> None:
        self.stack = stack
        self.url = f"sqlite:///{folder / 'store.db'}"
        self.flow_id = self._post("/flows/", {"name": "evaluate"})["id"]

    def _post(self, path: str, document: object):
        return httpx.post(self.stack.api_url + path, json=document).raise_for_status().json()

    def start_flow_run(self) -> str:
        flow_run_id = self._post("/flow_runs/", {"flow_id": self.flow_id, "state": {"type": "PENDING"}})["id"]
        self.set_running(flow_run_id)
        return flow_run_id

    def set_running(self, flow_run_id: str) -> None:
        self._post(f"/flow_runs/{flow_run_id}/set_state", {"state": {"type": "RUNNING"}, "force": True})

    def start_run(self, flow_run_id: str, seconds: float) -> str:
        """A run of the flow run, whose executor on another machine has a lease for so long."""
        run = NewRun(uuid4().hex, "dead", {"name": "dead"}, None, 1, flow_run_id=flow_run_id)
        with Store.open(self.url) as store:
            store.create_run(run, [])
            store.acquire_lease(run.id, "elsewhere/1/x", seconds)
            store.reap()
        return run.id

    def crash(self) -> list[str]:
        """In a process of its own: Prefect takes its settings once."""
        env = {**self.stack.env, "PREFECT_API_URL": self.stack.api_url}
        command = [sys.executable, "-P", "-c", CRASH, self.url]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def state(self, flow_run_id: str) -> dict[str, str]:
        return httpx.get(f"{self.stack.api_url}/flow_runs/{flow_run_id}").raise_for_status().json()["state"]


@pytest.fixture
def scene(stack, tmp_path: Path) -> Scene:
    return Scene(stack, tmp_path)


def test_the_flow_run_of_an_interrupted_run_is_crashed_with_the_reason(scene: Scene) -> None:
    flow_run = scene.start_flow_run()
    run_id = scene.start_run(flow_run, seconds=-1)
    assert scene.crash() == [run_id]
    state = scene.state(flow_run)
    assert (state["type"], state["name"]) == ("CRASHED", "Crashed")
    assert f"fepflow run --resume {run_id}" in state["message"]
    assert scene.crash() == []


def test_what_is_alive_retried_or_of_another_store_goes_on(scene: Scene) -> None:
    alive, retried, foreign = (scene.start_flow_run() for _ in range(3))
    scene.start_run(alive, seconds=600)
    scene.start_run(retried, seconds=-1)
    scene.set_running(retried)
    assert scene.crash() == []
    assert {scene.state(flow_run)["type"] for flow_run in (alive, retried, foreign)} == {"RUNNING"}
