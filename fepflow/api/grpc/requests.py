"""Requests of gRPC as the JSON data of the specification (FEP 5.2), judged as the body of a REST request is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf.message import DecodeError

from fepflow.api.evaluations.requests import EvaluationRequest
from fepflow.api.grpc.fep.v1 import fep_pb2
from fepflow.api.grpc.values import read_any, read_object
from fepflow.errors import InputError, Problem


def read_message(data: bytes) -> EvaluationRequest:
    """Return the request that a message is. Raises InputError with what is wrong, TooLargeError."""
    try:
        message = fep_pb2.EvaluationRequest.FromString(data)
    except DecodeError:
        raise InputError(Problem("the message is not an EvaluationRequest")) from None
    return EvaluationRequest.read(request_data(message))


def request_data(message: fep_pb2.EvaluationRequest) -> dict[str, Any]:
    """A request as JSON data. What is not set is not there; so are ids and types that are empty."""
    data: dict[str, Any] = {
        "test_cases": [_test_case(case, f"test_cases[{index}]") for index, case in enumerate(message.test_cases)],
        "outputs": [_output(output, f"outputs[{index}]") for index, output in enumerate(message.outputs)],
    }
    kind = message.checks.WhichOneof("configuration")
    if kind == "shared_checks":
        data["checks"] = _checks(message.checks.shared_checks.checks, "checks")
    elif kind == "per_test_case_checks":
        data["checks"] = _lists(message)
    if message.HasField("experiment_metadata"):
        data["experiment_metadata"] = _experiment(message.experiment_metadata)
    return data


def _lists(message: fep_pb2.EvaluationRequest) -> list[Any]:
    lists = message.checks.per_test_case_checks.check_lists
    if not lists:  # in JSON no lists at all are no shared checks, which is another thing
        advice = "check_lists[i] is for test_cases[i]"
        raise InputError(Problem("there are no lists", path="checks.per_test_case_checks.check_lists", advice=advice))
    return [_checks(own.checks, f"checks[{index}]") for index, own in enumerate(lists)]


def _test_case(case: fep_pb2.TestCase, path: str) -> dict[str, Any]:
    data: dict[str, Any] = {"id": case.id} if case.id else {}
    if case.HasField("input"):
        data["input"] = read_any(case.input, f"{path}.input")
    if case.HasField("expected"):
        data["expected"] = read_any(case.expected, f"{path}.expected")
    _add_object(data, case, "metadata", path)
    if case.HasField("checks"):
        data["checks"] = _checks(case.checks.checks, f"{path}.checks")
    return data


def _output(output: fep_pb2.Output, path: str) -> dict[str, Any]:
    data: dict[str, Any] = {"id": output.id} if output.HasField("id") else {}
    if output.HasField("value"):
        data["value"] = read_any(output.value, f"{path}.value")
    _add_object(data, output, "metadata", path)
    return data


def _checks(checks: Sequence[fep_pb2.Check], path: str) -> list[dict[str, Any]]:
    return [_check(check, f"{path}[{index}]") for index, check in enumerate(checks)]


def _check(check: fep_pb2.Check, path: str) -> dict[str, Any]:
    data: dict[str, Any] = {"type": check.type} if check.type else {}
    _add_object(data, check, "arguments", path)
    if check.HasField("version"):
        data["version"] = check.version
    if check.HasField("id"):
        data["id"] = check.id
    return data


def _experiment(experiment: fep_pb2.ExperimentMetadata) -> dict[str, Any]:
    data: dict[str, Any] = {"name": experiment.name} if experiment.HasField("name") else {}
    _add_object(data, experiment, "metadata", "experiment_metadata")
    return data


def _add_object(data: dict[str, Any], message: Any, field: str, path: str) -> None:
    found = read_object(message, field, path)
    if found is not None:
        data[field] = found
