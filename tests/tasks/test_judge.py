"""What is known of a run before it has ended. Its verdict is in test_decide."""

from __future__ import annotations

import pytest

from fepflow.store.store import Store
from tasks.batches import Batch
from tasks.call_target import call_target
from tasks.judge import metrics_so_far
from tasks.run_checks import run_checks_of_batch
from tasks.runtime import open_runtime

from .conftest import Plan


async def test_metrics_so_far_count_what_is_to_come(plan: Plan, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENT_TOKEN", "abcdefgh")
    headers = {"Authorization": "Bearer ${AGENT_TOKEN}"}
    gate = {"min": {"acc": 0.9}}
    metrics = [{"id": "acc", "check": "exact_match"}]
    run_id = plan(["a", "b", "c", "d"], target={"http": {"headers": headers}}, metrics=metrics, gate=gate)
    async with open_runtime(run_id) as runtime:
        await call_target(runtime, Batch(0, 3))
        await run_checks_of_batch(runtime, Batch(0, 2))
        monkeypatch.delenv("AGENT_TOKEN")  # whoever looks need not have what the target needs
        (metric,) = metrics_so_far(store, store.run(run_id))
    assert (metric["id"], metric["value"], metric["n_completed"], metric["n_expected"]) == ("acc", 1.0, 2, 4)
    assert metric["low"] < 0.5, "the two that are to come may fail"
    assert metric["threshold"] == 0.9
    assert "outcome" not in metric
