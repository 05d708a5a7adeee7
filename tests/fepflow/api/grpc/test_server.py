"""The server: health, reflection, TLS, limits, its port and its end."""

from __future__ import annotations

import asyncio
import gzip
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from fepflow.api.grpc.calls import SERVICES
from fepflow.api.grpc.fep.v1 import fep_pb2, fep_pb2_grpc
from fepflow.errors import InfrastructureError
from fepflow.settings import Settings
from tests.fepflow.api.grpc.conftest import Serve, Served, error_of, failed, request_of, until
from tests.fepflow.api.grpc.test_evaluation import slow_request

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def described(channel: grpc.aio.Channel, **request: str) -> Any:
    """What reflection says."""
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(**request)]))
    return await call.read()


async def test_a_client_that_knows_only_the_address_finds_out_the_rest(served: Served) -> None:
    services = (await described(served.channel, list_services="")).list_services_response.service
    assert {one.name for one in services} >= set(SERVICES)
    found = await described(served.channel, file_containing_symbol=SERVICES[0])
    pool = descriptor_pool.DescriptorPool()
    for data in found.file_descriptor_response.file_descriptor_proto[::-1]:
        pool.Add(descriptor_pb2.FileDescriptorProto.FromString(data))
    method = pool.FindMethodByName(f"{SERVICES[0]}.RunEvaluation")
    classes = [message_factory.GetMessageClass(each) for each in (method.input_type, method.output_type)]
    call: Any = served.channel.unary_unary(
        f"/{SERVICES[0]}/RunEvaluation",
        request_serializer=classes[0].SerializeToString,
        response_deserializer=classes[1].FromString,
    )
    text = json_format.MessageToJson(request_of())
    result = json_format.MessageToDict(await call(json_format.Parse(text, classes[0]())))
    assert result["status"] == "EVALUATION_STATUS_COMPLETED"
    assert result["results"][0]["checkResults"][0]["results"] == {"passed": True}


async def test_the_standard_health_service_knows_our_services(served: Served) -> None:
    stub = health_pb2_grpc.HealthStub(served.channel)
    for name in ("", *SERVICES):
        assert (await stub.Check(health_pb2.HealthCheckRequest(service=name))).status == SERVING
    listed = await stub.List(health_pb2.HealthListRequest())
    assert {name: one.status for name, one in listed.statuses.items()} == dict.fromkeys(("", *SERVICES), SERVING)
    error = await failed(stub.Check(health_pb2.HealthCheckRequest(service="other")))
    assert error.code() is grpc.StatusCode.NOT_FOUND


async def test_the_end_is_told_to_those_who_watch_and_waits_for_calls(serve: Serve, slow_check: list[str]) -> None:
    async def end_of_watch() -> Any:
        status = (await watch.read()).status
        watch.cancel()
        return status

    async with serve(grace=20) as served:
        watch = health_pb2_grpc.HealthStub(served.channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == SERVING
        last = asyncio.create_task(end_of_watch())
        own = grpc.aio.insecure_channel(served.address)  # the other one ends its calls together with the server
        stub = fep_pb2_grpc.EvaluationServiceStub(own)
        call = asyncio.create_task(failed(stub.RunEvaluation(slow_request(), timeout=3)))
        await until(lambda: "begun" in slow_check)
    assert await last == NOT_SERVING
    assert (await call).code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await own.close(None)


async def test_calls_that_outlast_the_grace_are_ended(serve: Serve, slow_check: list[str]) -> None:
    async with serve(grace=0.2) as served:
        call = asyncio.create_task(failed(served.evaluations.RunEvaluation(slow_request())))
        await until(lambda: "begun" in slow_check)
    await asyncio.gather(call, return_exceptions=True)  # the server's answer, or the end of the client's channel
    await until(lambda: "cancelled" in slow_check)


async def test_a_method_that_there_is_not_is_unimplemented(served: Served) -> None:
    for path in ("/fep.v1.EvaluationService/Nothing", "/nothing/Nothing", "/"):
        error = await failed(served.channel.unary_unary(path, None, None)(b""))
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.fixture
def certificates(tmp_path: Path) -> tuple[bytes, tuple[Path, Path]]:
    """The certificate of an authority, and the files of one for localhost and of its key."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    files = tmp_path / "cert.pem", tmp_path / "key.pem"
    files[0].write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    files[1].write_bytes(issued.private_key_pem.bytes())
    return authority.cert_pem.bytes(), files


async def test_calls_are_encrypted(serve: Serve, certificates: tuple[bytes, tuple[Path, Path]]) -> None:
    root, files = certificates
    async with serve(tls=files) as served:
        address = served.address.replace("127.0.0.1", "localhost")
        async with grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(root)) as channel:
            result = await fep_pb2_grpc.EvaluationServiceStub(channel).RunEvaluation(request_of())
            assert result.status == fep_pb2.EVALUATION_STATUS_COMPLETED
        async with grpc.aio.secure_channel(address, grpc.ssl_channel_credentials()) as stranger:
            error = await failed(fep_pb2_grpc.EvaluationServiceStub(stranger).RunEvaluation(request_of()))
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        error = await failed(served.evaluations.RunEvaluation(request_of()))  # without TLS
        assert error.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_port_that_another_has_is_said_so(served: Served, serve: Serve) -> None:
    with pytest.raises(InfrastructureError, match=f"gRPC cannot listen on {served.address}"):
        async with serve(port=int(served.address.rpartition(":")[2])):
            pass


async def test_an_ipv6_address_is_listened_on(serve: Serve) -> None:
    async with serve(host="::1") as served, grpc.aio.insecure_channel(served.address) as channel:
        stub = fep_pb2_grpc.EvaluationServiceStub(channel)
        assert (await stub.HealthCheck(fep_pb2.HealthCheckRequest())).status == "healthy"


async def test_a_request_that_is_too_large_is_refused(serve: Serve) -> None:
    async with serve(max_message=100_000) as served:
        error = await failed(served.evaluations.RunEvaluation(request_of(("x" * 100_000, "y"))))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "larger than max" in error.details()


async def test_a_result_that_is_too_large_is_refused_with_its_id(serve: Serve) -> None:
    async with serve(max_message=100_000) as served:
        error = await failed(served.evaluations.RunEvaluation(request_of(("x", "y" * 40_000), ("z", "y" * 40_000))))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        stored = served.store.runs.newest()[0].id
        assert error_of(error).details["evaluation_id"] == stored
        assert f"GET /v1/evaluations/{stored} of the REST interface has it" in error.details()


async def test_the_limit_is_four_mebibytes(served: Served) -> None:
    result = await served.evaluations.RunEvaluation(
        request_of(
            ("x" * 1_900_000, "y"),
        )
    )
    assert 1_900_000 < result.ByteSize() < 4 * 1024 * 1024
    error = await failed(served.evaluations.RunEvaluation(request_of(("x" * 4 * 1024 * 1024, "y"))))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_compressed_messages_are_refused_before_they_are_large(serve: Serve) -> None:
    async with serve(max_message=100_000) as served:
        request = request_of(("x" * 50_000, "y"))
        assert len(gzip.compress(request.SerializeToString())) < 1_000
        error = await failed(served.evaluations.RunEvaluation(request, compression=grpc.Compression.Gzip))
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED


async def is_healthy(served: Served) -> bool:
    try:
        return bool((await served.evaluations.HealthCheck(fep_pb2.HealthCheckRequest())).status == "healthy")
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
            raise
        return False


async def test_a_call_too_many_is_refused(serve: Serve, slow_check: list[str]) -> None:
    async with serve(max_calls=2) as served:
        calls = [served.evaluations.RunEvaluation(slow_request()) for _ in "ab"]
        await until(lambda: slow_check.count("begun") == 2)
        error = await failed(served.evaluations.HealthCheck(fep_pb2.HealthCheckRequest()))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for call in calls:
            call.cancel()
        async with asyncio.timeout(30):  # a call may be over for its caller before its place is free
            while not await is_healthy(served):  # noqa: ASYNC110  # there is no event to wait for
                await asyncio.sleep(0.01)


async def test_an_error_has_room_in_the_metadata_whatever_is_wrong(served: Served) -> None:
    request = request_of(*[("日本" * 20, "x")] * 90)
    for index, case in enumerate(request.test_cases):
        case.id = f"日本語{index}" * 40
        case.input.json_text = "日" * 500
        request.checks.shared_checks.checks.add(type="日本", version="日本" * 200)
    error = await failed(served.evaluations.RunEvaluation(request))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error_of(error).code == "validation_error"
    for case in request.test_cases:
        case.input.string_value = "x"
    error = await failed(served.evaluations.RunEvaluation(request))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error_of(error).details["problems"]


async def test_a_fault_of_ours_says_nothing_of_its_cause(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any) -> None:
        raise RuntimeError("the password is hunter2")

    monkeypatch.setattr(served.service, "evaluate", broken)
    error = await failed(served.evaluations.RunEvaluation(request_of()))
    assert (error.code(), error.details()) == (
        grpc.StatusCode.INTERNAL,
        "This is a fault of fepflow; its log says more.",
    )
    batch = fep_pb2.BatchEvaluationRequest(evaluations=[request_of()])
    response = await served.evaluations.BatchEvaluation(batch)
    assert response.errors[0].message == error.details()


async def test_reading_a_large_request_leaves_the_loop_free(served: Served) -> None:
    request = request_of(*[(f"question {index}", "Paris" * 20) for index in range(5_000)])
    result = await served.evaluations.RunEvaluation(request)
    assert result.summary.completed_checks == 5_000


def half_sent(channel: grpc.aio.Channel, method: str, metadata: Any = None) -> Any:
    """A call that has begun, whose message does not come."""
    call: Any = channel.stream_unary(f"/{SERVICES[0]}/{method}")  # type: ignore[call-arg]  # no serializers are needed
    return call(metadata=metadata)


async def test_a_message_that_does_not_come_has_a_deadline(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("fepflow.api.grpc.calls.BODY_SECONDS", 1.0)
    monkeypatch.setattr("fepflow.api.grpc.calls.HEAD_SECONDS", 1.0)
    async with serve(max_calls=8) as served:
        calls = [half_sent(served.channel, method) for method in ("RunEvaluation", "RunEvaluation", "HealthCheck")]
        for call in calls:
            error = await failed(call)
            assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            assert "did not come within 1 s" in error.details()
        assert await is_healthy(served)


async def test_strangers_are_refused_before_their_message_is_waited_for(serve: Serve, tmp_path: Path) -> None:
    async with serve(Settings.model_validate({"home": tmp_path / "home"})) as served:
        error = await failed(half_sent(served.channel, "RunEvaluation"))
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_calls_of_anybody_leave_places_to_others(serve: Serve) -> None:
    async with serve(max_calls=8) as served:
        stub = health_pb2_grpc.HealthStub(served.channel)
        watches = [stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(8)]
        first = [await asyncio.gather(watch.read(), return_exceptions=True) for watch in watches]
        assert sum(isinstance(one, health_pb2.HealthCheckResponse) for (one,) in first) == 2
        assert await is_healthy(served)
        assert (await served.evaluations.RunEvaluation(request_of())).evaluation_id
        for watch in watches:
            watch.cancel()


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\x04\0\0\0\0\0"
HALF_HEADERS = b"\0\x10\0\x01\x04\0\0\0\x01\x82"
HALF_SENT = [b"", PREFACE[:9], PREFACE, PREFACE + SETTINGS, PREFACE + SETTINGS + HALF_HEADERS]


@pytest.mark.parametrize("asks", [False, True], ids=["open", "with keys"])
async def test_connections_that_never_get_to_a_call_are_closed(
    serve: Serve, asks: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("fepflow.api.grpc.server.HEAD_SECONDS", 2.0)
    monkeypatch.setattr("fepflow.api.grpc.server.most_connections", lambda: 12)
    settings = Settings.model_validate({"home": tmp_path / "home"}) if asks else None
    async with serve(settings) as served:
        host, _, port = served.address.rpartition(":")
        connections = [await asyncio.open_connection(host, int(port)) for _ in range(4 * len(HALF_SENT))]
        for (_, writer), begun in zip(connections, HALF_SENT * 4, strict=True):
            writer.write(begun)
        async with asyncio.timeout(20):
            for reader, writer in connections:
                with suppress(ConnectionError):
                    await reader.read()
                writer.close()
        assert await is_healthy(served)
