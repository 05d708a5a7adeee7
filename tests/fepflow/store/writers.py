"""Work for processes of their own: each writes to a store, and sends what it has committed."""

from __future__ import annotations

import asyncio
import os
import random
import resource
from multiprocessing.connection import Connection

from fepflow.errors import InfrastructureError
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output
from fepflow.store.leases import new_owner
from fepflow.store.records import NewCheckResult, NewOutput, RunRecord
from fepflow.store.store import Store
from fepflow.store.writer import BatchWriter


def rows_of(case_index: int, content_hash: str = "a" * 64) -> tuple[list[NewOutput], list[NewCheckResult]]:
    """An output of a case and its three checks."""
    result = CheckResult(check_type="contains", status="completed", results={}, evaluated_at=utc_now())
    checks = [NewCheckResult(case_index, 0, name, content_hash, result, True) for name in ("c", "a", "b")]
    return [NewOutput(case_index, 0, content_hash, Output(value="x" * 500))], checks


def write_all(connection: Connection, url: str, cases: int) -> None:
    """Write all cases of the run in random order, one call each; like a run, wait for a database that is locked."""
    with Store.open(url, 30) as store:
        for case_index in random.sample(range(cases), cases):
            store.results.write("run-1", *rows_of(case_index))
            connection.send(case_index)


def write_missing(connection: Connection, url: str, cases: int) -> None:
    """Write the cases that the run lacks as a run does: many callers at once through a BatchWriter, a case's output and
    checks in one go. All rows of a case carry the number of the process."""
    with Store.open(url) as store:
        present = {case_index for case_index, _ in store.results.outputs("run-1")}
        missing = [case_index for case_index in range(cases) if case_index not in present]

        async def write(writer: BatchWriter) -> None:
            while missing:
                case_index = missing.pop()
                writer.add(*rows_of(case_index, str(os.getpid())))
                await writer.committed()
                connection.send(case_index)
                await asyncio.sleep(0.002)

        async def main() -> None:
            connection.send("begun")
            async with BatchWriter(store, "run-1", interval=0.01) as writer:
                await asyncio.gather(*(write(writer) for _ in range(4)))

        asyncio.run(main())


def create_run(connection: Connection, url: str, run_id: str) -> None:
    """Create a run without test cases."""
    with Store.open(url) as store:
        store.runs.create(RunRecord(id=run_id, name="n", suite={}, repeats=1), [])
    connection.send(run_id)


def write_over_the_limit(connection: Connection, url: str) -> None:
    """Write more than a file of this process may hold, and send the error."""
    store = Store.open(url)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    rows = [NewOutput(case_index, 0, "a" * 64, Output(value="x" * 10_000)) for case_index in range(100)]
    try:
        store.results.write("run-1", rows, [])
    except InfrastructureError as error:
        connection.send(str(error))


def open_store(connection: Connection, url: str) -> None:
    """Open a store, and send how many runs it has."""
    with Store.open(url) as store:
        connection.send(len(store.runs.newest()))


def name_owner(connection: Connection) -> None:
    """Send the name of this process as an executor."""
    connection.send(new_owner())
