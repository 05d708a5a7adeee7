"""Requests of the evaluations contract over a real socket, and what a flow run would do to its runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import httpx
import pytest
from starlette.types import ASGIApp

from fepflow.access.access import Access
from fepflow.access.caller import Scope as AccessScope
from fepflow.access.credentials import create_key
from fepflow.api.evaluations.check_pool import CheckPool
from fepflow.api.evaluations.service import EvaluationService
from fepflow.api.rest.evaluations import error_envelope, evaluations_router
from fepflow.api.rest.http import Errors, create_app
from fepflow.api.rest.middleware import AccessMiddleware
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckError, CheckResult
from fepflow.protocol.test_case import Output
from fepflow.settings import Settings
from fepflow.store.records import NewCheckResult, NewOutput
from fepflow.store.store import Store
from tests.fepflow.api.rest.conftest import served_by

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
    """A client with a key of these scopes."""
    errors = Errors({"/api": error_envelope})

    @asynccontextmanager
    async def evaluations() -> AsyncIterator[ASGIApp]:
        settings = Settings.model_validate({"home": home, "starts_per_minute": 10_000, "requests_per_minute": 10_000})
        async with CheckPool.open() as pool, Access(store, settings, may_be_open=False) as access:
            app = create_app([evaluations_router(EvaluationService(store), pool)], errors)
            yield AccessMiddleware(app, access, errors.render, max_body=2_000_000)

    with TemporaryDirectory() as home, served_by(evaluations) as client:
        client.headers["X-API-Key"] = create_key(store, "tests", scopes, None)[1]
        yield client


@pytest.fixture
def client(store: Store) -> Iterator[httpx.Client]:
    with called_by(store, "read", "evaluate") as client:
        yield client


def add_cases(client: httpx.Client) -> list[str]:
    """Store two test cases; return their ids."""
    documents = [
        {"id": "tc-001", "input": "What is the capital of France?", "expected": "Paris"},
        {"id": "tc-002", "input": "What is 2+2?", "expected": "4"},
    ]
    assert client.post("/api/test-cases", json=documents).status_code == 201
    return ["tc-001", "tc-002"]


@pytest.fixture
def cases(client: httpx.Client) -> list[str]:
    return add_cases(client)


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
        store.leases.acquire(self.run_id, "executor", 60)

    def answer(self, index: int, value: Any, latency_ms: float) -> None:
        output = Output(value=value, metadata={"latency_ms": latency_ms, "attempts": 1})
        self.store.results.write(self.run_id, [NewOutput(index, 0, "0" * 64, output)], [])

    def fail(self, index: int, **error: Any) -> None:
        output = Output(value=None, metadata={"error": error, "attempts": 3})
        self.store.results.write(self.run_id, [NewOutput(index, 0, "0" * 64, output)], [])

    def check(
        self,
        index: int,
        check_id: str,
        results: dict[str, Any] | None,
        passed: bool | None,
        error: str = "Grader timeout",
    ) -> None:
        fields: dict[str, Any] = {"status": "completed", "results": results}
        if results is None:
            fields = {"status": "error", "results": {}, "error": CheckError(type="timeout_error", message=error)}
        metadata = {"check_id": check_id}
        result = CheckResult(check_type="exact_match", evaluated_at=utc_now(), metadata=metadata, **fields)
        self.store.results.write(self.run_id, [], [NewCheckResult(index, 0, check_id, "0" * 64, result, passed)])

    def finish(self, status: Any = "completed", error: str | None = None) -> None:
        outcome: Any = "fail" if status == "completed" else None
        self.store.leases.finish(self.run_id, "executor", status, outcome=outcome, error=error)
