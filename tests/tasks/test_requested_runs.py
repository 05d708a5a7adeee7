"""When a requested run that never began is dispatched again."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import uuid4

from sqlalchemy import update

from fepflow.store.records import RUN
from fepflow.store.store import Store
from fepflow.tasks.reaping import LONGEST_PAUSE, _replace_deleted, pause
from tests.tasks.conftest import Plan


def test_pauses_grow_up_to_a_minute() -> None:
    seconds = [pause(times).total_seconds() for times in range(1, 1_000)]
    assert seconds[:6] == [2, 4, 8, 16, 32, LONGEST_PAUSE]
    assert max(seconds) == LONGEST_PAUSE


def test_a_run_whose_flow_run_is_in_another_prefect_is_left_to_its_worker(plan: Plan, store: Store) -> None:
    run_id, flow_run_id = plan(["a"]), uuid4()
    with store._database.engine.begin() as connection:
        connection.execute(update(RUN).values(takeovers_left=1, flow_run_id=str(flow_run_id)))
    store.leases.acquire(run_id, "another-host/1/x", 0)
    assert store.leases.reap() == [run_id]
    [run] = store.requests.unbegun()
    for minutes, status in ((1, "pending"), (20, "interrupted")):
        now = store.now() + timedelta(minutes=minutes)
        asyncio.run(_replace_deleted(store, run, flow_run_id, now))
        assert store.runs.get(run_id).status == status
