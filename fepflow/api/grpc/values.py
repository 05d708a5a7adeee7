"""JSON values as google.protobuf.Struct and Value, and back: exactly, or as JSON text where those cannot hold them.

Numbers of a Value are doubles: whole ones up to 2^53 are integers here, whatever wrote them (to JSON 1.0 is 1).
"""

from __future__ import annotations

import json
import math
from typing import Any

from google.protobuf.struct_pb2 import NULL_VALUE, Struct, Value

from fepflow.api.grpc.fep.v1 import fep_pb2
from fepflow.errors import InputError, Problem
from fepflow.json.values import parse
from fepflow.text import is_unicode

MAX_EXACT = 2**53
"""Up to here doubles have every integer."""

MAX_DEPTH = 24
"""Levels of JSON in a Value, of up to three messages each: readers of protobuf stop at a hundred."""

AnyValue = fep_pb2.InputValue | fep_pb2.OutputValue


def is_exact(value: Any, depth: int = MAX_DEPTH) -> bool:
    """Whether a Value can hold this JSON value as it is."""
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
    """JSON text in ASCII."""
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
    """The JSON value; raises InputError for a message with none, or with one that JSON does not have."""
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
    """The object of this name, from its Struct or from the JSON text beside it; None without one."""
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
