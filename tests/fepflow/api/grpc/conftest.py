"""A gRPC server over a store of its own, in this process, on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import grpc
import pytest
from sqlalchemy import insert

from fepflow.access.access import Access
from fepflow.api.evaluations.fep import FepService
from fepflow.api.grpc.fep.v1 import fep_pb2, fep_pb2_grpc
from fepflow.api.grpc.server import GrpcServer, serve_grpc
from fepflow.checks import registry
from fepflow.checks.base import BaseAsyncCheck
from fepflow.protocol.model import utc_now
from fepflow.protocol.test_case import TestCase
from fepflow.settings import Settings, settings
from fepflow.store.records import RUN_REQUEST, RunRecord
from fepflow.store.store import Store

Serve = Callable[..., AbstractAsyncContextManager["Served"]]


@dataclass
class Served:
    """A server and its store; the stubs of a client."""

    server: GrpcServer
    store: Store
    service: FepService
    channel: grpc.aio.Channel

    @property
    def address(self) -> str:
        return self.server.address

    @property
    def evaluations(self) -> Any:
        return fep_pb2_grpc.EvaluationServiceStub(self.channel)

    @property
    def operations(self) -> Any:
        return fep_pb2_grpc.AsyncEvaluationServiceStub(self.channel)


def add_operation(store: Store, cases: Sequence[TestCase], name: str = "operation") -> str:
    """A run that was requested and waits for a flow run."""
    run_id = uuid4().hex
    store.runs.create(RunRecord(id=run_id, name=name, suite={"name": name}, repeats=1), cases)
    values = {"run_id": run_id, "kind": "operation", "request_hash": "", "request": {}, "created_at": utc_now()}
    store._database.write(lambda connection: connection.execute(insert(RUN_REQUEST).values(values)))
    return run_id


@pytest.fixture
def serve(store: Store) -> Serve:
    """Starts a server, with the options of `serve_grpc`; one with settings asks for keys."""

    @asynccontextmanager
    async def started(given: Settings | None = None, **options: Any) -> AsyncIterator[Served]:
        async with (
            AsyncExitStack() as clients,
            FepService.open(store) as service,
            Access(store, given or settings(), may_be_open=given is None) as access,
            serve_grpc(service, store, access, **{"grace": 0.5, **options}) as server,
        ):
            channel = await clients.enter_async_context(grpc.aio.insecure_channel(server.address))
            yield Served(server, store, service, channel)

    return started


@pytest.fixture
async def served(serve: Serve) -> AsyncIterator[Served]:
    async with serve() as one:
        yield one


@pytest.fixture
def slow_check(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A check type `slow`, which never ends; what it says of itself."""
    said: list[str] = []

    class SlowCheck(BaseAsyncCheck):
        async def __call__(self) -> dict[str, Any]:
            said.append("begun")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                said.append("cancelled")
                raise
            return {}

    monkeypatch.setattr(registry, "_registered", {})
    registry.register("slow", "1.0.0")(SlowCheck)
    return said


async def until(happened: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(30):
        while not happened():  # noqa: ASYNC110  # there is no event to wait for
            await asyncio.sleep(0.01)


async def failed(call: Awaitable[Any]) -> grpc.aio.AioRpcError:
    """The error of a call."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value


def error_of(error: grpc.aio.AioRpcError) -> fep_pb2.FepError:
    """The FepError that came with a status."""
    metadata: Any = error.trailing_metadata()
    details = dict(metadata)["grpc-status-details-bin"]
    status = fep_pb2.ErrorStatus.FromString(details)
    assert (status.code, status.message) == (error.code().value[0], error.details())
    found = fep_pb2.FepError()
    assert status.details[0].Unpack(found)
    return found


def request_of(*pairs: tuple[Any, str], wanted: str = "Paris") -> fep_pb2.EvaluationRequest:
    """A request with a test case, and its output, for each pair, and one check for all."""
    request = fep_pb2.EvaluationRequest()
    for index, (given, output) in enumerate(pairs or [("What is the capital of France?", "Paris.")]):
        request.test_cases.add(id=f"case-{index}").input.string_value = given
        request.outputs.add().value.string_value = output
    check = request.checks.shared_checks.checks.add(type="contains")
    check.arguments.update({"text": "$.output.value", "phrases": [wanted]})
    return request
