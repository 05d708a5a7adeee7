"""Evaluations are created, found and listed as the contract has it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import httpx
import pytest

from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from tests.fepflow.api.rest.evaluations.conftest import FIELDS, NOW, URL, body, create, error_of


def test_create_evaluation_run(client: httpx.Client, cases: list[str]) -> None:
    data = create(client, test_case_ids=cases)
    assert list(data) == FIELDS
    assert data["status"] in ["pending", "running"]
    assert str(UUID(data["id"])) == data["id"]
    assert (data["test_case_ids"], data["agent_endpoint_url"]) == (cases, URL)
    assert (data["grader_ids"], data["result_count"]) == (["string-match"], 0)
    assert (data["completed_at"], data["error_message"]) == (None, None)
    assert len(data["started_at"]) == len(NOW)
    assert data["started_at"].endswith("Z")


def test_get_evaluation_status(client: httpx.Client, cases: list[str]) -> None:
    run_id = create(client)["id"]
    response = client.get(f"/api/evaluations/{run_id}")
    assert response.status_code == 200
    data = response.json()
    assert data["data"]["id"] == run_id
    assert data["data"]["status"] in ["pending", "running", "completed", "failed"]
    assert client.get(f"/api/evaluations/{UUID(run_id).hex}").json() == data


def test_list_evaluations(client: httpx.Client, cases: list[str]) -> None:
    response = client.get("/api/evaluations")
    assert response.status_code == 200
    assert response.json()["data"] == {"evaluations": [], "count": 0, "total": 0}
    newest_first = [create(client)["id"] for _ in range(5)][::-1]
    data = client.get("/api/evaluations?limit=2&skip=1").json()["data"]
    assert [each["id"] for each in data["evaluations"]] == newest_first[1:3]
    assert (data["count"], data["total"]) == (2, 5)
    assert list(data["evaluations"][0]) == FIELDS


def test_an_unknown_run_is_not_found(client: httpx.Client, subtests: pytest.Subtests) -> None:
    for run_id in ["550e8400-e29b-41d4-a716-446655440010", "x", "latest", "%00", "9" * 4_400]:
        for path in ["", "/results"]:
            with subtests.test(path=path, run_id=run_id):
                found = error_of(client.get(f"/api/evaluations/{run_id}{path}"), 404)
                assert found == ("NOT_FOUND", "Evaluation run not found")


def test_a_run_of_another_interface_is_not_found(client: httpx.Client, store: Store) -> None:
    store.runs.create(RunRecord(id="0" * 32, name="a suite", suite={}, repeats=1), [])
    assert client.get("/api/evaluations").json()["data"]["total"] == 0
    assert client.get(f"/api/evaluations/{UUID('0' * 32)}").status_code == 404


def test_an_id_that_stands_twice_is_taken_once(client: httpx.Client, store: Store, cases: list[str]) -> None:
    data = create(client, test_case_ids=["tc-002", "tc-001", "tc-002"], grader_ids=["string-match"] * 2)
    assert (data["test_case_ids"], data["grader_ids"]) == (["tc-002", "tc-001"], ["string-match"])
    assert [case.id for case in store.runs.cases(UUID(data["id"]).hex)] == ["tc-002", "tc-001"]


def test_the_same_idempotency_key_gives_the_same_run_once(client: httpx.Client, store: Store, cases: list[str]) -> None:
    def post(key: str, **fields: Any) -> Any:
        return client.post("/api/evaluations", json=body(**fields), headers={"Idempotency-Key": key})

    first = post("key-1")
    with ThreadPoolExecutor(8) as threads:
        again = list(threads.map(lambda _: post("key-1"), range(16)))
    assert {response.status_code for response in [first, *again]} == {201}
    assert {response.json()["data"]["id"] for response in again} == {first.json()["data"]["id"]}
    assert store.requests.newest("evaluation", 10)[1] == 1
    code, message = error_of(post("key-1", test_case_ids=cases), 409)
    assert code == "CONFLICT"
    assert "idempotency key" in message
    assert post("key-2").json()["data"]["id"] != first.json()["data"]["id"]
    client.delete("/api/test-cases/tc-001")
    assert post("key-1").json()["data"]["id"] == first.json()["data"]["id"], "it was valid when it was accepted"
    for key in ("", "x" * 201):
        assert error_of(post(key), 400)[0] == "INVALID_REQUEST"


def test_concurrent_requests_with_one_new_key_give_one_run(
    client: httpx.Client, store: Store, cases: list[str]
) -> None:
    with ThreadPoolExecutor(8) as threads:
        posts = [
            threads.submit(client.post, "/api/evaluations", json=body(), headers={"Idempotency-Key": "k"})
            for _ in range(16)
        ]
        ids = {post.result().json()["data"]["id"] for post in posts}
    assert len(ids) == 1
    assert store.requests.newest("evaluation", 10)[1] == 1
