"""What the worker starts a run with."""

from __future__ import annotations

import shlex
import sys
from uuid import uuid4

import pytest
from prefect.client.schemas import FlowRun

from fepflow.deployments.worker import EngineConfiguration


@pytest.mark.parametrize(
    ("given", "command"),
    [(None, [sys.executable, "-m", "prefect.engine"]), ("nice python -m prefect.engine", None)],
    ids=["nothing", "a command"],
)
def test_a_run_begins_with_the_pools_command_or_at_once_in_the_workers_python(
    given: str | None, command: list[str] | None
) -> None:
    configuration = EngineConfiguration(command=given)
    configuration.prepare_for_flow_run(FlowRun(flow_id=uuid4()))
    assert configuration._command_configured, "Prefect does not look for the flow's code in a process of its own"
    assert shlex.split(str(configuration.command)) == (command or shlex.split(str(given)))
