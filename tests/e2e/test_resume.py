"""A run that is killed goes on where it was: nothing that was committed is asked for again, nothing is lost."""

from __future__ import annotations

import random
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing

import pytest

from .conftest import MAIN, Workplace, end, wait_for
from .endpoint import Endpoint
from .essence import essence

pytestmark = pytest.mark.e2e

CASES = [f"question {number}" for number in range(120)]

SLOW_CHECK = """
import time
from pathlib import Path
from checks.base import BaseCheck, JSONPath
from checks.catalogue import register

@register("slow")
class Slow(BaseCheck):
    text: str | JSONPath

    def __call__(self):
        time.sleep(0.01)
        with (Path(__file__).parent / "checked").open("a") as file:
            file.write(self.text + "\\n")
        return {"passed": True}
"""

CHECKS = [
    {"type": "slow", "arguments": {"text": "$.output.value"}},
    {"type": "exact_match", "arguments": {"actual": "$.output.value", "expected": "$.test_case.expected"}},
]

DECIDES_SLOWLY = """
import time
from fepflow.store.store import Store

finish = Store.finish

def finish_slowly(*arguments, **fields):
    open("deciding", "w").close()
    time.sleep(60)
    finish(*arguments, **fields)

Store.finish = finish_slowly
"""


def rows(workplace: Workplace, table: str) -> list[str]:
    """The case of each row of a table, read past all of fepflow."""
    store = workplace.folder / "store.db"
    if not store.exists():
        return []
    query = f"SELECT case_id FROM {table} JOIN run_case USING (run_id, position)"
    with closing(sqlite3.connect(store)) as connection:
        return [case_id for (case_id,) in connection.execute(query)]


def checked(workplace: Workplace) -> Counter[str]:
    """How often the slow check was made for a case."""
    file = workplace.folder / "checked"
    return Counter(file.read_text(encoding="utf-8").splitlines() if file.exists() else ())


def test_a_run_that_is_killed_again_and_again_ends_as_an_undisturbed_one(
    workplace: Workplace, endpoint: Endpoint
) -> None:
    (workplace.folder / "slow.py").write_text(SLOW_CHECK, encoding="utf-8")
    workplace.write_suite(CASES, target={"concurrency": 8}, plugins=["slow.py"], checks=CHECKS)
    elsewhere = {"FEPFLOW_STORE_URL": f"sqlite:///{workplace.folder / 'undisturbed.db'}"}
    undisturbed = workplace.run("--json", **elsewhere).stdout
    endpoint.asked.clear()
    (workplace.folder / "checked").unlink()
    endpoint.delay = 0.05

    def called(number: int) -> Callable[[], bool]:
        return lambda: len(endpoint.asked) >= number

    def answered(number: int) -> Callable[[], bool]:
        return lambda: len(rows(workplace, "check_result")) >= number

    points = [
        called(random.randint(1, 30)),
        called(random.randint(50, 80)),
        answered(random.randint(60, 130)),
        answered(random.randint(140, 220)),
        (workplace.folder / "deciding").exists,
    ]
    command: tuple[object, ...] = ("run", workplace.suite)
    for number, point in enumerate(points):
        outputs, checks = set(rows(workplace, "output")), set(rows(workplace, "check_result"))
        asked_before, checked_before = endpoint.questions, checked(workplace)
        code = DECIDES_SLOWLY + MAIN if number == len(points) - 1 else MAIN
        with workplace.running(*command, code=code) as process:
            wait_for(point, f"point {number}")
            end(process, signal.SIGKILL)
        assert {case for case in outputs if endpoint.questions[case] > asked_before[case]} == set()
        assert {case for case in checks if checked(workplace)[case] > checked_before[case]} == set()
        assert "interrupted" in workplace.fepflow("list").stdout
        command = ("run", "--resume", "latest")

    asked_before, checked_before = endpoint.questions, checked(workplace)
    finished = workplace.fepflow("run", "--resume", "latest", "--json")
    assert finished.returncode == 0, finished.stderr
    assert (endpoint.questions, checked(workplace)) == (asked_before, checked_before), "all was there to be judged"
    assert set(endpoint.questions) == set(CASES)
    assert essence(finished.stdout) == essence(undisturbed)


def test_a_second_executor_makes_no_call_while_the_first_one_is_alive(workplace: Workplace, endpoint: Endpoint) -> None:
    endpoint.held = True
    workplace.write_suite(CASES[:3], target={"concurrency": 1, "timeout": "60s"})
    with workplace.running("run", workplace.suite) as first:
        wait_for(lambda: endpoint.asked, "the first request")
        second = workplace.fepflow("run", "--resume", "latest")
        assert len(endpoint.asked) == 1
        endpoint.held = False
        assert first.wait(60) == 0
    assert second.returncode == 3
    assert "is being executed by" in second.stderr
    assert set(endpoint.questions.values()) == {1}
    assert workplace.record.outcome == "pass"
