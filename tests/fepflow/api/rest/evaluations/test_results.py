"""Results of an evaluation while it runs and after it, with their summary."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import httpx
import pytest

from fepflow.store.blobs import Blobs
from fepflow.store.store import Store
from tests.fepflow.api.rest.evaluations.conftest import Executor, called_by, create, error_of


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


def test_results_hold_a_large_output_whole_and_are_unavailable_while_its_blob_is_away(
    store: Store, cases: list[str], tmp_path: Path
) -> None:
    with_blobs = Store(store._database, Blobs((tmp_path / "blobs").as_uri()))
    with called_by(with_blobs, "read", "evaluate") as client:
        run_id = create(client)["id"]
        executor = Executor(with_blobs, run_id)
        executor.answer(0, "x" * 300_000, 1.0)
        executor.finish()
        found = client.get(f"/api/evaluations/{run_id}/results").json()["data"]["results"]
        assert [result["agent_response"] for result in found] == ["x" * 300_000]
        (tmp_path / "blobs").rename(tmp_path / "away")
        message = error_of(client.get(f"/api/evaluations/{run_id}/results"), 503)[1]
        assert message == "The service is not available, try again later", "and its log says why"
        assert client.get(f"/api/evaluations/{run_id}").json()["data"]["result_count"] == 1


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


def test_an_agent_without_an_answer_is_a_result_in_error(
    client: httpx.Client, store: Store, cases: list[str], subtests: pytest.Subtests
) -> None:
    for error, message in [
        ({"type": "unknown_error", "message": "connection refused by a:1"}, "Connection refused"),
        (
            {"type": "timeout_error", "message": "no complete answer within 30 s (target.timeout)"},
            "Timeout after 30 seconds",
        ),
        (
            {"type": "timeout_error", "message": "no answer within 30 s, all attempts; before that: HTTP 429: x"},
            "Timeout after 30 seconds; before that: HTTP 429: x",
        ),
        ({"type": "unknown_error", "message": "name not found: a"}, "name not found: a"),
    ]:
        with subtests.test(error=error, message=message):
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


def test_a_grader_says_why_there_is_no_response_as_the_result_does(
    client: httpx.Client, store: Store, cases: list[str]
) -> None:
    executor = Executor(store, create(client)["id"])
    stored = "no complete answer within 30 s (target.timeout)"
    executor.fail(0, type="timeout_error", kind="timeout", message=stored, recoverable=True)
    executor.check(0, "string-match--1", None, None, f"the target gave no output: {stored}")
    executor.finish()
    (result,) = client.get(f"/api/evaluations/{UUID(executor.run_id)}/results").json()["data"]["results"]
    assert result["error_message"] == "Timeout after 30 seconds"
    assert result["scores"][0]["error_message"] == "the target gave no output: Timeout after 30 seconds"


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
