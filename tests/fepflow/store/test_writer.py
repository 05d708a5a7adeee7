import asyncio
import logging

import pytest
from sqlalchemy import event

from fepflow.errors import InfrastructureError
from fepflow.protocol.test_case import Output
from fepflow.store.records import NewOutput
from fepflow.store.store import Store
from fepflow.store.writer import BatchWriter


def output(case_index: int, value: object = "yes") -> NewOutput:
    return NewOutput(case_index, 0, "a" * 64, Output(value=value))


@pytest.fixture
def commits(store: Store) -> list[int]:
    """Gets an item for each transaction that is committed."""
    seen: list[int] = []
    event.listen(store._database.engine, "commit", lambda connection: seen.append(1))
    return seen


async def test_rows_are_in_the_store_once_they_are_committed(store: Store, make_run):
    run = make_run()

    async with BatchWriter(store, run) as writer:
        writer.add([output(1)])
        await writer.committed()

        assert store.results.outputs(run).keys() == {(1, 0)}


async def test_many_callers_share_few_transactions(store: Store, make_run, commits):
    run = make_run(cases=500)
    commits.clear()

    async with BatchWriter(store, run) as writer:
        for case_index in range(500):
            writer.add([output(case_index)])
        await writer.committed()

    assert len(store.results.outputs(run).keys()) == 500
    assert len(commits) == 1


async def test_rows_that_a_caller_waits_for_do_not_wait_for_others(store: Store, make_run):
    run = make_run()

    async with BatchWriter(store, run, interval=3600) as writer:
        for case_index in range(2):
            writer.add([output(case_index)])
            await writer.committed()

    assert len(store.results.outputs(run).keys()) == 2


async def test_rows_that_nobody_waits_for_are_committed_all_the_same(store: Store, make_run, commits):
    run = make_run()
    commits.clear()

    async with BatchWriter(store, run, interval=0.05) as writer:
        writer.add([output(0)])
        writer.add([output(1)])
        async with asyncio.timeout(30):
            while not store.results.outputs(run).keys():  # noqa: ASYNC110  # the rows come from a task of the writer
                await asyncio.sleep(0.01)
        assert len(commits) == 1


async def test_a_group_ends_at_its_bound_but_never_inside_a_callers_rows(store: Store, make_run, commits):
    run = make_run(cases=40)
    commits.clear()

    async with BatchWriter(store, run, max_rows=10) as writer:
        for start in range(0, 40, 4):
            writer.add([output(start + offset) for offset in range(4)])
        await writer.committed()

    assert len(store.results.outputs(run).keys()) == 40
    assert len(commits) == 4  # 12 rows each, the last 4


async def test_each_caller_waits_for_its_own_rows_only(store: Store, make_run):
    run = make_run(cases=40)

    async def caller(case_index: int) -> bool:
        writer.add([output(case_index)])
        await writer.committed()
        return (case_index, 0) in store.results.outputs(run)

    async with BatchWriter(store, run, max_rows=3) as writer:
        assert all(await asyncio.gather(*map(caller, range(40))))


async def test_a_failed_commit_reaches_every_caller_and_stops_new_ones(store: Store, make_run, caplog):
    run = make_run(cases=2)

    async def caller(case_index: int) -> None:
        writer.add([output(case_index)])
        await writer.committed()

    with caplog.at_level(logging.ERROR, "fepflow"):
        async with BatchWriter(store, run) as writer:
            answers = await asyncio.gather(caller(0), caller(99), return_exceptions=True)
            with pytest.raises(InfrastructureError):
                writer.add([output(1)])

    assert [type(answer) for answer in answers] == [InfrastructureError] * 2
    assert "2 rows could not be stored" in caplog.text
    assert store.results.outputs(run).keys() == set()


async def test_leaving_the_context_writes_pending_rows(store: Store, make_run):
    run = make_run()

    async def hand_over_and_fail() -> None:
        async with BatchWriter(store, run) as writer:
            writer.add([output(0)])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await hand_over_and_fail()

    assert store.results.outputs(run).keys() == {(0, 0)}


async def test_being_cancelled_while_leaving_still_writes_everything(store: Store, make_run):
    run = make_run()

    async def work() -> None:
        async with BatchWriter(store, run) as writer:
            writer.add([output(0)])
            asyncio.current_task().cancel()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(work())

    assert store.results.outputs(run).keys() == {(0, 0)}


async def test_nothing_is_taken_outside_the_context(store: Store, make_run):
    writer = BatchWriter(store, make_run())

    with pytest.raises(RuntimeError, match="async with"):
        writer.add([output(0)])
    async with writer:
        await writer.committed()
    with pytest.raises(RuntimeError, match="async with"):
        writer.add([output(0)])

    assert store.results.outputs("run-1") == {}
