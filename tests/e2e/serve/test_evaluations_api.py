"""Evaluations that programs request over HTTP: executed by Prefect, with results that appear while they run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

from fepflow.store.store import Store

from ..agent import Agent, agent_served
from ..conftest import wait_for
from ..served import Served, place, serve


@pytest.fixture
def agent_url() -> Iterator[str]:
    """The address of an agent of the caller's."""
    with agent_served() as address:
        yield address


@contextmanager
def client_of(served: Served, key: str) -> Iterator[Client]:
    headers = {"X-API-Key": key}
    with httpx.Client(base_url=served.rest, headers=headers, timeout=30, trust_env=False) as http:
        yield Client(http)


class Client:
    """A program that knows the address of the REST interface."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def post(self, path: str, body: Any, status: int = 201, key: str | None = None) -> Any:
        headers = {} if key is None else {"Idempotency-Key": key}
        return self._data(self._http.post(f"/api/{path}", json=body, headers=headers), status)

    def get(self, path: str) -> Any:
        return self._data(self._http.get(f"/api/{path}"), 200)

    def evaluate(self, agent: str, *cases: str, key: str | None = None) -> str:
        """The id of a new evaluation."""
        body = {"test_case_ids": cases, "agent_endpoint_url": agent, "grader_ids": ["string-match", "contains"]}
        evaluation = self.post("evaluations", body, key=key)
        return str(evaluation["id"])

    def status(self, evaluation_id: str) -> str:
        return str(self.get(f"evaluations/{evaluation_id}")["status"])

    def results(self, evaluation_id: str) -> dict[str, Any]:
        found = self.get(f"evaluations/{evaluation_id}/results")
        return {result["test_case_id"]: result for result in found["results"]}

    def ended(self, *ids: str, seconds: float = 240) -> None:
        wait_for(lambda: all(self.status(each) in ("completed", "failed") for each in ids), "the end", seconds)

    def _data(self, response: httpx.Response, status: int) -> Any:
        assert response.status_code == status, response.text
        document = response.json()
        assert document["success"] == (status < 400)
        return document["data"] if status < 400 else document["error"]


INPUTS = ("Paris", "Rome", "wait", "never", "hang up", "refuse", "moved")


@pytest.fixture(scope="module")
def _test_cases(served: Served, key: str) -> None:
    cases = [{"id": each.replace(" ", "-"), "input": each, "expected": "Paris"} for each in INPUTS]
    with client_of(served, key) as client:
        client.post("test-cases", cases)


@pytest.fixture
def client(served: Served, key: str, _test_cases: None) -> Iterator[Client]:
    with client_of(served, key) as client:
        yield client


def flow_runs(served: Served, evaluation_id: str) -> list[dict[str, Any]]:
    """Those of the deployment that are of an evaluation."""
    everything = served.runs("requested", "SCHEDULED", "PENDING", "RUNNING", "COMPLETED", "FAILED", "CRASHED")
    return [each for each in everything if each["parameters"]["run_id"] == UUID(evaluation_id).hex]


def test_evaluations_are_executed_by_prefect_and_their_results_appear_while_they_run(
    served: Served, client: Client, agent_url: str
) -> None:
    own = f"http://127.0.0.1:{served.workplace.env['FEPFLOW_PORT']}/api"
    refused = {"test_case_ids": ["Paris"], "agent_endpoint_url": own, "grader_ids": ["contains"]}
    assert client.post("evaluations", refused, 400)["code"] == "INVALID_URL"
    of_api = {**refused, "agent_endpoint_url": served.rest}
    assert client.post("evaluations", of_api, 400)["code"] == "INVALID_URL", "the api process is one of ours, too"

    evaluation = client.evaluate(agent_url, "Paris", "Rome", "refuse", "wait")
    wait_for(lambda: len(client.results(evaluation)) == 3, "the results of three of four test cases")
    assert client.results(evaluation).keys() == {"Paris", "Rome", "refuse"}
    running = client.get(f"evaluations/{evaluation}")
    assert (running["status"], running["result_count"], running["completed_at"]) == ("running", 3, None)
    Agent.may_answer.set()
    client.ended(evaluation)
    assert client.status(evaluation) == "completed"
    summary = client.get(f"evaluations/{evaluation}/results")["summary"]
    assert (summary["successful_responses"], summary["total_results"]) == (3, 4)
    assert summary["grader_pass_counts"] == {"string-match": 1, "contains": 1}
    assert summary["grader_fail_counts"] == {"string-match": 2, "contains": 2}, "no answer is no fail"
    refused = client.results(evaluation)["refuse"]
    assert {score["score_status"] for score in refused["scores"]} == {"error"}
    assert "403" in refused["error_message"]
    assert Agent.posts == 4
    (flow_run,) = flow_runs(served, evaluation)
    assert flow_run["deployment_id"] == served.deployment("requested")["id"]


def test_one_key_is_one_evaluation_and_one_flow_run(served: Served, client: Client, agent_url: str) -> None:
    first, second = (client.evaluate(agent_url, "Paris", key="again") for _ in range(2))
    assert first == second
    client.ended(first)
    assert client.evaluate(agent_url, "Paris", key="again") == first
    assert len(flow_runs(served, first)) == 1
    assert Agent.posts == 1


@pytest.mark.battery
def test_an_agent_that_does_not_answer_gives_results_in_error_and_the_others_go_on(
    client: Client, agent_url: str
) -> None:
    away = client.evaluate("http://127.0.0.1:9/", "Paris", "Rome")
    faulty = client.evaluate(agent_url, "Paris", "never", "hang-up", "refuse", "moved")
    client.ended(away, faulty)
    assert {client.status(away), client.status(faulty)} == {"completed"}
    assert {result["error_message"] for result in client.results(away).values()} == {"Connection refused"}
    results = client.results(faulty)
    assert {case for case, result in results.items() if result["response_status"] == "success"} == {"Paris"}
    assert results["never"]["error_message"] == "Timeout after 30 seconds"
    for case in ("never", "hang-up", "refuse", "moved"):
        assert results[case]["error_message"], case
        assert {score["score_status"] for score in results[case]["scores"]} == {"error"}, "no answer is no fail"
    summary = client.get(f"evaluations/{faulty}/results")["summary"]
    assert (summary["successful_responses"], summary["failed_responses"]) == (1, 4)
    assert summary["grader_fail_counts"] == {"string-match": 0, "contains": 0}


@pytest.mark.battery
def test_evaluations_end_truthfully_though_the_stack_is_stopped_or_its_worker_killed(
    stack: Any, tmp_path: Path, agent_url: str
) -> None:
    workplace = place(stack, tmp_path, FEPFLOW_AGENT_HOSTS="127.0.0.1")
    key = workplace.fepflow("keys", "create", "e2e").stdout.strip()
    with serve(workplace) as served, client_of(served, key) as client:
        client.post("test-cases", [{"id": each, "input": each, "expected": "Paris"} for each in INPUTS[:4]])
        cut_off = client.evaluate(agent_url, "Paris", "never")
        wait_for(lambda: len(client.results(cut_off)) == 1, "the first result")
        worker = served.pids("worker")[-1]
        os.kill(worker, signal.SIGKILL)
        wait_for(lambda: served.pids("worker")[-1] != worker, "another worker")
        client.ended(cut_off, seconds=180)

        stopped = client.evaluate(agent_url, "Rome", "never")
        wait_for(lambda: len(client.results(stopped)) == 1, "the first result")
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(60) == 0, served.log
    with Store.open(workplace.env["FEPFLOW_STORE_URL"]) as store:
        wait_for(lambda: store.runs.get(UUID(stopped).hex).status != "running", "its hand-over in the store", 90)
    with serve(workplace) as again, client_of(again, key) as client:
        unbegun = client.evaluate(agent_url, "Paris")
        client.ended(stopped)
        for evaluation, answered in ((cut_off, "Paris"), (stopped, "Rome")):
            found = client.get(f"evaluations/{evaluation}")
            results = client.results(evaluation)
            assert results[answered]["response_status"] == "success"
            if found["status"] == "failed":
                assert found["error_message"]
            else:
                assert results["never"]["error_message"] == "Timeout after 30 seconds"
        client.ended(unbegun)
        assert client.status(unbegun) == "completed"
