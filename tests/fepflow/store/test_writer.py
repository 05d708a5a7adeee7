import asyncio
import logging

import pytest
from sqlalchemy import event

from fepflow.errors import InfrastructureError
from fepflow.protocol.test_case import Output
from fepflow.store.records import NewOutput
from fepflow.store.store import Store
from fepflow.store.writer import GroupWriter


def output(position: int, value: object = "yes") -> NewOutput:
    return NewOutput(position, 0, "a" * 64, Output(value=value))


@pytest.fixture
def commits(store: Store) -> list[int]:
    """Gets an item for each transaction that is committed."""
    seen: list[int] = []
    event.listen(store._database.engine, "commit", lambda connection: seen.append(1))
    return seen


async def test_rows_are_in_the_store_when_write_returns(store: Store, make_run):
    run = make_run()

    async with GroupWriter(store, run) as writer:
        await writer.write([output(1)], [])

        assert store.present_outputs(run) == {(1, 0)}


async def test_many_callers_share_few_transactions(store: Store, make_run, commits):
    run = make_run(cases=500)
    commits.clear()

    async with GroupWriter(store, run) as writer:
        await asyncio.gather(*(writer.write([output(position)], []) for position in range(500)))

    assert len(store.present_outputs(run)) == 500
    assert len(commits) == 1


async def test_a_group_ends_at_its_bound_but_never_inside_a_callers_rows(store: Store, make_run, commits):
    run = make_run(cases=40)
    commits.clear()

    async with GroupWriter(store, run, max_rows=10) as writer:
        callers = [[output(start + offset) for offset in range(4)] for start in range(0, 40, 4)]
        await asyncio.gather(*(writer.write(rows, []) for rows in callers))

    assert len(store.present_outputs(run)) == 40
    assert len(commits) == 4  # 12 rows each, the last 4


async def test_a_failed_commit_reaches_every_caller_of_its_group_and_no_other(store: Store, make_run):
    run = make_run(cases=2)

    async with GroupWriter(store, run) as writer:
        rows = ([output(0)], [output(99)])
        answers = await asyncio.gather(*(writer.write(some, []) for some in rows), return_exceptions=True)
        await writer.write([output(1)], [])

    assert [type(answer) for answer in answers] == [InfrastructureError] * 2
    assert store.present_outputs(run) == {(1, 0)}


async def test_a_cancelled_callers_rows_and_its_neighbours_are_written(store: Store, make_run):
    run = make_run()

    async with GroupWriter(store, run) as writer:
        callers = [asyncio.create_task(writer.write([output(position)], [])) for position in range(3)]
        await asyncio.sleep(0)
        callers[1].cancel()
        answers = await asyncio.gather(*callers, return_exceptions=True)

    assert [type(answer) for answer in answers] == [type(None), asyncio.CancelledError, type(None)]
    assert store.present_outputs(run) == {(0, 0), (1, 0), (2, 0)}


async def test_leaving_writes_what_nobody_waits_for_any_more(store: Store, make_run):
    run = make_run()

    async def hand_over_and_fail() -> None:
        async with GroupWriter(store, run) as writer:
            caller = asyncio.create_task(writer.write([output(0)], []))
            await asyncio.sleep(0)
            caller.cancel()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await hand_over_and_fail()

    assert store.present_outputs(run) == {(0, 0)}


async def test_being_cancelled_while_leaving_still_writes_everything(store: Store, make_run):
    run = make_run()

    async def work() -> None:
        async with GroupWriter(store, run) as writer:
            callers.append(asyncio.create_task(writer.write([output(0)], [])))
            await asyncio.sleep(0)
            asyncio.current_task().cancel()

    callers: list[asyncio.Task[None]] = []
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(work())

    await callers[0]
    assert store.present_outputs(run) == {(0, 0)}


async def test_rows_that_could_not_be_stored_and_that_nobody_waits_for_are_logged(store: Store, make_run, caplog):
    run = make_run(cases=1)

    with caplog.at_level(logging.ERROR, "fepflow"):
        async with GroupWriter(store, run) as writer:
            caller = asyncio.create_task(writer.write([output(99)], []))
            await asyncio.sleep(0)
            caller.cancel()

    assert "Nobody waits for 1 rows that could not be stored" in caplog.text


async def test_nothing_is_taken_outside_the_context(store: Store, make_run):
    writer = GroupWriter(store, make_run())

    with pytest.raises(RuntimeError, match="async with"):
        await writer.write([output(0)], [])
    async with writer:
        await writer.write([], [])
    with pytest.raises(RuntimeError, match="async with"):
        await writer.write([output(0)], [])

    assert store.present_outputs("run-1") == set()
