from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from fepflow.settings import settings
from fepflow.store.store import Store
from tests.tasks.conftest import Plan

REAP = """
import asyncio
from fepflow.settings import settings
from fepflow.store.store import Store
from fepflow.tasks import reaping as zombie_runs

zombie_runs.PREFECT_TIMEOUT = 1.0
print(asyncio.run(zombie_runs.reap(Store.open(settings().store_address))))
"""


@pytest.mark.battery
def test_without_prefect_runs_are_still_marked_in_the_store(plan: Plan, store: Store, tmp_path: Path) -> None:
    run_id = plan(["a"])
    store.runs.set_flow_run(run_id, str(uuid4()))
    store.leases.acquire(run_id, "another-host/1/x", 0)
    nowhere = {"PREFECT_API_URL": "http://127.0.0.1:1/api", "PREFECT_HOME": str(tmp_path / "prefect")}
    env = {**os.environ, **nowhere, "FEPFLOW_HOME": str(settings().home)}
    done = subprocess.run(
        [sys.executable, "-c", REAP], env=env, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.stdout == f"['{run_id}']\n", done.stderr
    assert "Traceback" not in done.stderr
    assert store.runs.get(run_id).status == "interrupted"
