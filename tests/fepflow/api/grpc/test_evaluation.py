"""EvaluationService, over a real socket with the generated stubs."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict

from fepflow.api.grpc.fep.v1 import fep_pb2
from fepflow.checks.engine import evaluate
from fepflow.protocol.test_case import TestCase
from fepflow.store.store import Store
from tests.fepflow.api.grpc.conftest import Serve, Served, add_operation, error_of, failed, request_of, until
from tests.fepflow.api.grpc.forms import request_message, result_data
from tests.fepflow.api.grpc.test_messages import same

ANYTHING = [None, True, 3, 1.5, "text", [1, [2]], {"a": {}}, 2**60, {"seed": 2**60}, "half \ud83d", "nul \0"]


async def test_an_evaluation_is_carried_out_and_found_again(served: Served) -> None:
    result = await served.evaluations.RunEvaluation(request_of(("a", "Paris"), ("b", "Rome")))
    assert result.status == fep_pb2.EVALUATION_STATUS_COMPLETED
    assert [one.check_results[0].results["passed"] for one in result.results] == [True, False]
    assert result.summary.total_checks == result.summary.completed_checks == 2
    assert result.metadata["outcome"] == "fail"
    found = await served.evaluations.GetEvaluation(fep_pb2.GetEvaluationRequest(evaluation_id=result.evaluation_id))
    assert found == result


async def test_any_json_value_goes_in_and_comes_out(served: Served) -> None:
    request: dict[str, Any] = {
        "test_cases": [
            {"id": str(index), "input": value, "expected": value, "metadata": {"value": value}}
            for index, value in enumerate(ANYTHING)
        ],
        "outputs": [{"value": value, "id": "one", "metadata": {"value": value}} for value in ANYTHING],
        "checks": [
            {"type": "exact_match", "arguments": {"actual": "$.output.value", "expected": "$.test_case.expected"}},
            {"type": "exact_match", "id": "big", "arguments": {"actual": 2**60, "expected": 2**60 + 1}},
        ],
        "experiment_metadata": {"name": "anything", "metadata": {"seed": 2**60}},
    }
    result = result_data(await served.evaluations.RunEvaluation(request_message(request)))
    assert result["experiment"] == request["experiment_metadata"]
    for row, case, output in zip(result["results"], request["test_cases"], request["outputs"], strict=True):
        assert row["execution_context"] == {"test_case": case, "output": output}
        assert [check["results"] for check in row["check_results"]] == [{"passed": True}, {"passed": False}]


async def test_a_result_is_that_of_the_library(served: Served) -> None:
    request = request_of(("a", "Paris"), ("b", "Rome"))
    result = result_data(await served.evaluations.RunEvaluation(request))
    check = {"type": "contains", "arguments": {"text": "$.output.value", "phrases": ["Paris"]}}
    cases = [{"id": "case-0", "input": "a"}, {"id": "case-1", "input": "b"}]
    library = evaluate(cases, ["Paris", "Rome"], [check]).model_dump(mode="json")
    keys = ("status", "summary", "results")
    assert same(*({key: _without_durations(data[key]) for key in keys} for data in (result, library)))


def _without_durations(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _without_durations(item) for name, item in data.items() if name != "execution_time_ms"}
    return [_without_durations(item) for item in data] if isinstance(data, list) else data


async def test_a_test_case_has_checks_of_its_own(served: Served) -> None:
    request = request_of()
    own = request.test_cases[0].checks.checks.add(type="is_empty", id="own")
    own.arguments.update({"value": "$.output.value"})
    result = await served.evaluations.RunEvaluation(request)
    ids = [check.metadata.additional_metadata["check_id"] for check in result.results[0].check_results]
    assert ids == ["own", "contains"]


async def test_an_unreadable_request_is_refused_with_all_that_is_wrong(served: Served) -> None:
    request = request_of()
    request.test_cases[0].ClearField("id")
    request.checks.shared_checks.checks[0].version = "one"
    error = await failed(served.evaluations.RunEvaluation(request))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    details = error_of(error)
    assert details.code == "validation_error"
    assert details.message == error.details()
    paths = [problem["path"] for problem in MessageToDict(details.details)["problems"]]
    assert paths == ["test_cases[0].id", "checks[0].version"]


async def test_a_bad_check_is_an_error_of_its_own(served: Served) -> None:
    request = request_of()
    request.checks.shared_checks.checks.add(type="unheard_of").arguments.SetInParent()
    result = await served.evaluations.RunEvaluation(request)
    assert result.status == fep_pb2.EVALUATION_STATUS_ERROR
    found = [check.error.type for check in result.results[0].check_results]
    assert found == [fep_pb2.CHECK_ERROR_TYPE_UNSPECIFIED, fep_pb2.CHECK_ERROR_TYPE_VALIDATION_ERROR]


async def test_a_request_leaves_nothing_to_the_defaults_of_suites(served: Served) -> None:
    request = request_of()
    request.checks.shared_checks.checks.add(type="contains").arguments.update({"phrases": "Paris"})
    result = await served.evaluations.RunEvaluation(request)
    error = result.results[0].check_results[1].error
    assert error.type == fep_pb2.CHECK_ERROR_TYPE_VALIDATION_ERROR
    assert "text: is missing" in error.message


@pytest.mark.parametrize("evaluation_id", ["", "no id", "0" * 32, "latest", "\ud7ff", "x" * 10_000])
async def test_an_unknown_id_is_not_found(served: Served, evaluation_id: str) -> None:
    error = await failed(served.evaluations.GetEvaluation(fep_pb2.GetEvaluationRequest(evaluation_id=evaluation_id)))
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert error_of(error).code == "not_found"


async def test_an_evaluation_that_is_not_over_has_no_result(served: Served) -> None:
    run_id = add_operation(served.store, [TestCase(id="a", input=1)])
    error = await failed(served.evaluations.GetEvaluation(fep_pb2.GetEvaluationRequest(evaluation_id=run_id)))
    assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert dict(error_of(error).details) == {"status": "pending", "completed_test_cases": 0, "total_test_cases": 1}


async def test_a_stream_tells_of_each_test_case_and_of_the_result(served: Served) -> None:
    pairs = [(f"question {index}", "Paris") for index in range(5)]
    told = [one async for one in served.evaluations.StreamEvaluation(request_of(*pairs))]
    assert [one.completed_test_cases for one in told] == [0, 1, 2, 3, 4, 5, 5]
    assert [one.status for one in told] == ["running"] * 6 + ["completed"]
    assert {one.total_test_cases for one in told} == {5}
    assert [one.result.execution_context.test_case.id for one in told[1:6]] == [f"case-{index}" for index in range(5)]
    assert list(told[-1].final_result.results) == [one.result for one in told[1:6]]
    found = fep_pb2.GetEvaluationRequest(evaluation_id=told[0].evaluation_id)
    assert await served.evaluations.GetEvaluation(found) == told[-1].final_result


async def test_a_final_result_that_is_too_large_leaves_out_what_was_told(serve: Serve) -> None:
    pairs = [(f"question {index}", "Paris" * 200) for index in range(20)]
    async with serve(max_message=40_000) as served:
        told = [one async for one in served.evaluations.StreamEvaluation(request_of(*pairs))]
    assert told[-1].results_omitted
    assert not told[-1].final_result.results
    assert told[-1].final_result.summary.total_test_cases == len([one for one in told if one.HasField("result")]) == 20


async def test_a_client_that_leaves_a_stream_ends_its_evaluation(served: Served, slow_check: list[str]) -> None:
    stream = served.evaluations.StreamEvaluation(slow_request())
    await stream.read()
    await until(lambda: "begun" in slow_check)
    stream.cancel()
    await until(lambda: "cancelled" in slow_check)
    assert served.store.runs.newest() == []


async def test_the_deadline_of_a_client_ends_its_evaluation(served: Served, slow_check: list[str]) -> None:
    error = await failed(served.evaluations.RunEvaluation(slow_request(), timeout=2.0))
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    await until(lambda: slow_check == ["begun", "cancelled"])
    assert served.store.runs.newest() == []


def slow_request() -> fep_pb2.EvaluationRequest:
    request = request_of()
    del request.checks.shared_checks.checks[:]
    request.checks.shared_checks.checks.add(type="slow").arguments.SetInParent()
    return request


async def test_evaluations_of_many_clients_go_on_at_once(served: Served) -> None:
    calls = [served.evaluations.RunEvaluation(request_of((f"{index}", "Paris"))) for index in range(15)]
    results = await asyncio.gather(*calls)
    assert [one.results[0].execution_context.test_case.input.string_value for one in results] == [
        str(index) for index in range(15)
    ]
    assert len({one.evaluation_id for one in results}) == 15


async def test_a_store_that_is_away_is_said_so(served: Served, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    health = await served.evaluations.HealthCheck(fep_pb2.HealthCheckRequest())
    assert health.status == "healthy"
    assert health.version
    with store._database.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE run RENAME TO hidden")
    error = await failed(served.evaluations.RunEvaluation(request_of()))
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert "hidden" not in error.details()


async def test_arguments_may_have_half_a_character_in_a_name(served: Served) -> None:
    half = {"text": {"\ud809": [1, None]}}
    compared = {"type": "exact_match", "arguments": {"actual": half, "expected": half}}
    odd = {"type": "exact_match", "id": "odd", "arguments": half}
    case = {"id": "a", "input": None, "checks": [{**compared, "id": "own"}]}
    data = {"test_cases": [case], "outputs": [{"value": half}], "checks": [compared, odd]}
    result = await served.evaluations.RunEvaluation(request_message(data))
    statuses = [check["status"] for check in result_data(result)["results"][0]["check_results"]]
    assert statuses == ["completed", "completed", "error"]
    found = fep_pb2.GetEvaluationRequest(evaluation_id=result.evaluation_id)
    assert await served.evaluations.GetEvaluation(found) == result
    operation = await served.operations.StartEvaluation(request_message(data))
    assert operation.status == "pending"
