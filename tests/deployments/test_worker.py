"""What the worker forks its runs from. That runs are forked, cancelled and killed is shown by the tests of `serve`."""

from __future__ import annotations

import importlib
import inspect
import logging
import subprocess
import sys

import pytest
from prefect._internal.observers import FlowRunCancellingObserver
from prefect.events import related
from prefect.runtime import deployment
from prefect.workers.base import BaseWorker


def test_the_steps_of_prefects_worker_that_ours_skips_are_still_there() -> None:
    submitting = inspect.getsource(BaseWorker._submit_run_and_capture_errors)
    for name in ("_give_worker_labels_to_flow_run", "_propose_submitting_state"):
        assert f"await self.{name}(flow_run" in submitting


def test_the_parts_of_prefect_that_ours_fills_or_replaces_are_still_used() -> None:
    from prefect.server.events.storage import database  # to load Prefect's server takes a second

    assert "cache=RESOURCE_CACHE" in inspect.getsource(related.related_resources_from_run_context)
    assert "return CACHED_DEPLOYMENT[deployment_id]" in inspect.getsource(deployment._get_deployment)
    assert "await _write_sqlite_events(session, events)" in inspect.getsource(database.write_events)


def test_a_server_that_restarts_leaves_no_traceback_in_the_workers_log(caplog: pytest.LogCaptureFixture) -> None:
    importlib.import_module("fepflow.deployments.warm_worker")
    observer = FlowRunCancellingObserver(on_cancelling=lambda _: None)
    observer.logger.propagate = True
    with caplog.at_level(logging.WARNING, logger=observer.logger.name):
        observer.logger.warning("The websocket failed.", exc_info=ConnectionRefusedError())
    (record,) = caplog.records
    assert (record.getMessage(), record.exc_info) == ("The websocket failed.", None)


def test_what_runs_are_forked_from_has_one_thread_and_everything_but_litellm() -> None:
    wanted = ["fepflow.flows.evaluate", "fepflow.flows.evaluate_shard", "prefect.task_engine", "aiohttp"]
    code = f"""
import sys, threading
import fepflow.deployments.warm_start
assert threading.active_count() == 1, threading.enumerate()
assert set({wanted}) <= set(sys.modules)
assert "litellm" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
