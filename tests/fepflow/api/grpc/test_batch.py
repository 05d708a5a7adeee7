"""BatchEvaluation: several evaluations in one call."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict

from fepflow.api.grpc.fep.v1 import fep_pb2
from tests.fepflow.api.grpc.conftest import Serve, Served, error_of, failed, request_of
from tests.fepflow.api.grpc.test_evaluation import slow_request


def batch_of(*requests: fep_pb2.EvaluationRequest, **options: Any) -> fep_pb2.BatchEvaluationRequest:
    given = {"options": fep_pb2.BatchOptions(**options)} if options else {}
    return fep_pb2.BatchEvaluationRequest(evaluations=requests, **given)


def good(name: str) -> fep_pb2.EvaluationRequest:
    return request_of((name, "Paris"))


def bad() -> fep_pb2.EvaluationRequest:
    request = request_of()
    request.test_cases[0].ClearField("id")
    return request


def inputs_of(response: fep_pb2.BatchEvaluationResponse) -> list[str]:
    return [one.results[0].execution_context.test_case.input.string_value for one in response.results]


def errors_of(response: fep_pb2.BatchEvaluationResponse) -> dict[int, str]:
    return {int(MessageToDict(error.details)["evaluation"]): error.code for error in response.errors}


@pytest.mark.parametrize("most", [1, 2, 16])
async def test_results_are_in_the_order_of_their_evaluations(served: Served, most: int) -> None:
    names = [str(index) for index in range(8)]
    response = await served.evaluations.BatchEvaluation(batch_of(*map(good, names), max_concurrent=most))
    assert inputs_of(response) == names
    assert list(response.result_indexes) == list(range(8))
    assert (response.summary.total_evaluations, response.summary.successful_evaluations) == (8, 8)
    assert response.summary.started_at.ToDatetime() <= response.summary.completed_at.ToDatetime()
    assert {run.id for run in served.store.runs.newest()} == {one.evaluation_id for one in response.results}


async def test_an_unreadable_evaluation_is_an_error_of_its_own(served: Served) -> None:
    response = await served.evaluations.BatchEvaluation(batch_of(good("a"), bad(), good("c")))
    assert inputs_of(response) == ["a", "c"]
    assert list(response.result_indexes) == [0, 2]
    assert errors_of(response) == {1: "validation_error"}
    assert "test_cases[0].id" in response.errors[0].message
    assert (response.summary.successful_evaluations, response.summary.failed_evaluations) == (2, 1)


async def test_the_first_error_ends_a_batch_that_fails_fast(served: Served) -> None:
    batch = batch_of(good("a"), bad(), good("c"), good("d"), max_concurrent=1, fail_fast=True)
    response = await served.evaluations.BatchEvaluation(batch)
    assert inputs_of(response) == ["a"]
    assert errors_of(response) == {1: "validation_error", 2: "cancelled", 3: "cancelled"}


async def test_the_first_error_cancels_what_is_under_way(served: Served, slow_check: list[str]) -> None:
    batch = batch_of(slow_request(), good("b"), bad(), max_concurrent=2, fail_fast=True)
    response = await served.evaluations.BatchEvaluation(batch)
    assert errors_of(response) == {0: "cancelled", 2: "validation_error"}
    assert slow_check in ([], ["begun", "cancelled"])
    assert inputs_of(response) == ["b"]


async def test_what_is_not_done_in_time_is_an_error(served: Served, slow_check: list[str]) -> None:
    batch = batch_of(good("a"), slow_request(), good("c"), max_concurrent=1, timeout_ms=1_500)
    response = await served.evaluations.BatchEvaluation(batch)
    assert inputs_of(response) == ["a"]
    assert errors_of(response) == {1: "timeout_error", 2: "timeout_error"}
    assert "timeout_ms" in response.errors[0].message
    assert slow_check == ["begun", "cancelled"]


async def test_a_result_for_which_there_is_no_room_is_an_error_that_says_where_it_is(serve: Serve) -> None:
    large = request_of(("a" * 50_000, "Paris"))
    async with serve(max_message=400_000) as served:
        response = await served.evaluations.BatchEvaluation(batch_of(good("a"), large, large, large, max_concurrent=1))
        assert errors_of(response) == {3: "request_entity_too_large"} or len(response.errors) >= 1
        assert response.ByteSize() < 400_000
        stored = {run.id for run in served.store.runs.newest()}
        assert {error.details["evaluation_id"] for error in response.errors} < stored
        assert len(stored) == 4


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"max_concurrent": 0}, "options.max_concurrent"),
        ({"max_concurrent": -1}, "options.max_concurrent"),
        ({"max_concurrent": 17}, "options.max_concurrent"),
        ({"timeout_ms": 0}, "options.timeout_ms"),
        ({"timeout_ms": 2**62}, "options.timeout_ms"),
    ],
)
async def test_options_that_cannot_be_are_refused(served: Served, options: dict[str, int], where: str) -> None:
    error = await failed(served.evaluations.BatchEvaluation(batch_of(good("a"), **options)))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert where in error.details()


@pytest.mark.parametrize("count", [0, 101])
async def test_a_batch_has_one_to_a_hundred_evaluations(served: Served, count: int) -> None:
    error = await failed(served.evaluations.BatchEvaluation(batch_of(*[good("a")] * count)))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert f"evaluations: there are {count}" in error_of(error).message
    assert served.store.runs.newest() == []
