"""Prefect's pages in a real browser, in both versions of its UI: what a person sees of runs that a worker executed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .browser import Browser, browsing, chromium_and_driver
from .conftest import Stack, Workplace, wait_for
from .endpoint import Endpoint, serving
from .worker import working

pytestmark = pytest.mark.e2e

HOSTILE = "<img src=x onerror=\"document.title='hacked'\"> [click](https://evil.example/) `a` **b** <script>1</script>"
QUESTION = "How many invoices are open, and who is asked to pay? ![x](https://evil.example/i.png)"
CASES = [
    {"id": "invoice-1", "input": "three", "expected": "three"},
    {"id": "invoice-2", "input": QUESTION, "expected": "four | five"},
    {"id": HOSTILE, "input": HOSTILE, "expected": "nothing of the kind"},
]


@dataclass
class Seen:
    """Two runs of one deployment that have ended: their flow runs, and the artifacts of the one that failed."""

    deployment: str
    passed: dict[str, Any]
    failed: dict[str, Any]
    artifacts: dict[str, str]


@pytest.fixture(scope="module")
def seen(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    chromium_and_driver()  # before there are runs that nobody could look at
    folder = tmp_path_factory.mktemp("pages")

    def flow_run(flow_run_id: str) -> dict[str, Any]:
        found: dict[str, Any] = stack.api.get(f"/flow_runs/{flow_run_id}").raise_for_status().json()
        return found

    def log(flow_run_id: str) -> str:
        body = {"logs": {"flow_run_id": {"any_": [flow_run_id]}}, "limit": 200}
        return stack.api.post("/logs/filter", json=body).raise_for_status().text

    def ended(ordered: str) -> dict[str, Any]:
        wait_for(lambda: flow_run(ordered)["state_type"] in ("COMPLETED", "FAILED"), "the run's end")
        wait_for(lambda: "Finished in state" in log(ordered), "the end of the run's log")
        return flow_run(ordered)

    with serving() as endpoint:
        place = _place(stack, folder, endpoint)
        with working(stack, place.env) as pool:
            place.write_suite(CASES[:1], name="good invoices")
            passed = ended(pool.run(suite=str(place.suite)))
            place.write_suite(CASES, name="bad invoices")
            failed = ended(pool.run(suite=str(place.suite)))
    of_failed = {"flow_runs": {"id": {"any_": [failed["id"]]}}}
    found = stack.api.post("/artifacts/filter", json=of_failed).raise_for_status().json()
    return Seen(pool.deployment, passed, failed, {artifact["key"]: artifact["id"] for artifact in found})


def _place(stack: Stack, folder: Path, endpoint: Endpoint) -> Workplace:
    store = f"sqlite:///{folder / 'store.db'}"
    return Workplace(stack, folder, {"AGENT_URL": endpoint.url, "FEPFLOW_STORE_URL": store})


@pytest.fixture(params=["", pytest.param("/v2", marks=pytest.mark.battery)], ids=["v1", "v2"])
def ui(request: pytest.FixtureRequest, stack: Stack, tmp_path: Path) -> Iterator[tuple[Browser, str]]:
    """A browser, and where the version of the UI begins."""
    with browsing(stack.api_url.removesuffix("/api"), tmp_path / "profile") as browser:
        browser.log_in(request.param, stack.prefect["PREFECT_API_AUTH_STRING"])
        yield browser, request.param


def card(name: str, state: str) -> re.Pattern[str]:
    """A flow run in a list: its name, some tags, its state."""
    return re.compile(rf"{re.escape(name)}\n(?:[\w:-]+\n){{0,6}}?{state}\n")


def plain(text: str) -> str:
    """Without what has no width."""
    return text.replace("\u2060", "")


@pytest.mark.battery
def test_the_pages_of_a_deployments_runs_show_their_outcomes(seen: Seen, ui: tuple[Browser, str]) -> None:
    browser, root = ui
    for page in (f"{root}/deployments/deployment/{seen.deployment}", f"{root}/runs"):
        browser.open(page)
        browser.until(card("bad invoices · fail", "Failed").search, "the run that failed, as failed")
        browser.until(card("good invoices · pass", "Completed").search, "the run that passed, as completed")

    browser.open(f"{root}/runs/flow-run/{seen.failed['id']}?tab=Logs")
    log = browser.scrolled(
        "bad invoices · fail", "verdict:fail", "Finished in state Failed('FAIL: exact_match: 2 of 3 results failed.')"
    )
    assert "pull step" not in log
    assert log.index("3 calls in 3 batches") < log.index("1 of 1 case failed: invoice-2 (exact_match)")

    browser.open(f"{root}/artifacts/artifact/{seen.artifacts['verdict-bad-invoices']}")
    page = browser.shows("FAIL: bad invoices", "exact_match: 2 of 3 results failed.", "exact_match")
    assert "`fepflow" not in page, "marks of markdown are rendered"
    assert "\\" not in page
    browser.follow("2 cases that did not pass")
    table = plain(browser.shows("invoice-2", "expected"))
    assert browser.url.partition("?")[0].endswith(
        f"{root}/artifacts/artifact/{seen.artifacts['failed-cases-bad-invoices']}"
    )
    assert QUESTION in table
    assert "four | five" in table
    assert "<img src=x onerror=" in table
    assert "`" not in table
    assert not browser.all("img[src='x'], img[src*='evil'], a[href*='evil'], main script")
    browser.follow("bad invoices · fail")
    browser.shows("bad invoices · fail", "Task Runs")
    assert f"{root}/runs/flow-run/{seen.failed['id']}" in browser.url
