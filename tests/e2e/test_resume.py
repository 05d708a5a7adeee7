"""A run that is killed goes on where it was: nothing that was committed is asked for again, nothing is lost."""

from __future__ import annotations

import logging
import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing

import pytest

from fepflow.store.store import Store

from .comparison import comparable
from .conftest import MAIN, Workplace, wait_for
from .endpoint import Endpoint

pytestmark = pytest.mark.e2e

logger = logging.getLogger(__name__)

CASES = [f"question {number}" for number in range(120)]

SLOW_CHECK = """
import time
from pathlib import Path
from fepflow.checks.base import BaseCheck, JSONPath
from fepflow.checks.registry import register

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
from fepflow.store.leases import Leases

finish = Leases.finish

def finish_slowly(*arguments, **fields):
    open("deciding", "w").close()
    time.sleep(60)
    finish(*arguments, **fields)

Leases.finish = finish_slowly
"""


def rows(workplace: Workplace, table: str) -> list[str]:
    """The case of each row of a table, read past all of fepflow."""
    store = workplace.folder / "store.db"
    if not store.exists():
        return []
    query = f"SELECT case_id FROM {table} JOIN run_case USING (run_id, case_index)"
    with closing(sqlite3.connect(store)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [table]).fetchone():
            return []
        return [case_id for (case_id,) in connection.execute(query)]


def planned(workplace: Workplace) -> bool:
    """Whether there is a run to go on with."""
    with Store.open(workplace.env["FEPFLOW_STORE_URL"]) as store:
        return store.runs.newest() != []


def checked(workplace: Workplace) -> Counter[str]:
    """How often the slow check was made for a case."""
    file = workplace.folder / "checked"
    return Counter(file.read_text(encoding="utf-8").splitlines() if file.exists() else ())


class Killed:
    """A suite that runs undisturbed once, and then is killed at points of one's choice and gone on with."""

    def __init__(self, workplace: Workplace, endpoint: Endpoint, cases: Sequence[str]) -> None:
        self.workplace = workplace
        self.endpoint = endpoint
        self.cases = cases
        self.kills = 0
        self.flow_runs: set[str] = set()
        (workplace.folder / "slow.py").write_text(SLOW_CHECK, encoding="utf-8")
        workplace.write_suite(cases, target={"concurrency": 8}, plugins=["slow.py"], checks=CHECKS)
        elsewhere = {"FEPFLOW_STORE_URL": f"sqlite:///{workplace.folder / 'undisturbed.db'}"}
        self.undisturbed = workplace.run("--json", **elsewhere).stdout
        endpoint.asked.clear()
        (workplace.folder / "checked").unlink()
        endpoint.delay = 0.05

    def calls(self, more: int) -> Callable[[], bool]:
        """The moment when so many more calls have been made."""
        wanted = len(self.endpoint.asked) + more
        return lambda: len(self.endpoint.asked) >= wanted

    def checks(self, more: int) -> Callable[[], bool]:
        """The moment when so many more results of checks are committed."""
        wanted = len(rows(self.workplace, "check_result")) + more
        return lambda: len(rows(self.workplace, "check_result")) >= wanted

    def kill(self, moment: Callable[[], bool], code: str = "") -> None:
        """Run or go on, up to that moment or the end; nothing that was committed is done again."""
        workplace = self.workplace
        outputs, answered = set(rows(workplace, "output")), set(rows(workplace, "check_result"))
        asked_before, checked_before = self.endpoint.questions, checked(workplace)
        command = ("run", "--resume", "latest") if self.kills else ("run", str(workplace.suite))
        with workplace.running(*command, code=code) as process:
            wait_for(lambda: moment() or process.poll() is not None, f"the moment of kill {self.kills + 1}")
            process.kill()
            _, err = process.communicate(timeout=60)
        assert process.returncode in (0, -signal.SIGKILL), err
        self.kills += 1
        self.flow_runs.add(str(workplace.record.flow_run_id))
        assert {case for case in outputs if self.endpoint.questions[case] > asked_before[case]} == set()
        assert {case for case in answered if checked(workplace)[case] > checked_before[case]} == set()
        assert "running" not in workplace.fepflow("list").stdout

    def finish(self) -> None:
        """Go on to the end; the result is that of an undisturbed run."""
        finished = self.workplace.fepflow("run", "--resume", "latest", "--json")
        assert finished.returncode == 0, finished.stderr
        ends = {self.workplace.stack.api.state_of(flow_run)[0] for flow_run in self.flow_runs - {"None"}}
        assert ends <= {"CRASHED", "COMPLETED"}, "Prefect has been told of all that were killed"
        assert set(self.endpoint.questions) == set(self.cases)
        assert comparable(finished.stdout) == comparable(self.undisturbed)


def test_a_run_that_is_killed_again_and_again_ends_as_an_undisturbed_one(
    workplace: Workplace, endpoint: Endpoint
) -> None:
    killed = Killed(workplace, endpoint, CASES)
    killed.kill(killed.calls(random.randint(1, 60)))
    killed.kill((workplace.folder / "deciding").exists, DECIDES_SLOWLY + MAIN)
    asked_before, checked_before = endpoint.questions, checked(workplace)
    killed.finish()
    assert (endpoint.questions, checked(workplace)) == (asked_before, checked_before), "all was there to be judged"


@pytest.mark.battery
def test_twenty_five_kills(workplace: Workplace, endpoint: Endpoint) -> None:
    killed = Killed(workplace, endpoint, [f"question {number}" for number in range(400)])

    def after(seconds: float) -> Callable[[], bool]:
        moment = time.monotonic() + seconds
        return lambda: time.monotonic() >= moment

    for _ in range(25):
        moments = [
            killed.calls(random.randint(1, 20)),
            killed.checks(random.randint(1, 40)),
            after(random.uniform(0, 6)),
        ]
        killed.kill(random.choice(moments))
        if not planned(workplace):
            killed.kills = 0
    killed.finish()
    again = sum(endpoint.questions.values()) - len(killed.cases)
    logger.info("25 kills: 400 cases, 0 lost; %d calls that were under way were made again", again)


@pytest.mark.battery
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
