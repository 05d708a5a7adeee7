"""Whatever is sent to a real process, its status is true, and it lives on: thousands of messages in the battery."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fepflow.api.grpc.fep.v1 import fep_pb2, fep_pb2_grpc
from tests.api_process import ApiProcess, api_process
from tests.fepflow.api.grpc.messages import messages, mutated, requests

EXAMPLES = pytest.mark.parametrize("examples", [10, pytest.param(2_000, marks=pytest.mark.battery)])
SERVICES = [
    service for file in (fep_pb2, health_pb2, reflection_pb2) for service in file.DESCRIPTOR.services_by_name.values()
]
METHODS: list[MethodDescriptor] = [
    method
    for service in SERVICES
    for method in service.methods
    if method.name != "Watch"  # which has no end
]
EVALUATE = [method for method in METHODS if method.input_type is fep_pb2.EvaluationRequest.DESCRIPTOR]


def examples_of(count: int) -> settings:
    """Return settings for so many examples, which are the same ones each time if they are few."""
    health = list(HealthCheck)
    return settings(
        max_examples=count, derandomize=count < 50, suppress_health_check=health, database=None, deadline=None
    )


TRUE = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "ALREADY_EXISTS"}
"""What a caller may hear. INTERNAL, UNKNOWN and UNAVAILABLE would be faults of ours."""

Send = Callable[[MethodDescriptor, bytes], str]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    with api_process(tmp_path_factory.mktemp("home")) as api:
        yield api


@pytest.fixture
def send(api: ApiProcess) -> Iterator[Send]:
    """Sends bytes to a method; the status. What comes is a message, and afterwards the service is healthy."""
    with grpc.insecure_channel(api.grpc) as channel:

        def sent(method: MethodDescriptor, data: bytes) -> str:
            path = f"/{method.containing_service.full_name}/{method.name}"
            response = GetMessageClass(method.output_type)
            kind = (
                f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
            )
            call = getattr(channel, kind)(path, None, response.FromString)
            try:
                found = call(iter([data]) if method.client_streaming else data, timeout=60)
                _ = list(found) if method.server_streaming else found
            except grpc.RpcError as error:
                status = str(error.code().name)
                if status not in TRUE:
                    raise AssertionError(f"{path} {data!r}: {status} {error.details()}") from None
                return status
            return "OK"

        yield sent
        health: Any = fep_pb2_grpc.EvaluationServiceStub(channel).HealthCheck(fep_pb2.HealthCheckRequest())
        assert health.status == "healthy"
        assert api.process.poll() is None
        assert "fault" not in api.log.read_text()


def try_all(examples: int, strategy: st.SearchStrategy[tuple[MethodDescriptor, bytes]], send: Send) -> set[str]:
    """The statuses that there were."""
    seen: set[str] = set()

    @examples_of(examples)
    @given(strategy)
    def one(example: tuple[MethodDescriptor, bytes]) -> None:
        seen.add(send(*example))

    one()
    return seen


def serialized(method: MethodDescriptor) -> st.SearchStrategy[bytes]:
    """Messages that the method takes."""
    return messages(GetMessageClass(method.input_type)).map(lambda message: message.SerializeToString())


@EXAMPLES
@pytest.mark.battery
def test_any_bytes_have_a_true_status(send: Send, examples: int) -> None:
    assert "INVALID_ARGUMENT" in try_all(examples, st.tuples(st.sampled_from(METHODS), st.binary(max_size=300)), send)


@EXAMPLES
def test_any_messages_have_a_true_status(send: Send, examples: int) -> None:
    whole = st.sampled_from(METHODS).flatmap(lambda method: st.tuples(st.just(method), serialized(method)))
    assert {"OK", "INVALID_ARGUMENT", "NOT_FOUND"} <= try_all(examples * 2, whole, send)


@EXAMPLES
def test_any_request_that_can_be_read_is_carried_out(send: Send, examples: int) -> None:
    whole = requests().map(lambda message: message.SerializeToString())
    assert try_all(examples, st.tuples(st.sampled_from(EVALUATE), whole), send) >= {"OK"}


@EXAMPLES
def test_requests_with_a_few_other_bytes_have_a_true_status(send: Send, examples: int) -> None:
    whole = mutated(requests().map(lambda message: message.SerializeToString()))
    assert try_all(examples, st.tuples(st.sampled_from(EVALUATE), whole), send) >= {"INVALID_ARGUMENT"}


@EXAMPLES
def test_any_metadata_has_a_true_status(api: ApiProcess, examples: int) -> None:
    """Keys that are none, and idempotency keys of any kind, on a service that asks for no key."""
    names = ["x-api-key", "authorization", "idempotency-key", "grpc-timeout-x", "x-request-id"]
    values = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=300)
    request = fep_pb2.EvaluationRequest()

    with grpc.insecure_channel(api.grpc) as channel:
        stub: Any = fep_pb2_grpc.AsyncEvaluationServiceStub(channel)

        @examples_of(examples)
        @given(st.lists(st.tuples(st.sampled_from(names), values), min_size=1, max_size=4))
        def one(metadata: list[tuple[str, str]]) -> None:
            with pytest.raises(grpc.RpcError) as error:
                stub.StartEvaluation(request, metadata=metadata, timeout=60)
            assert error.value.code().name in ("INVALID_ARGUMENT", "UNAUTHENTICATED", "RESOURCE_EXHAUSTED")

        one()
