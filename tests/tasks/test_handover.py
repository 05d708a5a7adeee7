from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from sqlalchemy import event

from fepflow.flows.evaluate import evaluate
from fepflow.store.store import Store
from fepflow.tasks.local_run import LocalRun, local_run, run_store
from fepflow.tasks.open_run import open_run
from tests.tasks.conftest import Plan


@pytest.fixture
def begun(plan: Plan, store: Store) -> Iterator[LocalRun]:
    """A run that this process has begun."""
    handed = LocalRun(store.runs.get(plan(["a"])), store)
    token = local_run.set(handed)
    yield handed
    local_run.reset(token)


async def test_a_local_run_uses_the_store_that_the_process_has_open(begun: LocalRun) -> None:
    statements: list[str] = []
    event.listen(begun.store._database.engine, "before_cursor_execute", lambda *said: statements.append(said[2]))
    async with run_store() as shared, open_run(begun.run.id, store=shared):
        assert any("lease_owner" in statement for statement in statements), "over the connections of the command"
    assert begun.store.runs.get(begun.run.id).status == "running", "and it is still open"


async def test_a_flow_of_a_worker_opens_the_store_itself(plan: Plan, store: Store) -> None:
    run_id = plan(["a"])
    async with run_store() as opened:
        assert opened._database.engine is not store._database.engine
        assert opened.runs.get(run_id).id == run_id


def test_a_local_flow_run_has_the_name_of_its_run_and_reads_no_suite(begun: LocalRun) -> None:
    assert callable(evaluate.flow_run_name)
    assert evaluate.flow_run_name() == begun.run.name


async def test_an_interruption_cancels_the_work_of_the_flow(begun: LocalRun) -> None:
    async def work() -> None:
        async with run_store():
            at_work.set()
            await asyncio.sleep(60)

    at_work = asyncio.Event()
    flow = asyncio.create_task(work())
    await at_work.wait()
    begun.interruption.request()
    with pytest.raises(asyncio.CancelledError):
        await flow


async def test_an_interruption_waits_until_the_work_of_the_flow_begins(begun: LocalRun) -> None:
    async def flow() -> None:
        await asyncio.sleep(0)
        engine.append("has begun the flow run")
        async with run_store():
            pytest.fail("the work has begun")

    engine: list[str] = []
    under_way = asyncio.create_task(flow())
    begun.interruption.request()
    with pytest.raises(asyncio.CancelledError):
        await under_way
    assert engine == ["has begun the flow run"]


async def test_an_interruption_after_the_work_of_the_flow_leaves_its_end_alone(begun: LocalRun) -> None:
    async def flow() -> str:
        async with run_store():
            await asyncio.sleep(0)
        begun.interruption.request()
        await asyncio.sleep(0)
        return "has told Prefect"

    assert await asyncio.create_task(flow()) == "has told Prefect"
