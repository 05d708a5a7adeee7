"""The overview of suites, and a suite's cases over its runs."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest

from fepflow.pages import routes
from fepflow.pages.suite_page import suite_view
from fepflow.protocol.model import utc_now
from fepflow.protocol.test_case import Output, TestCase
from fepflow.services.prefect_api import ScheduledRuns, suite_tag
from fepflow.store.store import Store
from tests.fepflow.conftest import NO_ANSWER
from tests.fepflow.pages.conftest import Row, answer, fill, simple
from tests.fepflow.pages.test_pages import page

SetScheduled = Callable[..., None]


@pytest.fixture
def schedule(monkeypatch: pytest.MonkeyPatch) -> SetScheduled:
    """Sets what Prefect answers to the question for scheduled runs."""

    def set_to(*runs: dict[str, Any], known: bool = True) -> None:
        monkeypatch.setattr(routes, "scheduled_runs", lambda: ScheduledRuns(known, list(runs)))

    return set_to


def run_in(minutes: float, suite: str) -> dict[str, Any]:
    moment = utc_now() + timedelta(minutes=minutes)
    return {"expected_start_time": moment.isoformat(), "tags": [suite_tag(suite)]}


def test_the_overview_has_a_card_for_each_suite(client: httpx.Client, store: Store, schedule: SetScheduled) -> None:
    fill(store, [simple(f"good {number}") for number in range(60)], run_id="aaaa1111")
    fill(store, [simple(f"good {number}") for number in range(60)], run_id="aaaa2222")
    fill(store, [simple("only")], run_id="bbbb2222", name="other suite")
    schedule(run_in(90, "refunds"))
    shown = page(client, "/")
    other, refunds = shown.partition(" refunds ")[::2]
    assert "Pass" in refunds
    assert "accuracy 1 0.9398 to 1, n = 60" in refunds
    assert "Next run 20" in refunds
    assert "2 runs · trends" in refunds
    assert "Inconclusive" in other
    assert "No run is scheduled" in other
    assert client.get("/suites").headers["location"] == "/"


def test_what_is_wrong_with_a_suite_comes_first(client: httpx.Client, store: Store, schedule: SetScheduled) -> None:
    fill(store, [simple(f"good {number}") for number in range(60)], run_id="aaaa1111")
    fill(store, [simple(f"good {number}", number > 30) for number in range(60)], run_id="aaaa2222")
    fill(store, [simple("a")], run_id="bbbb0000", name="cannot", ended=False)
    store.leases.finish("bbbb0000", "host/1/a", "failed", error="the agent is gone")
    fill(store, [simple(f"good {number}") for number in range(60)], run_id="cccc1111", name="late")
    fill(store, [simple(f"good {number}") for number in range(60)], run_id="dddd1111", name="well")
    schedule(run_in(-5, "late"), run_in(60, "well"))
    shown = page(client, "/")
    assert "! Worse than the run before: Pass, now Fail." in shown
    assert "! The last run could not be evaluated: the agent is gone" in shown
    assert re.search(r"! A run was due at [\d: -]+ UTC and has not begun: is a worker alive\?", shown)
    assert shown.count("Next run") == 1, "one that is late is no next one"
    assert shown.index(" well ") > max(shown.index(f" {name} ") for name in ("refunds", "cannot", "late"))


def test_a_drift_is_still_told_after_the_run_that_raised_the_alarm(client: httpx.Client, store: Store) -> None:
    for number, failed in enumerate((0, 30, 3)):
        fill(store, [simple(f"{case}", case >= failed) for case in range(60)], run_id=f"aaaa{number}111")
    assert re.search(
        r"! accuracy drifted: the run of \d\d \w+ raised the alarm, and no later run has\.", page(client, "/")
    )
    assert "the last one on" in page(client, "/trends", suite="refunds")


def test_an_overview_does_not_need_prefect(client: httpx.Client, store: Store) -> None:
    fill(store, [simple("a")], run_id="aaaa1111")
    shown = page(client, "/")
    assert "Prefect does not answer, so scheduled runs are unknown." in shown
    assert "No run is scheduled" not in shown
    assert "Next run" not in shown


def test_a_prefect_that_does_not_answer_is_waited_for_once(
    client: httpx.Client, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, [simple("a")], run_id="aaaa1111")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{silent.getsockname()[1]}/api")
        took = []
        for _ in range(2):
            begun = time.monotonic()
            assert "Prefect does not answer" in page(client, "/")
            took.append(time.monotonic() - begun)
    assert took[0] > 2.5, "it was asked"
    assert took[1] < 2.5


def test_cases_that_flip_come_first_with_since_when(client: httpx.Client, store: Store) -> None:
    history = {
        "always wrong": "000",
        "broken in the last": "110",
        "mended": "011",
        "unsteady": "010",
        "good": "111",
    }
    for number in range(3):
        rows = [simple(name, states[number] == "1") for name, states in history.items()]
        fill(store, rows, run_id=f"aaaa{number}000")
    view = suite_view(store, "refunds")
    cases = {case.case_id: case for case in view.cases}
    assert list(cases) == ["unsteady", "broken in the last", "mended", "always wrong"]
    assert cases["unsteady"].states == ["failed", "passed", "failed"]
    assert (cases["unsteady"].flips, cases["mended"].flips, cases["always wrong"].flips) == (2, 1, 0)
    assert [cases[name].since.id for name in ("unsteady", "broken in the last", "mended")] == [
        "aaaa2000",
        "aaaa2000",
        "aaaa1000",
    ]
    shown = page(client, "/suite", suite="refunds")
    assert "always wrong failed in all these runs" in shown
    assert "good" not in shown.partition("Case Now")[2]
    html = client.get("/suite?suite=refunds").text
    assert '<a href="/runs/aaaa2000/case?id=unsteady"><span aria-hidden="true">✗</span><span class="sr">failed' in html
    signs = re.findall(r'<a href="/runs/(\w+)/case\?id=mended">.*?<span class="sr">(\w+)', html)
    assert signs == [("aaaa2000", "passed"), ("aaaa1000", "passed"), ("aaaa0000", "failed")], "newest first"


def test_a_case_without_an_answer_or_that_a_run_does_not_have_is_not_called_passed(
    client: httpx.Client, store: Store
) -> None:
    silent = Row(TestCase(id="silent", input=1), [NO_ANSWER], {"says_so": answer(error="no output")})
    half = Row(TestCase(id="half", input=1), [Output(value="yes")], {"says_so": answer(False)})
    fill(store, [simple("silent"), half, simple("a")], run_id="aaaa1111")
    fill(
        store,
        [silent, simple("new", False), Row(TestCase(id="half", input=1), [Output(value="yes")])],
        run_id="aaaa2222",
    )
    cases = {case.case_id: case for case in suite_view(store, "refunds").cases}
    assert cases["silent"].states == ["passed", "error"]
    assert cases["new"].states == [None, "failed"]
    assert cases["half"].states == ["failed", "absent"], "a check without a result is no pass"
    assert "not in this run" in page(client, "/suite", suite="refunds")


def test_a_suite_that_is_not_there_is_named(client: httpx.Client, store: Store) -> None:
    for path, status, words in (("/suite?suite=nothing", 404, "There is no run of a suite"), ("/suite", 400, "Which")):
        response = client.get(path)
        assert response.status_code == status
        assert words in response.text
    fill(store, [simple("a")], run_id="aaaa1111", ended=False)
    assert "No run of this suite has a verdict yet." in page(client, "/suite", suite="refunds")
