"""Operations over gRPC, from a caller's side: a real `fepflow serve` executes them as flow runs of its deployment."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import grpc
import pytest
from google.protobuf.json_format import MessageToDict

from fepflow.api.grpc.fep.v1 import fep_pb2, fep_pb2_grpc
from tests.docs.test_interfaces import GRPC, GRPC_ADDRESS, examples
from tests.fepflow.api.grpc.conftest import request_of
from tests.fepflow.api.grpc.forms import request_message

from ..conftest import wait_for
from ..served import Served

pytestmark = pytest.mark.e2e

OVER = ("completed", "failed", "cancelled")
CONTAINS = {"type": "contains", "arguments": {"text": "$.output.value", "phrases": ["a"]}}
NO_ANSWER = {"type": "timeout_error", "message": "no answer within 30 s"}

EVERYTHING: dict[str, Any] = {
    "test_cases": [
        {"id": "plain", "input": "x", "expected": "a"},
        {"id": "data", "input": {"question": [1, None]}, "metadata": {"seed": 2**60}},
        {"id": "failed", "input": "y"},
        {
            "id": "own",
            "input": "z",
            "checks": [{"type": "is_empty", "id": "mine", "arguments": {"value": "$.nowhere"}}],
        },
    ],
    "outputs": [
        {"value": "a"},
        {"value": {"answer": "a"}, "id": "output-1", "metadata": {"latency_ms": 5}},
        {"value": None, "metadata": {"error": NO_ANSWER}},
        {"value": "b"},
    ],
    "checks": [
        CONTAINS,
        {"type": "contains", "arguments": {"text": "${HOME:-a}", "phrases": "$.test_case.expected"}},
        {"type": "unheard_of", "arguments": {}},
        {"type": "regex", "version": "9.0.0", "arguments": {"text": "$.output.value", "pattern": "a"}},
    ],
    "experiment_metadata": {"name": "costs ${HOME} \n", "metadata": {"commit": "abc"}},
}
"""Whatever can be in a request: errors of checks, outputs that are errors, checks of a test case's own."""


class Client:
    """The stubs, which wait for a service that is being restarted."""

    def __init__(self, channel: grpc.Channel, key: str) -> None:
        self.key = key
        self._evaluations: Any = fep_pb2_grpc.EvaluationServiceStub(channel)
        self._operations: Any = fep_pb2_grpc.AsyncEvaluationServiceStub(channel)

    def call(self, method: Any, request: Any, *metadata: tuple[str, str]) -> Any:
        return method(request, metadata=[("x-api-key", self.key), *metadata], wait_for_ready=True, timeout=60)

    def run(self, request: fep_pb2.EvaluationRequest) -> Any:
        return self.call(self._evaluations.RunEvaluation, request)

    def result(self, evaluation_id: str) -> Any:
        request = fep_pb2.GetEvaluationRequest(evaluation_id=evaluation_id)
        return self.call(self._evaluations.GetEvaluation, request)

    def start(self, request: fep_pb2.EvaluationRequest, key: str | None = None) -> Any:
        metadata = [("idempotency-key", key)] if key else []
        return self.call(self._operations.StartEvaluation, request, *metadata)

    def get(self, operation_id: str) -> Any:
        request = fep_pb2.GetOperationRequest(operation_id=operation_id)
        return self.call(self._operations.GetOperation, request)

    def ids(self, **options: Any) -> tuple[list[str], str]:
        """The ids of one page, and the token of the next."""
        page = self.call(self._operations.ListOperations, fep_pb2.ListOperationsRequest(**options))
        return [operation.operation_id for operation in page.operations], page.next_page_token

    def cancel(self, operation_id: str) -> bool:
        request = fep_pb2.CancelOperationRequest(operation_id=operation_id)
        return bool(self.call(self._operations.CancelOperation, request).cancelled)

    def ended(self, operation_id: str) -> Any:
        wait_for(lambda: self.get(operation_id).status in OVER, "an operation that is over", 400)
        return self.get(operation_id)


def address_of(served: Served) -> str:
    return f"127.0.0.1:{served.workplace.env['FEPFLOW_GRPC_PORT']}"


@pytest.fixture
def client(served: Served, key: str) -> Iterator[Client]:
    with grpc.insecure_channel(address_of(served)) as channel:
        yield Client(channel, key)


def without_times(result: Any) -> Any:
    """A result as JSON data: what depends on when, and as what, it was evaluated is left out."""
    data = MessageToDict(result)
    for name in ("evaluationId", "startedAt", "completedAt", "metadata"):
        data.pop(name)
    for one in data["results"]:
        for check in one["checkResults"]:
            check.pop("evaluatedAt")
            check.get("metadata", {}).get("additionalMetadata", {}).pop("execution_time_ms", None)
    return data


def test_an_operation_comes_to_the_result_of_an_evaluation(served: Served, client: Client) -> None:
    request = request_message(EVERYTHING)
    started = client.start(request)
    assert started.status == "pending"
    operation = client.ended(started.operation_id)
    assert operation.status == "completed", operation
    direct = client.run(request)
    assert without_times(operation.result) == without_times(direct)
    assert operation.result.metadata["outcome"] == direct.metadata["outcome"] != "pass"
    flow_run = served.flow_run(operation.metadata["flow_run_id"])
    assert flow_run["deployment_id"] == served.deployment("requested")["id"]


def test_the_same_request_with_the_same_key_is_one_operation(client: Client) -> None:
    key = uuid4().hex
    first = client.start(request_of(), key)
    assert client.start(request_of(), key).operation_id == first.operation_id
    with pytest.raises(grpc.RpcError) as error:
        client.start(request_of(wanted="Rome"), key)
    assert error.value.code() is grpc.StatusCode.ALREADY_EXISTS
    assert client.ended(first.operation_id).result.metadata["outcome"] == "pass"
    assert client.start(request_of(), key).operation_id == first.operation_id


def test_operations_outlive_the_service(served: Served, client: Client) -> None:
    ids = [client.start(request_of(wanted=wanted)).operation_id for wanted in ("Paris", "Rome")]
    os.kill(served.pids("api")[-1], signal.SIGKILL)
    wait_for(lambda: len(served.pids("api")) == 2, "another process of the interfaces")
    outcomes = [client.ended(operation_id).result.metadata["outcome"] for operation_id in ids]
    assert outcomes == ["pass", "fail"]
    found, token = client.ids(page_size=1, filter="status=completed")
    more, _ = client.ids(page_size=1, filter="status=completed", page_token=token)
    assert found + more == ids[::-1]


def test_an_operation_under_way_is_cancelled(served: Served, client: Client) -> None:
    """Its patterns take a second each, at which they are given up."""
    request = request_of(*[("x", "a" * 60 + "b")] * 200)
    (check,) = request.checks.shared_checks.checks
    check.type = "regex"
    check.arguments.Clear()
    check.arguments.update({"text": "$.output.value", "pattern": "^(a|a)*$"})
    operation_id = client.start(request).operation_id
    wait_for(lambda: client.get(operation_id).status == "running", "an operation that is under way")
    progress = client.get(operation_id).progress
    assert progress.completed_test_cases < progress.total_test_cases == 200
    assert client.cancel(operation_id)
    operation = client.ended(operation_id)
    assert (operation.status, operation.HasField("result")) == ("cancelled", False)
    assert client.ids(filter="status=cancelled")[0] == [operation_id]
    assert not client.cancel(operation_id)
    wait_for(lambda: served.runs("requested", "CANCELLED"), "a flow run that is cancelled")
    result = client.result(operation_id)
    assert result.status != fep_pb2.EVALUATION_STATUS_COMPLETED
    assert not result.metadata["outcome"]


def test_the_example_of_the_documentation_works(served: Served, key: str) -> None:
    namespace: dict[str, Any] = {"API_KEY": key}
    for example in examples(GRPC):
        exec(example.replace(GRPC_ADDRESS, address_of(served)), namespace)
    assert namespace["operation"].status == "completed"
