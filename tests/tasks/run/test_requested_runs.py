"""When a requested run that never began is over."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun, State, StateType

from fepflow.protocol.model import utc_now
from tasks.run.requested_runs import STARTING, _end_of


def flow_run(kind: StateType, age: timedelta = timedelta(0), message: str | None = None) -> FlowRun:
    state: State[None] = State(type=kind, timestamp=utc_now() - age, message=message)
    return FlowRun(flow_id=uuid4(), state=state)


@pytest.mark.parametrize("kind", [StateType.SCHEDULED, StateType.PAUSED])
def test_one_that_waits_may_wait_for_good(kind: StateType) -> None:
    assert _end_of(flow_run(kind, 100 * STARTING)) is None


@pytest.mark.parametrize("kind", [StateType.PENDING, StateType.RUNNING, StateType.CANCELLING])
def test_a_process_that_is_slow_to_start_is_not_taken_for_one_that_is_gone(kind: StateType) -> None:
    assert _end_of(flow_run(kind, timedelta(minutes=5))) is None
    found = _end_of(flow_run(kind, STARTING + timedelta(seconds=1)))
    assert found is not None
    assert found[0] == ("cancelled" if kind == StateType.CANCELLING else "failed")
    assert "did not begin within 10 minutes" in found[1]


def test_one_that_is_over_in_prefect_is_over_and_says_why() -> None:
    crashed = _end_of(flow_run(StateType.CRASHED, message="exit code 137"))
    assert crashed is not None
    assert crashed[0] == "failed"
    assert "exit code 137" in crashed[1]
    assert _end_of(flow_run(StateType.CANCELLED)) == ("cancelled", "cancelled before it began")
    completed = _end_of(flow_run(StateType.COMPLETED))
    assert completed is not None
    assert completed[0] == "failed", "a flow that ended well without its run has evaluated nothing"
    assert _end_of(None) == ("failed", "its flow run was deleted in Prefect before it began")
