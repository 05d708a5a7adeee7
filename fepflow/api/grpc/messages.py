"""JSON values, requests and results of FEP as messages (FEP 5.2), so that both interfaces say the same."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.timestamp_pb2 import Timestamp

from fepflow.api.evaluations.requests import EvaluationRequest
from fepflow.api.grpc.fep.v1 import fep_pb2
from fepflow.errors import InputError, Problem
from fepflow.json.values import parse
from fepflow.protocol.model import FepModel
from fepflow.protocol.results import EvaluationRunResult
from fepflow.text import is_unicode

if TYPE_CHECKING:  # processes that read requests load this module, and not the service
    from fepflow.api.evaluations.fep import EvaluationProgress

MAX_EXACT = 2**53
"""Up to here doubles have every integer."""

MAX_DEPTH = 24
"""Levels of JSON in a Value, of up to three messages each: readers of protobuf stop at a hundred."""

AnyValue = fep_pb2.InputValue | fep_pb2.OutputValue

_ANY = (fep_pb2.InputValue.DESCRIPTOR, fep_pb2.OutputValue.DESCRIPTOR)
_STRUCT = Struct.DESCRIPTOR


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
    """Return the text for a field that has no other form: half of a surrogate pair becomes its escape, `\\ud83d`."""
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
        json_format.ParseDict(value, message.json_value)


def write_object(data: dict[str, Any], message: Any, field: str) -> None:
    """Set the Struct of this name, or the JSON text beside it."""
    if is_exact(data):
        write_struct(data, getattr(message, field))
    else:
        setattr(message, f"{field}_json", as_text(data))


def write_struct(data: dict[str, Any], struct: Struct) -> None:
    """Fill an empty Struct with an object that is exact."""
    struct.SetInParent()  # an empty object is there, too
    struct.update(data)


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
    data = _read_message(message, "")
    kind = message.checks.WhichOneof("configuration")
    if kind == "shared_checks":
        data["checks"] = _read_all(message.checks.shared_checks.checks, "checks")
    elif kind == "per_test_case_checks":
        lists = message.checks.per_test_case_checks.check_lists
        if not lists:  # in JSON no lists at all are no shared checks, which is another thing
            path, advice = "checks.per_test_case_checks.check_lists", "check_lists[i] is for test_cases[i]"
            raise InputError(Problem("there are no lists", path=path, advice=advice))
        data["checks"] = [_read_all(own.checks, f"checks[{index}]") for index, own in enumerate(lists)]
    return {"test_cases": [], "outputs": [], **data}


def _read_message(message: Message, path: str) -> dict[str, Any]:
    """Return the fields that are set, those of FEP's forms of values as JSON values."""
    data: dict[str, Any] = {}
    for field, value in message.ListFields():
        name = field.name.removesuffix("_json")
        place = f"{path}.{name}" if path else name
        if field.message_type is None and name == field.name:
            data[name] = value
        elif field.message_type in (None, _STRUCT):
            data[name] = read_object(message, name, path)
        elif field.message_type in _ANY:
            data[name] = read_any(value, place)
        elif field.is_repeated:
            data[name] = _read_all(value, place)
        elif field.message_type is fep_pb2.CheckList.DESCRIPTOR:
            data[name] = _read_all(value.checks, place)
        elif field.message_type is not fep_pb2.CheckConfiguration.DESCRIPTOR:
            data[name] = _read_message(value, place)
    return data


def _read_all(messages: Iterable[Message], path: str) -> list[dict[str, Any]]:
    return [_read_message(message, f"{path}[{index}]") for index, message in enumerate(messages)]


def progress_message(progress: EvaluationProgress) -> fep_pb2.EvaluationProgress:
    """Return the message of a stream's progress."""
    message = fep_pb2.EvaluationProgress(
        evaluation_id=progress.evaluation_id,
        status=progress.status,
        completed_test_cases=progress.completed_test_cases,
        total_test_cases=progress.total_test_cases,
    )
    if progress.result is not None:
        _write_message(_data(progress.result), message.result)
    if progress.final_result is not None:
        _write_message(_data(progress.final_result), message.final_result)
    return message


def result_message(result: EvaluationRunResult) -> fep_pb2.EvaluationRunResult:
    """Return a result (FEP 4.2)."""
    message = fep_pb2.EvaluationRunResult()
    _write_message(_data(result), message)
    return message


def _data(result: FepModel) -> dict[str, Any]:
    """Return a result as JSON data; metadata of checks has the form of its message."""
    data: dict[str, Any] = json.loads(result.model_dump_json())
    for case in data.get("results", [data]):
        for check in case["check_results"]:
            others = check.get("metadata") or {}
            version = others.pop("check_version") if isinstance(others.get("check_version"), str) else ""
            check["metadata"] = {
                "test_case_id": case["execution_context"]["test_case"]["id"],
                "check_version": version,
                "additional_metadata": others or None,
            }
    return data


def _write_message(data: dict[str, Any], message: Any) -> None:
    """Set the fields of a message that JSON data has, in FEP's forms of values."""
    message.SetInParent()
    for field in message.DESCRIPTOR.fields:
        value, kind = data.get(field.name), field.message_type
        if kind in _ANY and field.name in data:
            write_any(value, getattr(message, field.name))
        elif value is None:
            continue
        elif kind is _STRUCT:
            write_object(value, message, field.name)
        elif kind is Timestamp.DESCRIPTOR:
            getattr(message, field.name).FromJsonString(value)
        elif field.is_repeated:
            for item in value:
                _write_message(item, getattr(message, field.name).add())
        elif kind is not None:
            is_list = kind is fep_pb2.CheckList.DESCRIPTOR
            _write_message({"checks": value} if is_list else value, getattr(message, field.name))
        elif field.enum_type is not None:
            unspecified = field.enum_type.values[0].name
            setattr(message, field.name, unspecified.replace("UNSPECIFIED", value.upper()))
        else:
            setattr(message, field.name, sendable(value) if isinstance(value, str) else value)
