"""FEP's results as messages (FEP 5.2), written from their JSON form, so that both interfaces say the same."""

from __future__ import annotations

import json
from typing import Any

from fepflow.api.evaluations.fep import EvaluationProgress
from fepflow.api.grpc.fep.v1 import fep_pb2
from fepflow.api.grpc.values import sendable, write_any, write_object
from fepflow.protocol.model import FepModel
from fepflow.protocol.results import EvaluationRunResult, TestCaseResult


def progress_message(progress: EvaluationProgress) -> fep_pb2.EvaluationProgress:
    """How far a stream is."""
    message = fep_pb2.EvaluationProgress(
        evaluation_id=progress.evaluation_id,
        status=progress.status,
        completed_test_cases=progress.completed_test_cases,
        total_test_cases=progress.total_test_cases,
    )
    if progress.result is not None:
        _write_case_result(_data(progress.result), message.result)
    if progress.final_result is not None:
        message.final_result.CopyFrom(result_message(progress.final_result))
    return message


def result_message(result: EvaluationRunResult) -> fep_pb2.EvaluationRunResult:
    """A result (FEP 4.2)."""
    data = _data(result)
    message = fep_pb2.EvaluationRunResult(
        evaluation_id=data["evaluation_id"],
        status=f"EVALUATION_STATUS_{data['status'].upper()}",
        summary=fep_pb2.EvaluationSummary(**data["summary"]),
    )
    message.started_at.FromJsonString(data["started_at"])
    message.completed_at.FromJsonString(data["completed_at"])
    for one in data["results"]:
        _write_case_result(one, message.results.add())
    if data.get("experiment") is not None:
        _write_experiment(data["experiment"], message.experiment)
    _write_object(data, message, "metadata")
    return message


def _data(result: EvaluationRunResult | TestCaseResult) -> dict[str, Any]:
    model: FepModel = result
    data: dict[str, Any] = json.loads(model.model_dump_json())
    return data


def _write_case_result(data: dict[str, Any], message: fep_pb2.TestCaseResult) -> None:
    context = data["execution_context"]
    message.status = getattr(fep_pb2, f"TEST_CASE_STATUS_{data['status'].upper()}")
    _write_test_case(context["test_case"], message.execution_context.test_case)
    _write_output(context["output"], message.execution_context.output)
    for one in data["check_results"]:
        _write_check_result(one, context["test_case"]["id"], message.check_results.add())
    message.summary.CopyFrom(fep_pb2.TestCaseSummary(**data["summary"]))
    _write_object(data, message, "metadata")


def _write_test_case(data: dict[str, Any], message: fep_pb2.TestCase) -> None:
    message.id = sendable(data["id"])
    write_any(data["input"], message.input)
    if "expected" in data:
        write_any(data["expected"], message.expected)
    _write_object(data, message, "metadata")
    if data.get("checks") is not None:
        message.checks.SetInParent()
        for check in data["checks"]:
            _write_check(check, message.checks.checks.add())


def _write_output(data: dict[str, Any], message: fep_pb2.Output) -> None:
    write_any(data["value"], message.value)
    if data.get("id") is not None:
        message.id = sendable(data["id"])
    _write_object(data, message, "metadata")


def _write_check(data: dict[str, Any], message: fep_pb2.Check) -> None:
    message.type = sendable(data["type"])
    write_object(data.get("arguments", {}), message, "arguments")
    for name in ("version", "id"):
        if data.get(name) is not None:
            setattr(message, name, data[name])


def _write_experiment(data: dict[str, Any], message: fep_pb2.ExperimentMetadata) -> None:
    message.SetInParent()
    if data.get("name") is not None:
        message.name = sendable(data["name"])
    _write_object(data, message, "metadata")


def _write_check_result(data: dict[str, Any], case_id: str, message: fep_pb2.CheckResult) -> None:
    message.check_type = sendable(data["check_type"])
    message.status = getattr(fep_pb2, f"CHECK_STATUS_{data['status'].upper()}")
    write_object(data["results"], message, "results")
    _write_object(data, message, "resolved_arguments")
    message.evaluated_at.FromJsonString(data["evaluated_at"])
    _write_check_metadata(data.get("metadata") or {}, case_id, message.metadata)
    if data.get("error") is not None:
        error = data["error"]
        message.error.type = getattr(fep_pb2, f"CHECK_ERROR_TYPE_{error['type'].upper()}")
        message.error.message = sendable(error["message"])
        message.error.recoverable = error.get("recoverable", False)


def _write_check_metadata(data: dict[str, Any], case_id: str, message: fep_pb2.CheckResultMetadata) -> None:
    message.test_case_id = sendable(case_id)
    version = data.get("check_version")
    others = data
    if isinstance(version, str):
        message.check_version = sendable(version)
        others = {name: value for name, value in data.items() if name != "check_version"}
    if others:
        write_object(others, message, "additional_metadata")


def _write_object(data: dict[str, Any], message: Any, field: str) -> None:
    if data.get(field) is not None:
        write_object(data[field], message, field)
