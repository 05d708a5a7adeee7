"""Prefect's server as fepflow starts it: each transaction on SQLite takes its turn when it begins."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError

if TYPE_CHECKING:
    from prefect.server.database.configurations import AioSqliteConfiguration


async def two_that_read_and_then_write(database: AioSqliteConfiguration, seconds: float) -> None:
    """Both read the same row, wait until the other one has read it, too, or had time to do so, and add to it."""
    both_have_read = asyncio.Barrier(2)
    engine = await database.engine()
    async with engine.connect() as connection:
        await connection.execute(sa.text("CREATE TABLE counter (value INTEGER)"))
        await connection.execute(sa.text("INSERT INTO counter VALUES (0)"))
        await connection.commit()

    async def add() -> None:
        session = await database.session(engine)
        async with session, database.begin_transaction(session):
            value = await session.scalar(sa.text("SELECT value FROM counter"))
            with suppress(TimeoutError, asyncio.BrokenBarrierError):
                await asyncio.wait_for(both_have_read.wait(), seconds)
            await session.execute(sa.text("UPDATE counter SET value = :value"), {"value": value + 1})
            async with database.begin_transaction(inner := await database.session(engine)), inner:
                assert await inner.scalar(sa.text("SELECT value FROM counter")) == value, "one within another reads"

    try:
        for outcome in await asyncio.gather(add(), add(), return_exceptions=True):  # none is left under way
            if isinstance(outcome, BaseException):
                raise outcome
        async with engine.connect() as connection:
            assert await connection.scalar(sa.text("SELECT value FROM counter")) == 2
    finally:
        await engine.dispose()


def test_a_transaction_that_reads_and_then_writes_is_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect.server.database.configurations import AioSqliteConfiguration  # to load it takes a second

    from fepflow.deployments.prefect_server import begin_immediately

    prefects, ours = (
        AioSqliteConfiguration(f"sqlite+aiosqlite:///{tmp_path / name}.db") for name in ("prefect", "ours")
    )
    with pytest.raises(OperationalError, match="database is locked"):
        asyncio.run(two_that_read_and_then_write(prefects, 60))
    monkeypatch.setattr(AioSqliteConfiguration, "begin_transaction", AioSqliteConfiguration.begin_transaction)
    begin_immediately()
    asyncio.run(two_that_read_and_then_write(ours, 0.2))
