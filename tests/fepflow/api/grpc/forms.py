"""The client's side of the messages: JSON data as requests, results as JSON data."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import MessageToDict

from fepflow.api.grpc.fep.v1 import fep_pb2
from fepflow.api.grpc.messages import read_any, read_object, write_any, write_object


def request_message(data: dict[str, Any]) -> fep_pb2.EvaluationRequest:
    """A request as a client would write it."""
    message = fep_pb2.EvaluationRequest()
    for case in data["test_cases"]:
        _write_test_case(case, message.test_cases.add())
    for output in data["outputs"]:
        one = message.outputs.add(**{name: output[name] for name in ("id",) if name in output})
        write_any(output["value"], one.value)
        _write_object(output, one, "metadata")
    if "checks" in data:
        _write_configuration(data["checks"], message.checks)
    if "experiment_metadata" in data:
        experiment = message.experiment_metadata
        experiment.SetInParent()
        if "name" in data["experiment_metadata"]:
            experiment.name = data["experiment_metadata"]["name"]
        _write_object(data["experiment_metadata"], experiment, "metadata")
    return message


def _write_configuration(checks: list[Any], message: fep_pb2.CheckConfiguration) -> None:
    if checks and isinstance(checks[0], list):
        for own in checks:
            _write_checks(own, message.per_test_case_checks.check_lists.add())
    else:
        message.shared_checks.SetInParent()
        _write_checks(checks, message.shared_checks)


def _write_checks(checks: list[dict[str, Any]], message: Any) -> None:
    for check in checks:
        one = message.checks.add(**{name: check[name] for name in ("type", "version", "id") if name in check})
        _write_object(check, one, "arguments")


def _write_test_case(case: dict[str, Any], message: fep_pb2.TestCase) -> None:
    message.id = case["id"]
    write_any(case["input"], message.input)
    if "expected" in case:
        write_any(case["expected"], message.expected)
    _write_object(case, message, "metadata")
    if "checks" in case:
        message.checks.SetInParent()
        _write_checks(case["checks"], message.checks)


def _write_object(data: dict[str, Any], message: Any, field: str) -> None:
    if field in data:
        write_object(data[field], message, field)


def result_data(result: fep_pb2.EvaluationRunResult) -> dict[str, Any]:
    """A result as FEP 4.2 has it in JSON."""
    data: dict[str, Any] = {
        "evaluation_id": result.evaluation_id,
        "started_at": result.started_at.ToJsonString(),
        "completed_at": result.completed_at.ToJsonString(),
        "status": _status("EvaluationStatus", result.status),
        "summary": _counts(result.summary),
        "results": [case_data(one) for one in result.results],
    }
    if result.HasField("experiment"):
        data["experiment"] = {"name": result.experiment.name} if result.experiment.HasField("name") else {}
        _read_object(data["experiment"], result.experiment, "metadata")
    _read_object(data, result, "metadata")
    return data


def case_data(result: fep_pb2.TestCaseResult) -> dict[str, Any]:
    """A result of a test case as FEP 4.1 has it in JSON."""
    case, output = result.execution_context.test_case, result.execution_context.output
    test_case = {"id": case.id, "input": read_any(case.input, "")}
    if case.HasField("expected"):
        test_case["expected"] = read_any(case.expected, "")
    _read_object(test_case, case, "metadata")
    given: dict[str, Any] = {"value": read_any(output.value, "")}
    if output.HasField("id"):
        given["id"] = output.id
    _read_object(given, output, "metadata")
    data: dict[str, Any] = {
        "status": _status("TestCaseStatus", result.status),
        "execution_context": {"test_case": test_case, "output": given},
        "check_results": [_check_data(one) for one in result.check_results],
        "summary": _counts(result.summary),
    }
    _read_object(data, result, "metadata")
    return data


def _check_data(result: fep_pb2.CheckResult) -> dict[str, Any]:
    data: dict[str, Any] = {
        "check_type": result.check_type,
        "status": _status("CheckStatus", result.status),
        "evaluated_at": result.evaluated_at.ToJsonString(),
    }
    _read_object(data, result, "results")
    _read_object(data, result, "resolved_arguments")
    metadata = {"check_version": result.metadata.check_version} if result.metadata.check_version else {}
    data["metadata"] = {**metadata, **(read_object(result.metadata, "additional_metadata", "") or {})}
    if result.HasField("error"):
        kind = fep_pb2.CheckErrorType.Name(result.error.type).removeprefix("CHECK_ERROR_TYPE_").lower()
        data["error"] = {"type": kind, "message": result.error.message, "recoverable": result.error.recoverable}
    return data


def _read_object(data: dict[str, Any], message: Any, field: str) -> None:
    found = read_object(message, field, "")
    if found is not None:
        data[field] = found


def _status(enum: str, number: int) -> str:
    return str(getattr(fep_pb2, enum).Name(number)).rpartition("_")[2].lower()


def _counts(summary: Any) -> dict[str, int]:
    return dict(MessageToDict(summary, preserving_proto_field_name=True, always_print_fields_with_no_presence=True))
