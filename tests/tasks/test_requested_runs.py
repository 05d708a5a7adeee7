"""When a requested run that never began is dispatched again."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import cast
from uuid import UUID, uuid4

from prefect.client.orchestration import PrefectClient
from prefect.client.schemas.objects import FlowRun, State
from prefect.states import Failed
from sqlalchemy import update

from fepflow.store.records import RUN
from fepflow.store.store import Store
from fepflow.tasks.reaping import LONGEST_PAUSE, MOST_DISPATCHES, _dispatch_again, _replace_deleted, pause
from tests.tasks.conftest import Plan


def to_be_taken_over(store: Store, plan: Plan, flow_run_id: UUID) -> str:
    """A run of a deployment whose executor is gone."""
    run_id = plan(["a"])
    with store._database.engine.begin() as connection:
        connection.execute(update(RUN).values(takeovers_left=1, flow_run_id=str(flow_run_id)))
    store.leases.acquire(run_id, "another-host/1/x", 0)
    assert store.leases.reap() == [run_id]
    return run_id


def test_pauses_grow_up_to_a_minute() -> None:
    seconds = [pause(times).total_seconds() for times in range(1, 1_000)]
    assert seconds[:6] == [2, 4, 8, 16, 32, LONGEST_PAUSE]
    assert max(seconds) == LONGEST_PAUSE


def test_a_run_whose_flow_run_is_in_another_prefect_is_left_to_its_worker(plan: Plan, store: Store) -> None:
    flow_run_id = uuid4()
    run_id = to_be_taken_over(store, plan, flow_run_id)
    [run] = store.requests.unbegun()
    for minutes, status in ((1, "pending"), (20, "interrupted")):
        now = store.now() + timedelta(minutes=minutes)
        asyncio.run(_replace_deleted(store, run, flow_run_id, now))
        assert store.runs.get(run_id).status == status


class States:
    """The part of Prefect's client that gives and takes the states of a flow run, each of which comes to nothing."""

    def __init__(self) -> None:
        self.states: list[State[None]] = [Failed(message="moved.yaml is not there")]

    async def read_flow_run_states(self, _: UUID) -> list[State[None]]:
        return self.states

    async def set_flow_run_state(self, _: UUID, state: State[None]) -> None:
        self.states += [state, self.states[0]]


def test_a_run_that_no_worker_can_go_on_with_is_given_up(plan: Plan, store: Store) -> None:
    run_id = to_be_taken_over(store, plan, uuid4())
    states = States()
    for _ in range(MOST_DISPATCHES + 1):
        run = store.runs.get(run_id)
        assert run.status == "pending"
        flow_run = FlowRun(id=uuid4(), flow_id=uuid4(), state=states.states[-1])
        asyncio.run(_dispatch_again(store, cast(PrefectClient, states), run, flow_run))
    given_up = store.runs.get(run_id)
    assert given_up.status == "interrupted"
    assert "came to nothing 30 times" in str(given_up.error)
    assert "The last time: Failed: moved.yaml is not there" in str(given_up.error)
