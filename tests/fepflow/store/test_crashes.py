"""The writing process is killed again and again: no committed row is lost, none is there twice, no case is partial."""

import logging
import random
import subprocess
import sys
import time

import pytest
from sqlalchemy import text

from fepflow.protocol.test_case import TestCase
from fepflow.store.records import RunRecord
from fepflow.store.store import Store

CASES_A_KILL = 40
"""More than a writer gets to."""

# As a run writes: many callers at once through a BatchWriter, a case's output and checks in one go. All rows of a case
# carry the number of the process. A case's index is printed once it is committed.
WRITER = """
import asyncio, os, sys
from datetime import UTC, datetime
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output
from fepflow.store.records import NewCheckResult, NewOutput
from fepflow.store.store import Store
from fepflow.store.writer import BatchWriter

store, cases, content_hash = Store.open(sys.argv[1]), int(sys.argv[2]), str(os.getpid())
present = {case_index for case_index, _ in store.results.outputs("run-1")}
missing = [case_index for case_index in range(cases) if case_index not in present]
result = CheckResult(check_type="contains", status="completed", results={}, evaluated_at=datetime.now(UTC))

async def write(writer):
    while missing:
        case_index = missing.pop()
        output = NewOutput(case_index, 0, content_hash, Output(value="x" * 500))
        names = ("c", "a", "b")
        writer.add([output], [NewCheckResult(case_index, 0, name, content_hash, result, True) for name in names])
        await writer.committed()
        print(case_index, flush=True)
        await asyncio.sleep(0.002)

async def main():
    print("begun", flush=True)
    async with BatchWriter(store, "run-1", interval=0.01) as writer:
        await asyncio.gather(*(write(writer) for _ in range(4)))

asyncio.run(main())
"""

PARTIAL = text("""
    SELECT count(*) FROM (
        SELECT output.case_index FROM output
        LEFT JOIN check_result ON check_result.case_index = output.case_index
        GROUP BY output.case_index
        HAVING count(*) <> 3 OR min(check_result.content_hash) <> max(output.content_hash)
            OR max(check_result.content_hash) <> max(output.content_hash)
    ) AS partial
""")
STRAY = text("SELECT count(*) FROM check_result WHERE case_index NOT IN (SELECT case_index FROM output)")

logger = logging.getLogger(__name__)


def killed_writer(url: str, cases: int) -> set[int]:
    """Start a writer, kill it at a random moment; the cases that it knew to be committed."""
    command = [sys.executable, "-c", WRITER, url, str(cases)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "begun\n"
        time.sleep(random.uniform(0, 0.15))
        writer.kill()
        # The last line may have been cut off by the kill.
        lines = writer.stdout.read().splitlines(keepends=True)
    return {int(line) for line in lines if line.endswith("\n")}


def kill_writers(url: str, kills: int) -> None:
    acknowledged: set[int] = set()
    cases = kills * CASES_A_KILL
    with Store.open(url) as store:
        run = RunRecord(id="run-1", name="n", suite={}, repeats=1)
        store.runs.create(run, (TestCase(id=str(number), input=number) for number in range(cases)))
        for number in range(kills):
            acknowledged |= killed_writer(url, cases)
            present = {case_index for case_index, _ in store.results.outputs("run-1")}
            assert acknowledged <= present, f"lost by kill {number}"
            with store._database.reading() as connection:
                assert connection.scalar(PARTIAL) == 0, f"partial after kill {number}"
                assert connection.scalar(STRAY) == 0, f"stray after kill {number}"
    assert len(acknowledged) > kills / 2, "the writers were killed before they wrote anything"
    logger.info("%d kills: %d cases acknowledged, %d committed, 0 lost", kills, len(acknowledged), len(present))


def test_three_kills(sqlite_url: str) -> None:
    kill_writers(sqlite_url, 3)


@pytest.mark.battery
def test_five_hundred_kills(sqlite_url: str) -> None:
    kill_writers(sqlite_url, 500)


@pytest.mark.battery
def test_fifty_kills_on_postgresql(postgresql_url: str) -> None:
    kill_writers(postgresql_url, 50)
