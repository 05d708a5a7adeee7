"""Who may call what, how often, and the record of it: as over REST."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from fepflow.access.access import FAILURES_PER_MINUTE
from fepflow.access.caller import SCOPES
from fepflow.access.credentials import create_key
from fepflow.api.grpc.calls import NEEDS, SERVICES
from fepflow.api.grpc.fep.v1 import fep_pb2, fep_pb2_grpc
from fepflow.settings import Settings
from fepflow.store.store import Store
from tests.fepflow.access.conftest import AUDIENCE, ISSUER, SECRET, token
from tests.fepflow.api.grpc.conftest import Serve, Served, failed, request_of, until
from tests.fepflow.api.grpc.test_evaluation import slow_request

METHODS = {
    method.name: method for service in fep_pb2.DESCRIPTOR.services_by_name.values() for method in service.methods
}


@pytest.fixture
def make_settings(tmp_path: Path) -> Callable[..., Settings]:
    return lambda **fields: Settings.model_validate({"home": tmp_path / "home", **fields})


def key_of(store: Store, *scopes: Any) -> tuple[str, str]:
    """The metadata with a new key."""
    return "x-api-key", create_key(store, "test", scopes, None)[1]


async def status(served: Served, name: str, *metadata: tuple[str, str]) -> str:
    """That of an empty call."""
    method = METHODS[name]
    kind = served.channel.unary_stream if method.server_streaming else served.channel.unary_unary
    path = f"/{method.containing_service.full_name}/{name}"
    call: Any = kind(path, None, GetMessageClass(method.output_type).FromString)(b"", metadata=metadata)
    try:
        _ = [one async for one in call] if method.server_streaming else await call
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "OK"


def entries(store: Store, name: str) -> list[tuple[str | None, str]]:
    """The caller and outcome of each entry of an RPC in the audit log, the oldest first."""
    found = [entry for entry in store.access.audit_entries(limit=500) if entry.action.endswith(f"/{name}")]
    return [(entry.caller, entry.outcome) for entry in sorted(found, key=lambda entry: entry.at)]


def test_every_rpc_has_its_scope() -> None:
    assert {method.containing_service.full_name for method in METHODS.values()} == set(SERVICES)
    assert set(METHODS) - set(NEEDS) == {"HealthCheck"}


async def test_a_call_needs_a_key_of_its_scope(serve: Serve, make_settings: Any) -> None:
    async with serve(make_settings()) as served:
        keys = {scope: key_of(served.store, scope) for scope in SCOPES}
        for name in METHODS:
            needed = NEEDS.get(name)
            assert (await status(served, name) == "UNAUTHENTICATED") is (needed is not None)
            for scope, key in keys.items():
                refused = await status(served, name, key) == "PERMISSION_DENIED"
                assert refused is (needed is not None and scope not in (needed, "admin")), (name, scope)


async def test_what_is_no_key_is_refused(serve: Serve, make_settings: Any) -> None:
    no_keys = [("x-api-key", ""), ("x-api-key", "fep_no_key"), ("authorization", "Bearer x")]
    async with serve(make_settings()) as served:
        for metadata in (*no_keys, ("authorization", "Basic YTpi")):
            assert await status(served, "ListOperations", metadata) == "UNAUTHENTICATED", metadata
        key = key_of(served.store, "read")
        assert await status(served, "ListOperations", key) == "OK"
        assert await status(served, "ListOperations", key, key) == "UNAUTHENTICATED"


async def test_a_token_admits_with_its_scopes(serve: Serve, make_settings: Any, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET, encoding="ascii")
    fields = {"jwt_key_file": file, "jwt_algorithm": "HS256", "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    async with serve(make_settings(**fields)) as served:
        bearer = "authorization", f"Bearer {token(scope='read')}"
        assert await status(served, "ListOperations", bearer) == "OK"
        assert await status(served, "CancelOperation", bearer) == "PERMISSION_DENIED"


async def test_starts_and_requests_have_limits(serve: Serve, make_settings: Any) -> None:
    async with serve(make_settings(starts_per_minute=2, requests_per_minute=6)) as served:
        metadata = [key_of(served.store, "read", "evaluate")]
        for _ in range(2):
            await served.operations.StartEvaluation(request_of(), metadata=metadata)
        error = await failed(served.operations.StartEvaluation(request_of(), metadata=metadata))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert len(served.store.runs.newest()) == 2
        codes = Counter([await status(served, "ListOperations", *metadata) for _ in range(7)])
        assert codes == {"OK": 6, "RESOURCE_EXHAUSTED": 1}


async def test_each_evaluation_of_a_batch_counts(serve: Serve, make_settings: Any) -> None:
    async with serve(make_settings(requests_per_minute=3)) as served:
        batch = fep_pb2.BatchEvaluationRequest(evaluations=[request_of()] * 5)
        response = await served.evaluations.BatchEvaluation(batch, metadata=[key_of(served.store, "evaluate")])
        assert len(response.results) == 3
        assert [error.code for error in response.errors] == ["too_many_requests"] * 2


async def test_the_audit_log_has_who_did_what_and_what_came_of_it(
    serve: Serve, make_settings: Any, slow_check: list[str]
) -> None:
    async with serve(make_settings()) as served:
        key = key_of(served.store, "read", "evaluate")
        caller = f"key:{key[1].split('_')[1]}"
        result = await served.evaluations.RunEvaluation(request_of(), metadata=[key])
        await status(served, "RunEvaluation")
        await status(served, "RunEvaluation", key)
        error = await failed(served.evaluations.RunEvaluation(slow_request(), metadata=[key], timeout=1))
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: "cancelled" in slow_check)
        await until(lambda: len(entries(served.store, "RunEvaluation")) == 7)
        assert entries(served.store, "RunEvaluation") == [
            (caller, "begun"),
            (caller, "OK"),
            (None, "UNAUTHENTICATED"),
            (caller, "begun"),
            (caller, "INVALID_ARGUMENT"),
            (caller, "begun"),
            (caller, "CANCELLED"),
        ]
        found = [entry for entry in served.store.access.audit_entries(limit=500) if entry.outcome == "OK"]
        assert [(entry.resource, entry.source) for entry in found] == [(result.evaluation_id, "127.0.0.1")]


async def test_what_cannot_be_recorded_is_not_done(serve: Serve, store: Store) -> None:
    async with serve() as served:
        with store._database.engine.begin() as connection:
            connection.exec_driver_sql("ALTER TABLE audit_entry RENAME TO hidden")
        error = await failed(served.evaluations.RunEvaluation(request_of()))
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert store.runs.newest() == []


FOREIGN = ["evil.example.org", "evil.example.org:4281", "localhost.evil.org", "127.0.0.2", "x" * 5_000, "a\u00e9"]


async def test_without_keys_a_call_for_another_host_is_refused(serve: Serve) -> None:
    async with serve() as served:
        for authority in FOREIGN:
            options = [("grpc.default_authority", authority)]
            async with grpc.aio.insecure_channel(served.address, options=options) as channel:
                stub = fep_pb2_grpc.EvaluationServiceStub(channel)
                error = await failed(stub.RunEvaluation(request_of()))
                assert error.code() is grpc.StatusCode.PERMISSION_DENIED, authority
                assert "localhost" in error.details()
                assert (await stub.HealthCheck(fep_pb2.HealthCheckRequest())).status == "healthy"
        assert served.store.runs.newest() == []
        assert entries(served.store, "RunEvaluation") == [(None, "PERMISSION_DENIED")] * len(FOREIGN)


OF_OTHERS = [
    ("x-forwarded-for", "127.0.0.1"),
    ("forwarded", "for=127.0.0.1"),
    ("x-envoy-external-address", "1.2.3.4"),
    ("via", "1.1 proxy"),
    ("origin", "https://evil.example.org"),
    ("host", "evil.example.org"),
    ("fepflow-authority", "localhost"),
]


async def test_without_keys_calls_of_proxies_and_pages_are_refused(serve: Serve) -> None:
    async with serve() as served:
        for metadata in OF_OTHERS:
            options = [("grpc.default_authority", "evil.example.org")] if metadata[0].startswith("fepflow") else []
            async with grpc.aio.insecure_channel(served.address, options=options) as channel:
                stub = fep_pb2_grpc.EvaluationServiceStub(channel)
                error = await failed(stub.RunEvaluation(request_of(), metadata=[metadata]))
            assert error.code() is grpc.StatusCode.PERMISSION_DENIED, metadata
        assert (await served.evaluations.RunEvaluation(request_of())).evaluation_id


async def test_without_keys_a_call_is_recorded_with_its_address(serve: Serve) -> None:
    async with serve() as served:
        for metadata in ([], [("fepflow-peer", "192.0.2.1")]):
            await served.evaluations.RunEvaluation(request_of(("x" * 300_000, "y")), metadata=metadata)
        assert {entry.source for entry in served.store.access.audit_entries(9)} == {"127.0.0.1"}


async def test_with_a_key_another_host_will_do(serve: Serve, make_settings: Any) -> None:
    async with serve(make_settings()) as served:
        key = key_of(served.store, "evaluate")
        options = [("grpc.default_authority", "fepflow.example.org")]
        async with grpc.aio.insecure_channel(served.address, options=options) as channel:
            stub = fep_pb2_grpc.EvaluationServiceStub(channel)
            await stub.RunEvaluation(request_of(), metadata=[key, ("x-forwarded-for", "192.0.2.1")])


async def test_many_calls_of_one_connection_each_say_their_host(serve: Serve) -> None:
    async with serve() as served:
        metadata = [(f"x-own-{number}", "v" * 40) for number in range(40)]
        stub = served.evaluations
        calls = [stub.RunEvaluation(request_of(), metadata=metadata[:number]) for number in range(0, 40, 2)]
        assert len({(await call).evaluation_id for call in calls}) == 20


async def test_two_idempotency_keys_are_refused(served: Served) -> None:
    keys = [("idempotency-key", "a"), ("idempotency-key", "b")]
    for call in (served.operations.StartEvaluation, served.evaluations.RunEvaluation):
        error = await failed(call(request_of(), metadata=keys))
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "Idempotency-Key" in error.details()
    assert served.store.runs.newest() == []


async def test_calls_without_a_key_are_recorded_so_often_and_no_more(serve: Serve, make_settings: Any) -> None:
    async with serve(make_settings()) as served:
        twice = [("x-api-key", "fep_a"), ("x-api-key", "fep_b")]
        codes = Counter([await status(served, "ListOperations", *twice) for _ in range(FAILURES_PER_MINUTE + 8)])
        assert codes == {"UNAUTHENTICATED": FAILURES_PER_MINUTE, "RESOURCE_EXHAUSTED": 8}
        assert len(served.store.access.audit_entries(500)) == FAILURES_PER_MINUTE + 1
