"""A process worker of a work pool of its own, as a machine that takes runs from Prefect has one."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil

from .conftest import Stack

ROOT = Path(__file__).parent.parent.parent
TEMPLATE = {"job_configuration": {"stream_output": False}, "variables": {"type": "object", "properties": {}}}


class Pool:
    """A work pool with one deployment of the evaluate flow, and workers that can be started and killed."""

    def __init__(self, stack: Stack, env: Mapping[str, str], name: str | None = None) -> None:
        self.api = stack.api
        self.env = {**env, **stack.prefect, "PREFECT_WORKER_QUERY_SECONDS": "1"}
        self.env["FEPFLOW_SUITE_ROOTS"] = tempfile.gettempdir()
        self.name = name or f"pool-{uuid4().hex[:8]}"
        self.worker: subprocess.Popen[bytes] | None = None
        if name is None:
            self.post("/work_pools/", {"name": self.name, "type": "process", "base_job_template": TEMPLATE})
        self.deployment = self.deploy("evaluate", self.name, "fepflow.flows.evaluate.evaluate")

    def deploy(self, flow: str, name: str, entrypoint: str) -> str:
        """Make a deployment of the pool; its id."""
        flow_id = self.post("/flows/", {"name": flow})["id"]
        takes = {"type": "object", "properties": {"suite": {"title": "suite", "type": "string"}}}
        body: dict[str, Any] = {"name": name, "flow_id": flow_id, "work_pool_name": self.name}
        body |= {"entrypoint": entrypoint, "parameter_openapi_schema": takes, "enforce_parameter_schema": False}
        return str(self.post("/deployments/", body)["id"])

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """What the API answers."""
        return self.api.post(path, json=body).raise_for_status().json()

    def run(self, **parameters: Any) -> str:
        """Order a run; the flow run's id."""
        return str(self.post(f"/deployments/{self.deployment}/create_flow_run", {"parameters": parameters})["id"])

    def start_worker(self, *options: str) -> None:
        self.worker = subprocess.Popen(
            [sys.executable, "-P", "-m", "fepflow.deployments.worker", "--pool", self.name, *options],
            cwd=ROOT,
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def processes(self) -> list[psutil.Process]:
        """The processes of its runs, which the worker's fork server has started."""
        own = psutil.Process(self.worker.pid).children() if self.worker else []
        return [process for child in own for process in child.children(recursive=True)]

    def kill(self) -> None:
        """The machine is gone: the worker and all it has started, at once."""
        if self.worker is not None:
            worker = psutil.Process(self.worker.pid)
            for process in [*worker.children(recursive=True), worker]:
                with suppress(psutil.NoSuchProcess):  # it has just ended by itself
                    process.kill()
            self.worker.wait()
            self.worker = None


@contextmanager
def working(stack: Stack, env: Mapping[str, str]) -> Iterator[Pool]:
    """A pool with a running worker; killed at the end."""
    pool = Pool(stack, env)
    pool.start_worker()
    try:
        yield pool
    finally:
        pool.kill()
