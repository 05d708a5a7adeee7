"""AsyncEvaluationService: operations are started, found, listed and cancelled."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import grpc
import pytest

from fepflow.api.grpc.fep.v1 import fep_pb2
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.records import NewCheckResult, NewOutput
from fepflow.store.store import Store
from tests.fepflow.api.grpc.conftest import Serve, Served, add_operation, failed, request_of
from tests.fepflow.conftest import check

CASES = [TestCase(id="a", input="x"), TestCase(id="b", input="y")]


def carry_out(store: Store, run_id: str, cases: int = 2) -> None:
    """Do what the flow run does, as far as so many test cases."""
    result = check(True).model_copy(update={"metadata": {"check_id": "contains"}})
    store.leases.acquire(run_id, "host/1/a", 60)
    outputs = [NewOutput(index, 0, "a" * 64, Output(value="out" * 1_000)) for index in range(cases)]
    checks = [NewCheckResult(index, 0, "contains", "b" * 64, result, True) for index in range(cases)]
    store.results.write(run_id, outputs, checks)


def complete(store: Store, run_id: str) -> None:
    carry_out(store, run_id)
    store.leases.finish(run_id, "host/1/a", "completed", outcome="pass", metrics=[], verdict={"outcome": "pass"})


async def get(served: Served, run_id: str) -> Any:
    return await served.operations.GetOperation(fep_pb2.GetOperationRequest(operation_id=run_id))


async def listed(served: Served, **options: Any) -> Any:
    return await served.operations.ListOperations(fep_pb2.ListOperationsRequest(**options))


def ids(response: Any) -> list[str]:
    return [operation.operation_id for operation in response.operations]


async def test_an_operation_is_started_and_found_until_it_has_its_result(served: Served) -> None:
    started = await served.operations.StartEvaluation(request_of(("x", "out"), ("y", "out")))
    assert (started.status, started.HasField("result"), started.HasField("started_at")) == ("pending", False, False)
    run_id = started.operation_id
    carry_out(served.store, run_id, cases=1)
    running = await get(served, run_id)
    assert running.status == "running"
    assert (running.progress.completed_test_cases, running.progress.total_test_cases) == (1, 2)
    complete(served.store, run_id)
    done = await get(served, run_id)
    assert done.status == "completed"
    assert done.result.evaluation_id == run_id
    assert done.result.summary.completed_checks == 2
    assert done.completed_at.ToDatetime() >= done.started_at.ToDatetime() >= done.created_at.ToDatetime()
    assert not done.HasField("progress")
    assert done.result == await served.evaluations.GetEvaluation(fep_pb2.GetEvaluationRequest(evaluation_id=run_id))


async def test_operations_survive_a_restart(serve: Serve, store: Store) -> None:
    async with serve() as served:
        run_id = (await served.operations.StartEvaluation(request_of())).operation_id
    async with serve() as served:
        assert (await get(served, run_id)).status == "pending"
        assert ids(await listed(served)) == [run_id]


@pytest.mark.parametrize(("ended", "code"), [("failed", "unknown_error"), ("interrupted", "interrupted")])
async def test_what_ended_badly_has_failed_and_says_why(served: Served, ended: Any, code: str) -> None:
    run_id = add_operation(served.store, CASES)
    carry_out(served.store, run_id)
    served.store.leases.finish(run_id, "host/1/a", ended, error="the disk is full")
    operation = await get(served, run_id)
    assert (operation.status, operation.error.code, operation.error.message) == ("failed", code, "the disk is full")
    assert ids(await listed(served, filter="status=failed")) == [run_id]


@pytest.mark.parametrize("operation_id", ["", "0" * 32, "latest", "x" * 5_000])
async def test_what_is_no_operation_is_not_found(served: Served, operation_id: str) -> None:
    error = await failed(get(served, operation_id))
    assert error.code() is grpc.StatusCode.NOT_FOUND
    error = await failed(served.operations.CancelOperation(fep_pb2.CancelOperationRequest(operation_id=operation_id)))
    assert error.code() is grpc.StatusCode.NOT_FOUND


async def test_an_evaluation_of_the_other_service_is_no_operation(served: Served) -> None:
    result = await served.evaluations.RunEvaluation(request_of())
    assert (await failed(get(served, result.evaluation_id))).code() is grpc.StatusCode.NOT_FOUND
    assert ids(await listed(served)) == []


async def test_a_result_too_large_for_a_message_is_left_out_and_said_so(serve: Serve) -> None:
    async with serve(max_message=6_000) as served:
        run_id = add_operation(served.store, CASES)
        complete(served.store, run_id)
        operation = await get(served, run_id)
        assert operation.status == "completed"
        assert not operation.HasField("result")
        assert f"GET /v1/evaluations/{run_id}" in operation.metadata["result_omitted"]


async def test_pages_have_each_operation_once_while_new_ones_arrive(served: Served) -> None:
    there = [add_operation(served.store, CASES) for _ in range(7)][::-1]
    page = await listed(served, page_size=3)
    found = ids(page)
    while page.HasField("next_page_token"):
        add_operation(served.store, CASES)
        page = await listed(served, page_size=3, page_token=page.next_page_token)
        found += ids(page)
    assert found == there


async def test_a_last_page_that_is_full_has_no_token(served: Served) -> None:
    there = [add_operation(served.store, CASES) for _ in range(4)][::-1]
    first = await listed(served, page_size=2)
    last = await listed(served, page_size=2, page_token=first.next_page_token)
    assert ids(first) + ids(last) == there
    assert not last.HasField("next_page_token")


async def test_pages_have_fifty_unless_told_otherwise_and_five_hundred_at_most(served: Served) -> None:
    for _ in range(52):
        await asyncio.to_thread(add_operation, served.store, CASES[:1])
    assert len(ids(await listed(served))) == len(ids(await listed(served, page_size=0))) == 50
    assert len(ids(await listed(served, page_size=2**31 - 1))) == 52


async def test_the_filter_is_a_status(served: Served) -> None:
    pending, done, cancelled = (add_operation(served.store, CASES) for _ in range(3))
    complete(served.store, done)
    served.store.runs.request_cancel(cancelled)
    for status, wanted in {"pending": pending, "completed": done, "cancelled": cancelled}.items():
        assert ids(await listed(served, filter=f"status={status}")) == [wanted]
    assert ids(await listed(served, filter="status = running")) == []
    assert len(ids(await listed(served, filter=""))) == 3


def token(*parts: Any) -> str:
    """A page token as one might make it."""
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()


async def test_lists_that_cannot_be_are_refused(served: Served, subtests: pytest.Subtests) -> None:
    options: Any
    for options in [
        {"filter": "status=interrupted"},
        {"filter": "status"},
        {"filter": "name=x"},
        {"filter": "status=running OR status=failed"},
        {"page_size": -1},
        {"page_token": "x"},
        {"page_token": "é"},
        {"page_token": "W10="},
        {"page_token": "W1tdLCBbXSwgW11d"},
        {"page_token": token("2026-01-01", "a\0", "")},
        {"page_token": token("2026-01-01", [], "")},
        {"page_token": token("2026-01-01", "0" * 32, "status=failed")},
        {"page_token": token("0001-01-01T00:00:00+23:59", "0" * 32, "")},
    ]:
        with subtests.test(options=options):
            error = await failed(listed(served, **options))
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert next(iter(options)) in error.details()


async def test_a_token_belongs_to_its_filter(served: Served) -> None:
    for _ in range(2):
        add_operation(served.store, CASES)
    next_page = (await listed(served, page_size=1)).next_page_token
    error = await failed(listed(served, page_token=next_page, filter="status=pending"))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_an_operation_is_cancelled_once(served: Served) -> None:
    run_id = add_operation(served.store, CASES)
    request = fep_pb2.CancelOperationRequest(operation_id=run_id)
    assert (await served.operations.CancelOperation(request)).cancelled
    assert (await get(served, run_id)).status == "cancelled"
    assert not (await served.operations.CancelOperation(request)).cancelled


async def test_a_running_operation_is_asked_to_stop(served: Served) -> None:
    run_id = add_operation(served.store, CASES)
    carry_out(served.store, run_id)
    request = fep_pb2.CancelOperationRequest(operation_id=run_id)
    assert (await served.operations.CancelOperation(request)).cancelled
    assert served.store.runs.cancel_requested(run_id)
    assert (await get(served, run_id)).status == "running"


@pytest.mark.parametrize("keys", [["a", "b"], [""], ["k" * 201]])
async def test_an_idempotency_key_is_one_of_a_reasonable_length(served: Served, keys: list[str]) -> None:
    metadata = [("idempotency-key", key) for key in keys]
    error = await failed(served.operations.StartEvaluation(request_of(), metadata=metadata))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert served.store.runs.newest() == []
