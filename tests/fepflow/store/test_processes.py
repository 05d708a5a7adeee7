"""Many processes, and processes that are killed: nothing that was acknowledged is lost, doubled or partial."""

import random
import subprocess
import sys
import time
from collections import Counter

from sqlalchemy import text

from fepflow.protocol.test_case import TestCase
from fepflow.store.records import NewRun
from fepflow.store.store import Store

CASES = 200

# Writes all cases in random order, an output and three checks each, some cases in a call, and prints the positions
# after their rows are committed.
WRITER = """
import random, sys
from datetime import UTC, datetime
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output
from fepflow.store.records import NewCheck, NewOutput
from fepflow.store.store import Store

url, cases, at_once = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
store = Store.open(url)

def check(position, name):
    result = CheckResult(check_type="contains", status="completed", results={}, evaluated_at=datetime.now(UTC))
    return NewCheck(position, 0, name, "a" * 64, result, True)

order = random.sample(range(cases), cases)
for start in range(0, cases, at_once):
    some = order[start : start + at_once]
    outputs = [NewOutput(position, 0, "a" * 64, Output(value="x" * 500)) for position in some]
    store.write("run-1", outputs, [check(position, name) for position in some for name in ("c", "a", "b")])
    print(*some, sep="\\n", flush=True)
"""


def start_writer(url: str, at_once: int = 1) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, url, str(CASES), str(at_once)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def checks_per_case(store: Store) -> Counter[int]:
    return Counter(position for position, _, _ in store.present_checks("run-1"))


def test_four_processes_write_the_same_run_without_locks_or_duplicates(store: Store, url, make_run):
    make_run(cases=CASES)

    writers = [start_writer(url) for _ in range(4)]
    ends = [writer.communicate() for writer in writers]

    assert [errors for _, errors in ends] == [""] * 4
    assert [len(printed.split()) for printed, _ in ends] == [CASES] * 4
    assert store.progress("run-1").outputs == CASES
    assert checks_per_case(store) == dict.fromkeys(range(CASES), 3)


def test_batches_that_overlap_are_written_without_a_deadlock(postgresql_url):
    with Store.open(postgresql_url) as store:
        run = NewRun(id="run-1", name="n", suite={}, suite_path=None, repeats=1)
        store.create_run(run, (TestCase(id=str(number), input=number) for number in range(CASES)))

        writers = [start_writer(postgresql_url, at_once=40) for _ in range(4)]
        ends = [writer.communicate() for writer in writers]

        assert [errors for _, errors in ends] == [""] * 4
        assert checks_per_case(store) == dict.fromkeys(range(CASES), 3)
        with store._database.reading() as connection:
            connection.execute(text("SELECT pg_stat_force_next_flush()"))
            statistics = text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
            assert connection.scalar(statistics) == 0


def test_killed_writers_lose_nothing_that_was_acknowledged_and_leave_no_case_partial(store: Store, url, make_run):
    make_run(cases=CASES)
    acknowledged: set[int] = set()

    for _ in range(6):
        writer = start_writer(url)
        first = writer.stdout.readline()
        time.sleep(random.uniform(0, 0.2))
        writer.kill()
        rest, _ = writer.communicate()
        # The last line may have been cut off by the kill.
        acknowledged |= {int(line) for line in (first + rest).splitlines(keepends=True) if line.endswith("\n")}

        outputs = {position for position, _ in store.present_outputs("run-1")}
        assert acknowledged <= outputs
        assert checks_per_case(store) == dict.fromkeys(outputs, 3)

    assert len(acknowledged) >= 6
