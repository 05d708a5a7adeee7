"""What cannot be meant is refused, with the contract's codes, in its envelope."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from fepflow.store.store import Store
from tests.fepflow.api.rest.evaluations.conftest import add_cases, body, called_by, error_of


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, new_store: Callable[[str], str]) -> Iterator[httpx.Client]:
    """Yield a client of one server for all tests here: refused requests change nothing."""
    url = new_store(f"sqlite:///{tmp_path_factory.mktemp('refusals') / 'store.db'}")
    with Store.open(url) as store, called_by(store, "read", "evaluate") as client:
        yield client


@pytest.fixture(scope="module")
def cases(client: httpx.Client) -> list[str]:
    return add_cases(client)


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
        ({"grader_ids": ["\ud800"]}, "INVALID_GRADER_ID", "Grader not found: \\ud800"),
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
        "http://xn--0.example.com/",  # no name that a client can decode
        "http://010.8.8.8/",  # the system's resolver reads it as octal, and the client not at all
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


def test_the_number_of_test_cases_and_graders_is_limited(client: httpx.Client, cases: list[str]) -> None:
    too_many = [str(number) for number in range(5_001)]
    assert error_of(client.post("/api/evaluations", json=body(test_case_ids=too_many)), 413)[0] == "TOO_LARGE"
    assert error_of(client.post("/api/evaluations", json=body(grader_ids=too_many)), 413)[0] == "TOO_LARGE"
    documents = [{"input": number} for number in range(5_001)]
    assert error_of(client.post("/api/test-cases", json=documents), 413)[0] == "TOO_LARGE"
    checks = [{"type": "json_valid", "arguments": {"text": "$.output.value"}}] * 21
    assert error_of(client.post("/api/graders", json={"name": "n", "checks": checks}), 413)[0] == "TOO_LARGE"


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


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/api/evaluations", "GET, HEAD, POST"),
        ("OPTIONS", "/api/graders/x", "GET, HEAD, DELETE"),
        ("POST", "/api/evaluations/x/results", "GET, HEAD"),
    ],
)
def test_a_method_that_is_not_there_is_told_all_that_are(
    client: httpx.Client, method: str, path: str, allowed: str
) -> None:
    response = client.request(method, path)
    assert response.headers["Allow"] == allowed
    assert allowed in error_of(response, 405)[1]


def test_a_path_that_only_begins_so_is_none_of_the_contract(client: httpx.Client) -> None:
    response = client.get("/apiary")
    assert (response.status_code, response.json()["error"]) == (404, "not_found")


@pytest.mark.parametrize("query", ["statsu=failed", "limit=1&limit=2", "status=done"])
def test_a_query_that_cannot_be_meant_is_refused(client: httpx.Client, query: str) -> None:
    assert error_of(client.get(f"/api/evaluations?{query}"), 400)[0] == "INVALID_REQUEST"


def test_a_body_of_a_page_elsewhere_is_not_read(client: httpx.Client, cases: list[str]) -> None:
    response = client.post("/api/evaluations", content=json.dumps(body()), headers={"Content-Type": "text/plain"})
    assert error_of(response, 400)[0] == "INVALID_REQUEST"


def test_a_bug_of_ours_says_no_more_than_that(store: Store) -> None:
    with called_by(store, "read") as client:
        store.requests.graders = None  # type: ignore[method-assign]  # whatever it is, nobody outside gets to see it
        assert error_of(client.get("/api/graders"), 500) == ("INTERNAL_ERROR", "Unexpected server error")


def test_a_fault_of_ours_says_no_more_than_that(store: Store) -> None:
    with called_by(store, "read") as client:
        store._database.file.unlink()
        store.close()
        code, message = error_of(client.get("/api/evaluations"), 503)
        assert (code, message) == ("UNAVAILABLE", "The service is not available, try again later")
