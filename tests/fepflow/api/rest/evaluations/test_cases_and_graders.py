"""Test cases and graders are stored, found and deleted."""

from __future__ import annotations

import json
import math
from uuid import UUID

import httpx
import pytest

from tests.fepflow.api.rest.evaluations.conftest import error_of


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


def test_test_cases_that_are_refused_leave_nothing(
    client: httpx.Client, cases: list[str], subtests: pytest.Subtests
) -> None:
    for document, status, code in [
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
    ]:
        with subtests.test(document=document, status=status, code=code):
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
