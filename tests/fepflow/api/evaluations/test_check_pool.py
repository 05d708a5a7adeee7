"""The processes for requests of others, on a machine that has little time for them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from functools import partial

import pytest

from fepflow.api.evaluations import check_pool
from fepflow.api.evaluations.check_pool import CheckPool
from fepflow.api.evaluations.check_process import Source, Task
from fepflow.api.evaluations.requests import EvaluationRequest


async def test_a_request_whose_process_has_to_wait_is_checked_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(pid: int, _: int) -> None:
        _signal(pid, signal.SIGSTOP)
        asyncio.get_running_loop().call_later(2.5, _signal, pid, signal.SIGCONT)

    monkeypatch.setattr(check_pool, "lower_priority", stop)
    monkeypatch.setattr(check_pool, "Task", partial(Task, seconds=2))  # is less than the pause, were that counted
    body = {
        "test_cases": [{"id": str(index), "input": "a question, " * 10} for index in range(1_000)],
        "outputs": [{"value": "an answer"}] * 1_000,
        "checks": [{"type": "contains", "arguments": {"text": "$.output.value", "phrases": ["answer"]}}],
    }
    async with CheckPool.open() as pool:
        reading, work = await pool.begin(Source(EvaluationRequest.read_json, json.dumps(body).encode()), frozenset())
        await work
    statuses = {check.status for result in reading.results.all() for check in result.check_results}
    assert statuses == {"completed"}


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
