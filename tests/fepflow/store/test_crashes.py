"""Many writing processes, and ones that are killed: no committed row is lost or there twice, no case is partial."""

import logging
import random
import time
from collections import Counter

import pytest
from sqlalchemy import text

from fepflow.protocol.test_case import TestCase
from fepflow.store.records import RunRecord
from fepflow.store.store import Store

from .processes import received, started
from .writers import write_all, write_missing

CASES_A_KILL = 40
"""More than a writer gets to."""

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


def checks_per_case(store: Store) -> Counter[int]:
    return Counter(row.case_index for row in store.results.check_rows("run-1", results=False))


@pytest.mark.battery
def test_four_processes_write_the_same_run_without_locks_or_duplicates(store: Store, url, make_run):
    make_run(cases=100)

    with (
        started(write_all, url, 100) as (first, of_first),
        started(write_all, url, 100) as (second, of_second),
        started(write_all, url, 100) as (third, of_third),
        started(write_all, url, 100) as (fourth, of_fourth),
    ):
        written = [len(received(connection)) for connection in (of_first, of_second, of_third, of_fourth)]
        for process in (first, second, third, fourth):
            process.join()
            assert process.exitcode == 0

    assert written == [100] * 4
    assert store.results.progress("run-1").outputs == 100
    assert checks_per_case(store) == dict.fromkeys(range(100), 3)


def killed_writer(url: str, cases: int, *, has_committed: bool) -> set[int]:
    """Start a writer, kill it at a random moment; the cases that it knew to be committed."""
    with started(write_missing, url, cases) as (writer, connection):
        assert connection.recv() == "begun"
        connection.poll(60 if has_committed else 0)
        time.sleep(random.uniform(0, 0.15))
        writer.kill()
        return set(received(connection))


def kill_writers(url: str, kills: int) -> None:
    acknowledged: set[int] = set()
    cases = kills * CASES_A_KILL
    with Store.open(url) as store:
        run = RunRecord(id="run-1", name="n", suite={}, repeats=1)
        store.runs.create(run, (TestCase(id=str(number), input=number) for number in range(cases)))
        for number in range(kills):
            acknowledged |= killed_writer(url, cases, has_committed=number % 2 == 0)
            present = {case_index for case_index, _ in store.results.outputs("run-1")}
            assert acknowledged <= present, f"lost by kill {number}"
            with store._database.reading() as connection:
                assert connection.scalar(PARTIAL) == 0, f"partial after kill {number}"
                assert connection.scalar(STRAY) == 0, f"stray after kill {number}"
    assert len(acknowledged) >= kills / 2, "the writers were killed before they wrote anything"
    logger.info("%d kills: %d cases acknowledged, %d committed, 0 lost", kills, len(acknowledged), len(present))


def test_three_kills(url: str) -> None:
    kill_writers(url, 3)


@pytest.mark.battery
def test_five_hundred_kills(sqlite_url: str) -> None:
    kill_writers(sqlite_url, 500)


@pytest.mark.battery
def test_fifty_kills_on_postgresql(postgresql_url: str) -> None:
    kill_writers(postgresql_url, 50)
