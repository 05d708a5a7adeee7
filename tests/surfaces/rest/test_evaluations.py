"""The evaluations contract over HTTP: every field, status, code and page of it."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from starlette.types import ASGIApp

from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckError, CheckResult
from fepflow.protocol.test_case import Output
from fepflow.store.records import NewCheckResult, NewOutput, NewRun
from fepflow.store.store import Store
from surfaces.access.caller import Caller
from surfaces.access.caller import Scope as AccessScope
from surfaces.evaluations.service import EvaluationService
from surfaces.rest.app import create_app
from surfaces.rest.errors import Errors
from surfaces.rest.evaluations import error_envelope, evaluations_router

from .conftest import Admitted, served_by

URL = "https://agent.example.com/api"
FIELDS = [
    "id",
    "test_case_ids",
    "agent_endpoint_url",
    "grader_ids",
    "status",
    "started_at",
    "completed_at",
    "result_count",
    "error_message",
]
NOW = "2026-01-15T10:35:00Z"


@pytest.fixture
def store(tmp_path: Path, new_store: Callable[[str], str]) -> Iterator[Store]:
    with Store.open(new_store(f"sqlite:///{tmp_path / 'store.db'}")) as store:
        yield store


@contextmanager
def called_by(store: Store, *scopes: AccessScope) -> Iterator[httpx.Client]:
    @asynccontextmanager
    async def evaluations() -> AsyncIterator[ASGIApp]:
        app = create_app([evaluations_router(EvaluationService(store))], Errors({"/api": error_envelope}))
        yield Admitted(app, Caller("key:1", frozenset(scopes)))

    with served_by(evaluations) as client:
        yield client


@pytest.fixture
def client(store: Store) -> Iterator[httpx.Client]:
    with called_by(store, "read", "evaluate") as client:
        yield client


@pytest.fixture
def cases(client: httpx.Client) -> list[str]:
    """Two stored test cases."""
    documents = [
        {"id": "tc-001", "input": "What is the capital of France?", "expected": "Paris"},
        {"id": "tc-002", "input": "What is 2+2?", "expected": "4"},
    ]
    assert client.post("/api/test-cases", json=documents).status_code == 201
    return ["tc-001", "tc-002"]


def body(**fields: Any) -> dict[str, Any]:
    usual = {"test_case_ids": ["tc-001"], "agent_endpoint_url": URL, "grader_ids": ["string-match"]}
    return {name: value for name, value in {**usual, **fields}.items() if value is not ...}


def create(client: httpx.Client, **fields: Any) -> dict[str, Any]:
    response = client.post("/api/evaluations", json=body(**fields))
    assert response.status_code == 201, response.text
    document = response.json()
    assert (document["success"], document["error"]) == (True, None)
    return document["data"]


def error_of(response: Any, status: int) -> tuple[str, str]:
    """The code and the message of an error in the contract's envelope."""
    assert response.status_code == status, response.text
    document = response.json()
    assert list(document) == ["success", "data", "error"]
    assert (document["success"], document["data"]) == (False, None)
    assert list(document["error"]) == ["code", "message"]
    return document["error"]["code"], document["error"]["message"]


class Executor:
    """Does to a run in the store what its flow run would do."""

    def __init__(self, store: Store, evaluation_id: str) -> None:
        self.store, self.run_id = store, UUID(evaluation_id).hex
        store.acquire_lease(self.run_id, "executor", 60)

    def answer(self, index: int, value: Any, latency_ms: float) -> None:
        output = Output(value=value, metadata={"latency_ms": latency_ms, "attempts": 1})
        self.store.write(self.run_id, [NewOutput(index, 0, "0" * 64, output)], [])

    def fail(self, index: int, **error: Any) -> None:
        output = Output(value=None, metadata={"error": error, "attempts": 3})
        self.store.write(self.run_id, [NewOutput(index, 0, "0" * 64, output, failed=True)], [])

    def check(self, index: int, check_id: str, results: dict[str, Any] | None, passed: bool | None) -> None:
        fields: dict[str, Any] = {"status": "completed", "results": results}
        if results is None:
            error = CheckError(type="timeout_error", message="Grader timeout")
            fields = {"status": "error", "results": {}, "error": error}
        metadata = {"check_id": check_id}
        result = CheckResult(check_type="exact_match", evaluated_at=utc_now(), metadata=metadata, **fields)
        self.store.write(self.run_id, [], [NewCheckResult(index, 0, check_id, "0" * 64, result, passed)])

    def finish(self, status: Any = "completed", error: str | None = None) -> None:
        outcome: Any = "fail" if status == "completed" else None
        self.store.finish(self.run_id, "executor", status, outcome=outcome, error=error)


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


def test_get_evaluation_results(client: httpx.Client, cases: list[str]) -> None:
    run_id = create(client)["id"]
    response = client.get(f"/api/evaluations/{run_id}/results")
    assert response.status_code == 200
    data = response.json()["data"]
    assert list(data) == ["evaluation_id", "results", "summary"]
    assert (data["evaluation_id"], data["results"]) == (run_id, [])
    assert data["summary"] == {
        "total_results": 0,
        "successful_responses": 0,
        "failed_responses": 0,
        "grader_pass_counts": {"string-match": 0},
        "grader_fail_counts": {"string-match": 0},
        "average_latency_ms": None,
    }


def test_the_contracts_example_of_results(client: httpx.Client, store: Store, cases: list[str]) -> None:
    run_id = create(client, test_case_ids=cases)["id"]
    executor = Executor(store, run_id)
    executor.answer(0, "The capital of France is Paris.", 245.2)
    executor.check(0, "string-match--1", {"passed": False}, False)
    executor.answer(1, "4", 119.9)
    executor.check(1, "string-match--1", {"passed": True}, True)
    executor.finish()
    evaluation = client.get(f"/api/evaluations/{run_id}").json()["data"]
    assert (evaluation["status"], evaluation["result_count"], evaluation["error_message"]) == ("completed", 2, None)
    assert evaluation["completed_at"].endswith("Z")
    data = client.get(f"/api/evaluations/{run_id}/results").json()["data"]
    first, second = data["results"]
    assert str(UUID(first.pop("result_id"))) != second.pop("result_id")
    score = {"grader_id": "string-match", "grader_name": "String Match", "error_message": None}
    assert first == {
        "test_case_id": "tc-001",
        "test_case_input": "What is the capital of France?",
        "test_case_expected": "Paris",
        "agent_response": "The capital of France is Paris.",
        "response_status": "success",
        "response_latency_ms": 245,
        "scores": [{**score, "score_value": 0.0, "score_status": "fail"}],
    }
    assert second["scores"] == [{**score, "score_value": 1.0, "score_status": "pass"}]
    assert data["summary"] == {
        "total_results": 2,
        "successful_responses": 2,
        "failed_responses": 0,
        "grader_pass_counts": {"string-match": 1},
        "grader_fail_counts": {"string-match": 1},
        "average_latency_ms": 182.5,
    }


def test_results_appear_while_it_runs_once_every_grader_has_scored_them(
    client: httpx.Client, store: Store, cases: list[str]
) -> None:
    run_id = create(client, test_case_ids=cases, grader_ids=["string-match", "contains"])["id"]
    executor = Executor(store, run_id)
    executor.answer(0, "Paris", 10)
    executor.check(0, "string-match--1", {"passed": True}, True)

    def seen() -> tuple[str, int, int]:
        evaluation = client.get(f"/api/evaluations/{run_id}").json()["data"]
        results = client.get(f"/api/evaluations/{run_id}/results").json()["data"]
        assert len(results["results"]) == results["summary"]["total_results"]
        return evaluation["status"], evaluation["result_count"], len(results["results"])

    assert seen() == ("running", 0, 0)
    executor.check(0, "contains--1", {"passed": True}, True)
    assert seen() == ("running", 1, 1)
    listed = client.get("/api/evaluations?status=running").json()["data"]["evaluations"]
    assert [each["result_count"] for each in listed] == [1]


def test_the_summary_is_of_all_results_and_not_of_the_page(
    client: httpx.Client, store: Store, cases: list[str]
) -> None:
    run_id = create(client, test_case_ids=cases)["id"]
    executor = Executor(store, run_id)
    for index in (0, 1):
        executor.answer(index, "x", 100)
        executor.check(index, "string-match--1", {"passed": False}, False)
    data = client.get(f"/api/evaluations/{run_id}/results?limit=1&skip=1").json()["data"]
    assert [result["test_case_id"] for result in data["results"]] == ["tc-002"]
    assert data["summary"]["total_results"] == 2
    assert data["summary"]["grader_fail_counts"] == {"string-match": 2}


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ({"type": "unknown_error", "message": "connection refused by a:1"}, "Connection refused"),
        (
            {"type": "timeout_error", "message": "no complete answer within 30 s (target.timeout)"},
            "Timeout after 30 seconds",
        ),
        ({"type": "unknown_error", "message": "name not found: a"}, "name not found: a"),
    ],
)
def test_an_agent_without_an_answer_is_a_result_in_error(
    client: httpx.Client, store: Store, cases: list[str], error: dict[str, str], message: str
) -> None:
    run_id = create(client)["id"]
    executor = Executor(store, run_id)
    executor.fail(0, kind="connect", recoverable=True, **error)
    executor.check(0, "string-match--1", None, None)
    executor.finish()
    data = client.get(f"/api/evaluations/{run_id}/results").json()["data"]
    (result,) = data["results"]
    assert (result["response_status"], result["agent_response"]) == ("error", None)
    assert (result["response_latency_ms"], result["error_message"]) == (None, message)
    (score,) = result["scores"]
    assert (score["score_status"], score["score_value"]) == ("error", None)
    assert score["error_message"] == "Grader timeout"
    assert (data["summary"]["successful_responses"], data["summary"]["failed_responses"]) == (0, 1)
    assert data["summary"]["grader_pass_counts"] == data["summary"]["grader_fail_counts"] == {"string-match": 0}
    assert client.get(f"/api/evaluations/{run_id}").json()["data"]["status"] == "completed"


def test_a_grader_passes_if_all_its_checks_do_and_its_score_is_their_mean(
    client: httpx.Client, store: Store, cases: list[str]
) -> None:
    checks = [
        {"type": "contains", "arguments": {"text": "$.output.value", "phrases": ["a"]}},
        {"type": "json_valid", "arguments": {"text": "$.output.value"}},
    ]
    assert client.post("/api/graders", json={"id": "both", "name": "Both", "checks": checks}).status_code == 201
    run_id = create(client, test_case_ids=cases, grader_ids=["both", "string-match"])["id"]
    executor = Executor(store, run_id)
    for index, last in ((0, {"response": {"score": 0.25, "passed": True}}), (1, None)):
        executor.answer(index, "a", 1)
        executor.check(index, "both--1", {"passed": True}, True)
        executor.check(index, "both--2", last, None if last is None else True)
        executor.check(index, "string-match--1", {"passed": False}, False)
    data = client.get(f"/api/evaluations/{run_id}/results").json()["data"]
    first, second = ([score["score_value"] for score in result["scores"]] for result in data["results"])
    assert first == [0.625, 0.0]
    assert second == [None, 0.0]
    assert [result["scores"][0]["score_status"] for result in data["results"]] == ["pass", "error"]
    assert [result["scores"][1]["score_status"] for result in data["results"]] == ["fail", "fail"]
    assert data["summary"]["grader_pass_counts"] == {"both": 1, "string-match": 0}
    assert data["summary"]["grader_fail_counts"] == {"both": 0, "string-match": 2}


@pytest.mark.parametrize("status", ["failed", "cancelled", "interrupted"])
def test_a_run_that_could_not_be_evaluated_has_failed_and_says_why(
    client: httpx.Client, store: Store, cases: list[str], status: str
) -> None:
    run_id = create(client, test_case_ids=cases)["id"]
    executor = Executor(store, run_id)
    executor.answer(0, "Paris", 1)
    executor.finish(status, "the disk is full")
    evaluation = client.get(f"/api/evaluations/{run_id}").json()["data"]
    assert (evaluation["status"], evaluation["error_message"]) == ("failed", "the disk is full")
    assert evaluation["result_count"] == 1
    (result,) = client.get(f"/api/evaluations/{run_id}/results").json()["data"]["results"]
    assert result["scores"][0]["score_status"] == "error", "a grader that was not asked is no pass"
    assert result["scores"][0]["error_message"] == "the disk is full"
    by_status = {
        name: client.get("/api/evaluations", params={"status": name}).json()["data"]["total"]
        for name in ("pending", "running", "completed", "failed")
    }
    assert by_status == {"pending": 0, "running": 0, "completed": 0, "failed": 1}


@pytest.mark.parametrize("path", ["", "/results"])
@pytest.mark.parametrize("run_id", ["550e8400-e29b-41d4-a716-446655440010", "x", "latest", "%00", "9" * 4_400])
def test_an_unknown_run_is_not_found(client: httpx.Client, run_id: str, path: str) -> None:
    found = error_of(client.get(f"/api/evaluations/{run_id}{path}"), 404)
    assert found == ("NOT_FOUND", "Evaluation run not found")


def test_a_run_of_another_interface_is_not_found(client: httpx.Client, store: Store) -> None:
    store.create_run(NewRun("0" * 32, "a suite", {}, None, 1), [])
    assert client.get("/api/evaluations").json()["data"]["total"] == 0
    assert client.get(f"/api/evaluations/{UUID('0' * 32)}").status_code == 404


@pytest.mark.parametrize("name", ["test_case_ids", "agent_endpoint_url", "grader_ids"])
@pytest.mark.parametrize("value", [..., None, [], ""])
def test_a_missing_field(client: httpx.Client, cases: list[str], name: str, value: Any) -> None:
    response = client.post("/api/evaluations", json=body(**{name: value}))
    assert error_of(response, 400) == ("MISSING_FIELD", f"{name} is required")


def test_what_is_wrong_is_looked_for_in_one_order(client: httpx.Client, cases: list[str]) -> None:
    fields: dict[str, Any] = {"test_case_ids": ["nope"], "agent_endpoint_url": "nope", "grader_ids": ["nope"]}

    def code(**changed: Any) -> str:
        fields.update(changed)
        return error_of(client.post("/api/evaluations", json=body(**fields)), 400)[0]

    assert code(grader_ids=...) == "MISSING_FIELD"
    assert code(grader_ids=["nope"]) == "INVALID_TEST_CASE_ID"
    assert code(test_case_ids=cases) == "INVALID_GRADER_ID"
    assert code(grader_ids=["string-match"]) == "INVALID_URL"


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"test_case_ids": ["tc-001", "tc-9"]}, "INVALID_TEST_CASE_ID", "Test case not found: tc-9"),
        ({"test_case_ids": "tc-001"}, "INVALID_TEST_CASE_ID", "test_case_ids must be an array of ids, each a text"),
        ({"test_case_ids": [1]}, "INVALID_TEST_CASE_ID", "test_case_ids must be an array of ids, each a text"),
        ({"test_case_ids": {"a": 1}}, "INVALID_TEST_CASE_ID", "test_case_ids must be an array of ids, each a text"),
        ({"test_case_ids": ["\0"]}, "INVALID_TEST_CASE_ID", "Test case not found: \\u0000"),
        ({"test_case_ids": ["\ud800"]}, "INVALID_TEST_CASE_ID", "Test case not found: \\ud800"),
        ({"grader_ids": ["nope"]}, "INVALID_GRADER_ID", "Grader not found: nope"),
        ({"grader_ids": ["\0"]}, "INVALID_GRADER_ID", "Grader not found: \\u0000"),
        ({"grader_ids": [["string-match"]]}, "INVALID_GRADER_ID", "grader_ids must be an array of ids, each a text"),
        ({"agent_endpoint_url": 5}, "INVALID_URL", "Agent endpoint URL must be valid HTTP(S): it is no text"),
    ],
)
def test_a_value_that_is_not_valid(
    client: httpx.Client, cases: list[str], fields: dict[str, Any], code: str, message: str
) -> None:
    content = json.dumps(body(**fields))  # in ASCII: it may hold a lone surrogate
    assert error_of(client.post("/api/evaluations", content=content), 400) == (code, message)


@pytest.mark.parametrize(
    "url",
    [
        "agent.example.com",
        "ftp://agent.example.com",
        "file:///etc/passwd",
        "http://",
        "http://127.0.0.1:8000/",
        "http://169.254.169.254/latest/meta-data/",
        "http://user:password@agent.example.com/",
        "https://agent.example.com/?api_key=0123456789",
        "https://${HOME}.example.com/",
        "https://agent.example.com/${HOME}",
        "http://agent.example.com:99999/",
        "http://agent.example.com/ x",
        "https://agent.example.com/" + "x" * 2_000,
    ],
)
def test_an_address_that_is_refused(client: httpx.Client, cases: list[str], url: str) -> None:
    code, message = error_of(client.post("/api/evaluations", json=body(agent_endpoint_url=url)), 400)
    assert code == "INVALID_URL"
    assert message.startswith("Agent endpoint URL must be valid HTTP(S)")
    assert "password" not in message.replace("a user or a password", "")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b'{"a": NaN}', b'{"a": 1, "a": 2}', b"[" * 100_000]
)
@pytest.mark.parametrize("path", ["evaluations", "graders", "test-cases"])
def test_a_body_that_is_no_object(client: httpx.Client, content: bytes, path: str) -> None:
    code, _ = error_of(client.post(f"/api/{path}", content=content), 400)
    assert code in ("INVALID_REQUEST", "MISSING_FIELD")


@pytest.mark.parametrize("query", ["limit=0", "limit=-1", "limit=x", "limit=", "skip=-1", "skip=1.5", "limit=٣"])
@pytest.mark.parametrize("path", ["evaluations", "test-cases", "graders"])
def test_a_page_that_is_none(client: httpx.Client, path: str, query: str) -> None:
    assert error_of(client.get(f"/api/{path}?{query}"), 400)[0] == "INVALID_REQUEST"


def test_an_unknown_status_is_refused_and_a_page_has_the_contracts_size_at_most(
    client: httpx.Client, cases: list[str]
) -> None:
    assert error_of(client.get("/api/evaluations?status=done"), 400)[0] == "INVALID_REQUEST"
    many = [{"id": f"m-{number}", "input": number} for number in range(600)]
    assert client.post("/api/test-cases", json={"test_cases": many}).status_code == 201
    assert client.get("/api/test-cases?limit=9999").json()["data"]["count"] == 500
    assert client.get("/api/test-cases").json()["data"]["count"] == 50


def test_an_id_that_stands_twice_is_taken_once(client: httpx.Client, store: Store, cases: list[str]) -> None:
    data = create(client, test_case_ids=["tc-002", "tc-001", "tc-002"], grader_ids=["string-match"] * 2)
    assert (data["test_case_ids"], data["grader_ids"]) == (["tc-002", "tc-001"], ["string-match"])
    assert [case.id for case in store.cases(UUID(data["id"]).hex)] == ["tc-002", "tc-001"]


def test_the_number_of_test_cases_and_graders_is_limited(client: httpx.Client, cases: list[str]) -> None:
    too_many = [str(number) for number in range(5_001)]
    assert error_of(client.post("/api/evaluations", json=body(test_case_ids=too_many)), 413)[0] == "TOO_LARGE"
    assert error_of(client.post("/api/evaluations", json=body(grader_ids=too_many)), 413)[0] == "TOO_LARGE"
    documents = [{"input": number} for number in range(5_001)]
    assert error_of(client.post("/api/test-cases", json=documents), 413)[0] == "TOO_LARGE"
    checks = [{"type": "json_valid", "arguments": {"text": "$.output.value"}}] * 21
    assert error_of(client.post("/api/graders", json={"name": "n", "checks": checks}), 413)[0] == "TOO_LARGE"


def test_the_same_idempotency_key_gives_the_same_run_once(client: httpx.Client, store: Store, cases: list[str]) -> None:
    def post(key: str, **fields: Any) -> Any:
        return client.post("/api/evaluations", json=body(**fields), headers={"Idempotency-Key": key})

    first = post("key-1")
    with ThreadPoolExecutor(8) as threads:
        again = list(threads.map(lambda _: post("key-1"), range(16)))
    assert {response.status_code for response in [first, *again]} == {201}
    assert {response.json()["data"]["id"] for response in again} == {first.json()["data"]["id"]}
    assert store.requested_runs("evaluation", 10)[1] == 1
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
    assert store.requested_runs("evaluation", 10)[1] == 1


def test_values_that_only_json_has_come_back_as_they_were(client: httpx.Client) -> None:
    document = {"id": "odd", "input": {"text": "a\u0000\ud800", "n": 1e308}, "expected": [None, 2**70], "metadata": {}}
    created = client.post("/api/test-cases", content=json.dumps(document))
    assert created.status_code == 201
    assert created.json()["data"] == document == client.get("/api/test-cases/odd").json()["data"]
    assert math.isfinite(created.json()["data"]["input"]["n"])


def test_test_cases_are_stored_listed_and_deleted(client: httpx.Client) -> None:
    created = client.post("/api/test-cases", json={"input": "?"})
    assert created.status_code == 201
    one = created.json()["data"]
    assert str(UUID(one["id"])) == one["id"]
    assert one == {"id": one["id"], "input": "?", "expected": None, "metadata": None}
    lines = '{"id": "z", "input": 1}\n\n{"id": "a", "input": 2, "metadata": {"k": 1}}\n'
    of_lines = {"Content-Type": "application/x-ndjson; charset=utf-8"}
    bulk = client.post("/api/test-cases", content=lines, headers=of_lines)
    assert bulk.status_code == 201
    assert [case["id"] for case in bulk.json()["data"]["test_cases"]] == ["z", "a"]
    data = client.get("/api/test-cases?limit=2&skip=1").json()["data"]
    assert ([case["id"] for case in data["test_cases"]], data["count"], data["total"]) == (["z", "a"], 2, 3)
    assert client.get("/api/test-cases/a").json()["data"]["metadata"] == {"k": 1}
    assert client.delete("/api/test-cases/a").json()["data"] == {"id": "a", "deleted": True}
    assert error_of(client.get("/api/test-cases/a"), 404) == ("NOT_FOUND", "Test case not found")
    assert error_of(client.delete("/api/test-cases/a"), 404) == ("NOT_FOUND", "Test case not found")


@pytest.mark.parametrize(
    ("document", "status", "code"),
    [
        ({}, 400, "MISSING_FIELD"),
        ({"input": 1, "id": ""}, 400, "INVALID_REQUEST"),
        ({"input": 1, "id": 7}, 400, "INVALID_REQUEST"),
        ({"input": 1, "id": "a/b"}, 400, "INVALID_REQUEST"),
        ({"input": 1, "id": "x" * 201}, 400, "INVALID_REQUEST"),
        ({"input": 1, "metadata": []}, 400, "INVALID_REQUEST"),
        ({"input": 1, "extra": 1}, 400, "INVALID_REQUEST"),
        ({"input": 1, "checks": []}, 400, "INVALID_REQUEST"),
        ({"input": 1, "id": "tc-001"}, 409, "CONFLICT"),
        ([{"input": 1, "id": "n"}, {"input": 1, "id": "n"}], 400, "INVALID_REQUEST"),
        ([{"input": 1, "id": "n"}, {"input": 1, "id": "tc-001"}], 409, "CONFLICT"),
        ([{"input": 1}, 5], 400, "INVALID_REQUEST"),
        ({"test_cases": "x"}, 400, "INVALID_REQUEST"),
    ],
)
def test_test_cases_that_are_refused_leave_nothing(
    client: httpx.Client, cases: list[str], document: Any, status: int, code: str
) -> None:
    assert error_of(client.post("/api/test-cases", json=document), status)[0] == code
    assert client.get("/api/test-cases").json()["data"]["total"] == 2


def test_graders_are_stored_listed_and_deleted(client: httpx.Client) -> None:
    built_in = client.get("/api/graders").json()["data"]
    assert built_in["graders"][0] == {
        "id": "string-match",
        "name": "String Match",
        "checks": [
            {
                "type": "exact_match",
                "arguments": {"actual": "$.output.value", "expected": "$.test_case.expected"},
            }
        ],
        "built_in": True,
    }
    checks = [{"type": "contains", "arguments": {"text": "$.output.value", "phrases": ["a"]}, "version": "1.0.0"}]
    created = client.post("/api/graders", json={"id": "has-a", "name": "Has a", "checks": checks})
    assert created.status_code == 201
    assert created.json()["data"] == {"id": "has-a", "name": "Has a", "checks": checks, "built_in": False}
    assert client.get("/api/graders/has-a").json() == created.json()
    data = client.get(f"/api/graders?skip={built_in['total']}").json()["data"]
    assert ([grader["id"] for grader in data["graders"]], data["total"]) == (["has-a"], built_in["total"] + 1)
    again = {"id": "has-a", "name": "Has a", "checks": checks}
    assert error_of(client.post("/api/graders", json=again), 409)[0] == "CONFLICT"
    assert error_of(client.post("/api/graders", json={**again, "id": "contains"}), 409)[0] == "CONFLICT"
    assert error_of(client.delete("/api/graders/contains"), 409)[0] == "CONFLICT"
    assert client.delete("/api/graders/has-a").status_code == 200
    assert error_of(client.get("/api/graders/has-a"), 404) == ("NOT_FOUND", "Grader not found")


def test_a_request_of_a_caller_without_the_scope_is_forbidden(store: Store) -> None:
    with called_by(store, "read") as client:
        assert client.get("/api/evaluations").status_code == 200
        for method, path in (
            ("POST", "evaluations"),
            ("POST", "test-cases"),
            ("POST", "graders"),
            ("DELETE", "test-cases/a"),
            ("DELETE", "graders/a"),
        ):
            content = json.dumps({"test_case_ids": []})
            assert error_of(client.request(method, f"/api/{path}", content=content), 403)[0] == "FORBIDDEN"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/api", 404, "NOT_FOUND"),
        ("GET", "/api/nothing", 404, "NOT_FOUND"),
        ("POST", "/api/evaluations/x", 405, "METHOD_NOT_ALLOWED"),
        ("PUT", "/api/graders", 405, "METHOD_NOT_ALLOWED"),
    ],
)
def test_what_is_not_there_is_in_the_envelope(
    client: httpx.Client, method: str, path: str, status: int, code: str
) -> None:
    assert error_of(client.request(method, path), status)[0] == code


def test_a_path_that_only_begins_so_is_none_of_the_contract(client: httpx.Client) -> None:
    response = client.get("/apiary")
    assert (response.status_code, response.json()["error"]) == (404, "not_found")


@pytest.mark.parametrize("query", ["statsu=failed", "limit=1&limit=2", "status=done"])
def test_a_query_that_cannot_be_meant_is_refused(client: httpx.Client, query: str) -> None:
    assert error_of(client.get(f"/api/evaluations?{query}"), 400)[0] == "INVALID_REQUEST"


def test_a_body_of_a_page_elsewhere_is_not_read(client: httpx.Client, cases: list[str]) -> None:
    response = client.post("/api/evaluations", content=json.dumps(body()), headers={"Content-Type": "text/plain"})
    assert error_of(response, 400)[0] == "INVALID_REQUEST"


def test_a_bug_of_ours_says_no_more_than_that(client: httpx.Client, store: Store) -> None:
    store.graders = None  # type: ignore[method-assign]  # whatever it is, nobody outside gets to see it
    assert error_of(client.get("/api/graders"), 500) == ("INTERNAL_ERROR", "Unexpected server error")


def test_a_fault_of_ours_says_no_more_than_that(client: httpx.Client, store: Store) -> None:
    store._database.file.unlink()
    store.close()
    code, message = error_of(client.get("/api/evaluations"), 503)
    assert (code, message) == ("UNAVAILABLE", "The service is not available, try again later")
