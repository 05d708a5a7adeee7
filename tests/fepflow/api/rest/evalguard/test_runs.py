"""EvalGuard's API: runs with a task are reports, too."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fepflow.protocol.test_case import TestCase
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from tests.fepflow.api.rest.evalguard.conftest import SOME, Client, numbers


def metric(name: str, value: float | None, completed: int = 40) -> dict[str, Any]:
    known = {} if value is None else {"value": value, "stderr": 0.0625}
    return {"id": name, **known, "n_expected": 40, "n_completed": completed}


def add_run(store: Store, run_id: str, task: str | None = "refund_desk") -> None:
    suite = {"name": "refunds", "target": {"http": {"url": "https://me:swordfish@bot.example.org/"}}}
    new = RunRecord(
        id=run_id, name="refunds", suite=suite | ({"task": task} if task else {}), suite_path="suite.yaml", repeats=1
    )
    store.runs.create(new, [TestCase(id="a", input="?")])


def finish(store: Store, run_id: str, value: float) -> None:
    store.leases.acquire(run_id, "me", 60)
    metrics = [metric("acc", value), metric("style", None, 38)]
    verdict = {"gate": "low is the worst allowed", "thresholds_digest": "d" * 64}
    store.leases.finish(run_id, "me", "completed", outcome="fail", metrics=metrics, verdict=verdict)


class TestRuns:
    def test_a_run_with_a_task_is_listed_once_it_has_its_verdict(self, api: Client, store: Store) -> None:
        store.reports.add(SOME)
        for run_id, task in (("b" * 32, None), ("a" * 32, "refund_desk")):
            add_run(store, run_id, task)
            assert numbers(api.get("/reports")) == [4, 3, 2, 1]
            finish(store, run_id, 0.75)

        (found,) = api.get("/reports", task_ref="refund_desk", metric="acc")["reports"]
        assert found == api.get(f"/reports/{'a' * 32}")
        assert (found["id"], found["metadata"]["outcome"]) == ("a" * 32, "fail")
        assert found["context"]["model_name"] == "https://***@bot.example.org/"
        assert numbers(api.get("/reports", model_source="http")) == [int("a" * 32, 16)]
        assert api.get("/reports", metric="style")["reports"] == []
        assert api.get(f"/reports/{'a' * 32}/metrics")["metrics"] == [
            {"task_ref": "refund_desk", "metric": "acc", "value": 0.75, "stderr": 0.0625}
        ]
        assert {"model_name": "https://***@bot.example.org/", "model_source": "http"} in api.get("/models")["models"]
        assert api.get("/reports")["pagination"]["total"] == 5

    def test_a_run_that_goes_on_has_no_report_until_its_next_verdict(self, api: Client, store: Store) -> None:
        add_run(store, "a" * 32)
        finish(store, "a" * 32, 0.5)
        (former,) = api.get("/reports")["reports"]
        store.leases.acquire("a" * 32, "me", 60)
        assert api.get("/reports")["reports"] == []
        api.get(f"/reports/{'a' * 32}", 404)
        finish(store, "a" * 32, 0.75)
        (later,) = api.get("/reports")["reports"]
        assert (former["results"][0]["acc"]["value"], later["results"][0]["acc"]["value"]) == (0.5, 0.75)

    def test_requests_at_once_find_each_run_once(self, api: Client, store: Store) -> None:
        for number in range(6):
            add_run(store, f"{number:032x}")
            finish(store, f"{number:032x}", 0.5)
        with ThreadPoolExecutor(8) as threads:
            pages = list(threads.map(lambda _: api.get("/reports", limit=100), range(8)))
        assert pages == [pages[0]] * 8
        assert sorted(numbers(pages[0])) == list(range(6))

    def test_reports_of_runs_are_no_imported_ones(self, api: Client, store: Store) -> None:
        add_run(store, "a" * 32)
        finish(store, "a" * 32, 0.5)
        assert api.get("/reports")["pagination"]["total"] == 1
        assert store.reports.newest_imported() == []

    def test_a_run_whose_report_would_not_be_valid_is_left_out_and_the_log_says_so(
        self, api: Client, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        add_run(store, "a" * 32)
        store.leases.acquire("a" * 32, "me", 60)
        store.leases.finish(
            "a" * 32, "me", "completed", outcome="pass", metrics=[metric("no identifier", 0.5)], verdict={}
        )
        assert api.get("/reports")["reports"] == []
        assert f"run {'a' * 32} has no report: may hold letters, digits, _ and - only" in caplog.text
