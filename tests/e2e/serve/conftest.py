"""One `fepflow serve` for all tests of this folder; those of `test_serve.py` come last, and end it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import free_port

from ..conftest import Workplace
from ..endpoint import Endpoint, serving
from ..served import Served, place, serve

OLD_DEPLOYMENTS = """
deployments:
  - name: suite
    entrypoint: fepflow.flows.evaluate.evaluate
    work_pool: {name: fepflow}
"""
"""A file of before there was a deployment of requested runs."""


@pytest.fixture(scope="package")
def agent() -> Iterator[Endpoint]:
    """What the suite of the stack's folder calls."""
    with serving() as running:
        yield running


@pytest.fixture(scope="package")
def folder(stack: Any, agent: Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    folder = tmp_path_factory.mktemp("served")
    (folder / "prefect.yaml").write_text(OLD_DEPLOYMENTS, encoding="utf-8")
    # The proxy answers nobody: agents on this machine are not called through one.
    env = {"AGENT_URL": agent.url, "FEPFLOW_AGENT_HOSTS": "127.0.0.1", "HTTP_PROXY": "http://127.0.0.1:9"}
    workplace = place(stack, folder, FEPFLOW_METRICS_PORT=str(free_port()), **env)
    workplace.write_suite(["hello"], target={"timeout": "300s"})
    return workplace


@pytest.fixture(scope="package")
def served(folder: Workplace) -> Iterator[Served]:
    with serve(folder) as running:
        yield running


@pytest.fixture(scope="package")
def key(served: Served) -> str:
    """An API key: from now on the interfaces ask for one."""
    return served.workplace.fepflow("keys", "create", "e2e").stdout.strip()
