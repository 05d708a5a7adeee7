"""Whatever is sent to a real process, its answer is true, and it lives on: thousands of messages in the battery.

Over gRPC a status is one that a caller may hear; over REST a response is one that the published document has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
import schemathesis
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.schemas import APIOperation, BaseSchema
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from fepflow.api.grpc.fep.v1 import fep_pb2, fep_pb2_grpc
from tests.api_process import ApiProcess, api_process
from tests.fepflow.api.grpc.messages import messages, mutated, requests

KEY = "X-API-Key"

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


TRUE = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "ALREADY_EXISTS"}
"""What a caller may hear. INTERNAL, UNKNOWN and UNAVAILABLE would be faults of ours."""

Send = Callable[[MethodDescriptor, bytes], str]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiProcess]:
    env = {"FEPFLOW_REQUESTS_PER_MINUTE": "1000000", "FEPFLOW_STARTS_PER_MINUTE": "1000000"}
    with api_process(tmp_path_factory.mktemp("home"), **env) as api:
        yield api


@pytest.fixture(scope="module")
def key(api: ApiProcess) -> str:
    """A key of the process, which asks for one from then on."""
    return api.new_key("admin")


def examples_of(count: int) -> settings:
    """Return settings for so many examples, which are the same ones each time if they are few."""
    health = list(HealthCheck)
    return settings(
        max_examples=count, derandomize=count < 50, suppress_health_check=health, database=None, deadline=None
    )


@pytest.fixture
def send(api: ApiProcess, key: str) -> Iterator[Send]:
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
                message = iter([data]) if method.client_streaming else data
                found = call(message, timeout=60, metadata=[(KEY.lower(), key)])
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
def test_any_metadata_has_a_true_status(api: ApiProcess, key: str, examples: int) -> None:
    """Keys that are not valid, and idempotency keys of any kind beside one that is."""
    names = ["x-api-key", "authorization", "idempotency-key", "grpc-timeout-x", "x-request-id"]
    values = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=300)
    request = fep_pb2.EvaluationRequest()

    with grpc.insecure_channel(api.grpc) as channel:
        stub: Any = fep_pb2_grpc.AsyncEvaluationServiceStub(channel)

        @examples_of(examples)
        @given(st.lists(st.tuples(st.sampled_from(names), values), min_size=1, max_size=4))
        def one(metadata: list[tuple[str, str]]) -> None:
            own = [] if {KEY.lower(), "authorization"} & {name for name, _ in metadata} else [(KEY.lower(), key)]
            with pytest.raises(grpc.RpcError) as error:
                stub.StartEvaluation(request, metadata=[*own, *metadata], timeout=60)
            assert error.value.code().name in ("INVALID_ARGUMENT", "UNAUTHENTICATED", "RESOURCE_EXHAUSTED")

        one()


REQUESTS = pytest.mark.parametrize("examples", [2, pytest.param(200, marks=pytest.mark.battery)])
EXCLUDED: list[Any] = [positive_data_acceptance, ignored_auth]
"""A schema cannot say that ids are unique, or that each test case has an output. Beside a key that is valid, a header
Authorization is not looked at."""


MAX_URL = 65_536
"""The server cuts off a longer one; percent-encoding makes up to twelve characters of one."""


REFUSALS = SchemathesisConfig.from_dict(
    {"checks": {"negative_data_rejection": {"expected-statuses": [400, 401, 403, 404, 405, 409, 413, 415, 429]}}}
)
"""Statuses that may refuse a request that does not fit: 413 where it is too large, and none of 500 and above."""


@pytest.fixture(scope="module")
def schema(api: ApiProcess) -> BaseSchema:
    """The document of the process."""
    return schemathesis.openapi.from_url(f"{api.rest}/openapi.json", config=REFUSALS)


@REQUESTS
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_no_request_is_answered_in_another_way_than_the_document_says(
    schema: BaseSchema, key: str, mode: GenerationMode, examples: int
) -> None:
    operations = [found.ok() for found in schema.get_all_operations()]  # type: ignore[union-attr]  # raises an error
    if mode == GenerationMode.NEGATIVE:  # of what takes nothing, nothing is wrong
        operations = [each for each in operations if each.body or list(each.iter_parameters())]
    assert operations
    for operation in operations:
        _try(operation, key, mode, examples)


def _try(operation: APIOperation[Any, Any, Any, Any], key: str, mode: GenerationMode, examples: int) -> None:
    """Send requests that are as the document has them, or are not; those that are not have to be refused."""

    @settings(examples_of(examples), phases=[Phase.generate])
    @given(case=operation.as_strategy(mode))
    def send(case: schemathesis.Case[Any]) -> None:
        assume(len(str(case.query)) < MAX_URL // 12)
        case.call_and_validate(headers={KEY: key}, excluded_checks=EXCLUDED)

    send()


@REQUESTS
def test_no_series_of_requests_is_a_fault_of_the_server(schema: BaseSchema, key: str, examples: int) -> None:
    class Machine(schema.as_state_machine()):  # type: ignore[misc]  # a class made from the document
        def get_call_kwargs(self, case: schemathesis.Case[Any]) -> dict[str, Any]:
            return {"headers": {KEY: key}}

        def validate_response(self, response: Any, case: schemathesis.Case[Any], **_: Any) -> None:
            case.validate_response(response, headers={KEY: key}, excluded_checks=EXCLUDED)

    steps = 10 if examples > 2 else 6
    few = settings(examples_of(max(examples // 3, 2)), stateful_step_count=steps)
    run_state_machine_as_test(Machine, settings=few)
