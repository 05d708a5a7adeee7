"""JSON values, requests and results of FEP as messages (FEP 5.2), so that both interfaces say the same."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import NULL_VALUE, Struct, Value

from fepflow.api.evaluations.requests import EvaluationRequest
from fepflow.api.grpc.fep.v1 import fep_pb2
from fepflow.errors import InputError, Problem
from fepflow.json.values import parse
from fepflow.protocol.model import FepModel
from fepflow.protocol.results import EvaluationRunResult, TestCaseResult
from fepflow.text import is_unicode

if TYPE_CHECKING:  # processes that read requests load this module, and not the service
    from fepflow.api.evaluations.fep import EvaluationProgress

MAX_EXACT = 2**53
"""Up to here doubles have every integer."""

MAX_DEPTH = 24
"""Levels of JSON in a Value, of up to three messages each: readers of protobuf stop at a hundred."""

AnyValue = fep_pb2.InputValue | fep_pb2.OutputValue


def is_exact(value: Any, depth: int = MAX_DEPTH) -> bool:
    """Return whether a Value can hold this JSON value as it is."""
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, str):
        return is_unicode(value)
    if isinstance(value, int):
        return -MAX_EXACT <= value <= MAX_EXACT
    if isinstance(value, float):
        return math.isfinite(value)
    if depth == 0:
        return False
    if isinstance(value, dict):
        return all(is_unicode(name) and is_exact(item, depth - 1) for name, item in value.items())
    return isinstance(value, list) and all(is_exact(item, depth - 1) for item in value)


def sendable(text: str) -> str:
    """Text of a field that has no other form: a half of a surrogate pair is written as its escape, `\\ud83d`."""
    return text if is_unicode(text) else text.encode("utf-8", "backslashreplace").decode()


def as_text(value: Any) -> str:
    """Return JSON text in ASCII."""
    return json.dumps(value, allow_nan=False)


def write_any(value: Any, message: AnyValue) -> None:
    """Set the one of its fields that holds the value."""
    if not is_exact(value):
        message.json_text = as_text(value)
    elif isinstance(value, str):
        message.string_value = value
    elif isinstance(value, dict):
        write_struct(value, message.object_value)
    else:
        _write(value, message.json_value)


def write_object(data: dict[str, Any], message: Any, field: str) -> None:
    """Set the Struct of this name, or the JSON text beside it."""
    if is_exact(data):
        write_struct(data, getattr(message, field))
    else:
        setattr(message, f"{field}_json", as_text(data))


def write_struct(data: dict[str, Any], struct: Struct) -> None:
    """Fill an empty Struct with an object that is exact."""
    struct.SetInParent()  # an empty object is there, too
    for name, item in data.items():
        _write(item, struct.fields[name])


def _write(value: Any, message: Value) -> None:
    if value is None:
        message.null_value = NULL_VALUE
    elif isinstance(value, bool):
        message.bool_value = value
    elif isinstance(value, str):
        message.string_value = value
    elif isinstance(value, int | float):
        message.number_value = value
    elif isinstance(value, dict):
        write_struct(value, message.struct_value)
    else:
        message.list_value.SetInParent()
        for item in value:
            _write(item, message.list_value.values.add())


def read_any(message: AnyValue, path: str) -> Any:
    """Return the JSON value; raises InputError for a message with none, or with one that JSON does not have."""
    kind = message.WhichOneof("value")
    if kind == "string_value":
        return message.string_value
    if kind == "object_value":
        return _read_struct(message.object_value, path)
    if kind == "json_value":
        return _read(message.json_value, path)
    if kind == "json_text":
        return _parsed(message.json_text, f"{path}.json_text")
    advice = "set string_value, object_value, json_value or json_text"
    raise InputError(Problem("there is no value", path=path, advice=advice))


def read_object(message: Any, field: str, path: str) -> dict[str, Any] | None:
    """Return the object of this name, from its Struct or from the JSON text beside it; None without one."""
    text = f"{field}_json"
    if not message.HasField(text):
        return _read_struct(getattr(message, field), f"{path}.{field}") if message.HasField(field) else None
    if message.HasField(field):
        raise InputError(Problem(f"there is {field}, too", path=f"{path}.{text}", advice="give one of them"))
    data = _parsed(getattr(message, text), f"{path}.{text}")
    if not isinstance(data, dict):
        raise InputError(Problem("it is not the text of a JSON object", path=f"{path}.{text}"))
    return data


def _parsed(text: str, path: str) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise InputError(Problem(f"it is not valid JSON: {error}", path=path)) from None


def _read_struct(struct: Struct, path: str) -> dict[str, Any]:
    return {name: _read(item, path) for name, item in struct.fields.items()}


def _read(value: Value, path: str) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "number_value":
        return _number(value.number_value, path)
    if kind == "string_value":
        return value.string_value
    if kind == "struct_value":
        return _read_struct(value.struct_value, path)
    if kind == "list_value":
        return [_read(item, path) for item in value.list_value.values]
    if kind == "bool_value":
        return value.bool_value
    if kind == "null_value":
        return None
    raise InputError(Problem("a google.protobuf.Value in it has no kind", path=path, advice="null is null_value"))


def _number(number: float, path: str) -> int | float:
    if not math.isfinite(number):
        raise InputError(Problem(f"{number} is not a JSON value", path=path))
    return int(number) if number.is_integer() and abs(number) <= MAX_EXACT else number


def read_message(data: bytes) -> EvaluationRequest:
    """Return the request that a message is. Raises InputError with what is wrong, TooLargeError."""
    try:
        message = fep_pb2.EvaluationRequest.FromString(data)
    except DecodeError:
        raise InputError(Problem("the message is not an EvaluationRequest")) from None
    return EvaluationRequest.read(request_data(message))


def request_data(message: fep_pb2.EvaluationRequest) -> dict[str, Any]:
    """Return a request as JSON data. What is not set is not there; so are ids and types that are empty."""
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


def progress_message(progress: EvaluationProgress) -> fep_pb2.EvaluationProgress:
    """Return the message of a stream's progress."""
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
    """Return a result (FEP 4.2)."""
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
