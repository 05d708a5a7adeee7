"""Many processes, and processes that are killed: nothing that was acknowledged is lost, doubled or partial."""

import random
import subprocess
import sys
import time
from collections import Counter

import pytest

from fepflow.store.store import Store

CASES = 200

# Writes all cases in random order, one call with an output and three checks each, and prints a case's index after
# its rows are committed.
WRITER = """
import random, sys
from datetime import UTC, datetime
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output
from fepflow.store.records import NewCheckResult, NewOutput
from fepflow.store.store import Store

url, cases = sys.argv[1], int(sys.argv[2])
store = Store.open(url)

def check(case_index, name):
    result = CheckResult(check_type="contains", status="completed", results={}, evaluated_at=datetime.now(UTC))
    return NewCheckResult(case_index, 0, name, "a" * 64, result, True)

for case_index in random.sample(range(cases), cases):
    output = NewOutput(case_index, 0, "a" * 64, Output(value="x" * 500))
    store.results.write("run-1", [output], [check(case_index, name) for name in ("c", "a", "b")])
    print(case_index, flush=True)
"""


def start_writer(url: str, cases: int = CASES) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, url, str(cases)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def checks_per_case(store: Store) -> Counter[int]:
    return Counter(row.case_index for row in store.results.check_rows("run-1", results=False))


@pytest.mark.battery
def test_four_processes_write_the_same_run_without_locks_or_duplicates(store: Store, url, make_run):
    make_run(cases=CASES)

    writers = [start_writer(url) for _ in range(4)]
    ends = [writer.communicate() for writer in writers]

    assert [errors for _, errors in ends] == [""] * 4
    assert [len(printed.split()) for printed, _ in ends] == [CASES] * 4
    assert store.results.progress("run-1").outputs == CASES
    assert checks_per_case(store) == dict.fromkeys(range(CASES), 3)


def test_killed_writers_lose_nothing_that_was_acknowledged_and_leave_no_case_partial(store: Store, url, make_run):
    make_run(cases=CASES)
    acknowledged: set[int] = set()

    for _ in range(3):
        writer = start_writer(url)
        first = writer.stdout.readline()
        time.sleep(random.uniform(0, 0.2))
        writer.kill()
        rest = writer.stdout.read()  # communicate() would lose what came along with the first line
        writer.communicate()
        # The last line may have been cut off by the kill.
        acknowledged |= {int(line) for line in (first + rest).splitlines(keepends=True) if line.endswith("\n")}

        outputs = {case_index for case_index, _ in store.results.outputs("run-1")}
        assert acknowledged <= outputs
        assert checks_per_case(store) == dict.fromkeys(outputs, 3)

    assert len(acknowledged) >= 6
