"""Metrics of a whole stack: the API, the worker and a reaper show what the store has."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from tests.conftest import free_port

from ..agent import agent_served
from ..conftest import wait_for
from ..endpoint import Endpoint
from ..served import Served
from .test_evaluations_api import client_of

pytestmark = [pytest.mark.e2e, pytest.mark.battery]

SUITE = """
name: watched
target:
  http: {url: "${AGENT_URL}", body: {question: $.test_case.input}, output: $.answer, metadata: {tokens: $.tokens}}
  timeout: 300s
  attempts: 2
  retries: 0
test_cases:
  - {id: right, input: right, expected: right}
  - {id: wrong, input: wrong, expected: another}
  - {id: late, input: fail 1 watched, expected: fail 1 watched}
  - {id: none, input: error, expected: error}
checks: [{type: exact_match, actual: $.output.value, expected: $.test_case.expected}]
"""

Figures = Counter[tuple[str, str, str]]
"""Values by metric, suite, and outcome or source."""


@contextmanager
def reaper_on(port: int, served: Served) -> Iterator[None]:
    """A reaper of its own beside the one of the stack's worker."""
    env = {**served.workplace.env, **served.login, "NO_PROXY": "127.0.0.1", "FEPFLOW_METRICS_PORT": str(port)}
    with subprocess.Popen([sys.executable, "-P", "-m", "fepflow.deployments.reaper"], env=env) as process:
        try:
            yield
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()


def samples(address: str, key: str | None = None) -> Counter[tuple[str, frozenset[tuple[str, str]]]]:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    page = httpx.get(f"{address}/metrics", headers=headers, timeout=30, trust_env=False).raise_for_status().text
    found = (sample for family in text_string_to_metric_families(page) for sample in family.samples)
    return Counter({(one.name, frozenset(one.labels.items())): one.value for one in found})


def shown(address: str, key: str | None = None) -> Figures:
    """Return the figures of the suites on a page of metrics."""
    names = {"fepflow_runs_total", "fepflow_calls_total", "fepflow_call_retries_total", "fepflow_checks_total"}
    names |= {"fepflow_tokens_total"}
    figures: Figures = Counter()
    for (name, labels), value in samples(address, key).items():
        by_name = dict(labels)
        if name in names and value:
            figures[name, by_name["suite"], by_name.get("outcome", by_name.get("source", ""))] = value
    return figures


def in_store(store: Store, ends: Counter[tuple[str, str, str]]) -> Figures:
    """The same, counted from the rows of all runs; `ends` are those of runs that did not come to an outcome at once."""
    figures = Counter(ends)
    for summary in store.runs.newest(1_000):
        run = store.runs.get(summary.id)
        suite = "(requested)" if run.is_requested else run.name
        if run.outcome is not None:
            figures["fepflow_runs_total", suite, run.outcome] += 1
        for result in store.results.by_case(run.id):
            if result.output is not None:
                metadata = result.output.metadata or {}
                figures["fepflow_calls_total", suite, "failed" if result.output.failure else "answered"] += 1
                figures["fepflow_call_retries_total", suite, ""] += metadata["attempts"] - 1
                figures["fepflow_tokens_total", suite, "target"] += metadata.get("tokens", 0)
            for check in result.checks:
                word = "error" if check.status == "error" else "passed" if check.results["passed"] else "failed"
                figures["fepflow_checks_total", suite, word] += 1
    return +figures


def test_what_is_scraped_equals_the_store(served: Served, key: str, agent: Endpoint) -> None:
    workplace = served.workplace
    suite = workplace.folder / "watched.yaml"
    suite.write_text(SUITE, encoding="utf-8")
    worker, reaper = (f"http://127.0.0.1:{port}" for port in (workplace.env["FEPFLOW_METRICS_PORT"], free_port()))

    def newest() -> RunRecord:
        with Store.open(workplace.env["FEPFLOW_STORE_URL"]) as store:
            return store.runs.get("latest")

    with reaper_on(int(reaper.rpartition(":")[2]), served):
        before = shown(served.rest, key)
        deployed = served.prefect("deployment", "run", "evaluate/suite", "--param", f"suite={suite}", "--watch")
        assert newest().outcome == "fail", deployed.stderr
        with client_of(served, key) as client, agent_served() as address:
            client.post("test-cases", [{"id": f"watched-{n}", "input": "Paris", "expected": "Paris"} for n in range(3)])
            client.ended(client.evaluate(address, *(f"watched-{n}" for n in range(3))))
        assert newest().outcome == "pass"

        agent.held, asked = True, len(agent.asked)
        with workplace.running_cold("run", suite, **served.login) as process:
            wait_for(lambda: len(agent.asked) > asked, "a call")
            os.killpg(process.pid, signal.SIGKILL)
        wait_for(lambda: newest().status == "interrupted", "the reaper", 90)
        agent.held = False
        wait_for(
            lambda: httpx.get(f"{reaper}/readyz", timeout=30, trust_env=False).json()["prefect"] == "ok",
            "the reaper's port",
        )
        assert workplace.fepflow("run", "--resume", newest().id, **served.login).returncode == 1

        with Store.open(workplace.env["FEPFLOW_STORE_URL"]) as store:
            ends = Counter({("fepflow_runs_total", "watched", "interrupted"): 1})
            expected = in_store(store, ends)
        own = {name: value for name, value in expected.items() if name[1] in ("watched", "(requested)")}
        assert own["fepflow_runs_total", "watched", "fail"] == 2
        assert own["fepflow_calls_total", "watched", "failed"] == 2
        assert own["fepflow_call_retries_total", "watched", ""] >= 3
        for place, of_place in ((served.rest, key), (worker, None), (reaper, None)):
            page = shown(place, of_place)
            assert {name: page[name] for name in own} == own, place
            assert page - before, "it has grown"
        reaped = "fepflow_reaper_interrupted_runs_total", frozenset[tuple[str, str]]()
        assert samples(worker)[reaped] + samples(reaper)[reaped] >= 1
        ended = "fepflow_worker_processes_ended_total", frozenset({("exit", "ok")})
        assert samples(worker)[ended] >= 2
        for place in (served.rest, worker, reaper):
            assert httpx.get(f"{place}/livez", timeout=30, trust_env=False).json() == {"status": "ok"}
        assert httpx.get(f"{served.rest}/metrics", timeout=30, trust_env=False).status_code == 401
