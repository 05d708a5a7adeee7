"""Strategies for messages: of any fields that their descriptions have, of requests that are nearly right, and bytes."""

from __future__ import annotations

from typing import Any

from google.protobuf import struct_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from fepflow.checks.registry import CHECKS
from tests.fepflow.api.grpc.forms import request_message
from tests.hostile.strategies import JSON_PIECES, JSON_VALUES, SENDABLE

PATHS = ["$.output.value", "$.test_case.input", "$.test_case.expected", "$.nowhere", "$..*", "$[", "\\$.a", "$.a[?@>1]"]
OTHERS = ["", "1.0.0", "status=completed", "status=", "0" * 32, "latest", "${HOME:-x}", "{}", "null", "\0"]
WORDS = [*PATHS, *CHECKS, *OTHERS]
TEXTS = st.sampled_from(WORDS) | SENDABLE | JSON_PIECES.filter(lambda text: text.isprintable())
NUMBERS = st.floats() | st.integers(-3, 3) | st.sampled_from([2.0**53, 1e308, -0.0])

SCALARS: dict[int, SearchStrategy[Any]] = {
    FieldDescriptor.CPPTYPE_STRING: TEXTS,
    FieldDescriptor.CPPTYPE_DOUBLE: NUMBERS,
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_INT32: st.sampled_from([-1, 0, 1, 2, 2**31 - 1, -(2**31)]) | st.integers(0, 200),
    FieldDescriptor.CPPTYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_ENUM: st.integers(-1, 9),
}


@st.composite
def messages(draw: st.DrawFn, kind: type[Message], depth: int = 5) -> Any:
    """A message of which any fields are set, to anything that they can hold."""
    message = kind()
    if isinstance(message, struct_pb2.Struct):
        for name, value in draw(st.dictionaries(TEXTS, messages(struct_pb2.Value, depth - 1), max_size=3)).items():
            message.fields[name].CopyFrom(value)
        return message
    fields: list[Any] = list(kind.DESCRIPTOR.fields)
    for field in fields:
        if not draw(st.booleans()):
            continue
        one = _value(field, depth)
        if one is None:
            continue
        if field.is_repeated:
            getattr(message, field.name).extend(draw(st.lists(one, max_size=3)))
        elif field.message_type is not None:
            getattr(message, field.name).CopyFrom(draw(one))
        else:
            setattr(message, field.name, draw(one))
    return message


def _value(field: FieldDescriptor, depth: int) -> SearchStrategy[Any] | None:
    if field.message_type is None:
        return SCALARS[field.cpp_type]
    return messages(GetMessageClass(field.message_type), depth - 1) if depth else None


ARGUMENTS = st.sampled_from(PATHS) | JSON_VALUES | SENDABLE
NAMES = [
    "text",
    "phrases",
    "actual",
    "expected",
    "pattern",
    "value",
    "min_value",
    "max_value",
    "data",
    "schema",
    "negate",
]
A_CHECK = st.fixed_dictionaries(
    {
        "type": st.sampled_from([*CHECKS, "unheard_of"]),
        "arguments": st.dictionaries(st.sampled_from(NAMES), ARGUMENTS, max_size=5),
    },
    optional={"version": st.sampled_from(["1.0.0", "9.0.0", "1"]), "id": st.sampled_from(["a", "b", "é"])},
)
A_CASE = st.fixed_dictionaries(
    {"input": JSON_VALUES},
    optional={"expected": JSON_VALUES, "metadata": st.dictionaries(SENDABLE, JSON_VALUES, max_size=2)},
)
AN_OUTPUT = st.fixed_dictionaries(
    {"value": JSON_VALUES}, optional={"metadata": st.dictionaries(SENDABLE, JSON_VALUES, max_size=2)}
)


@st.composite
def requests(draw: st.DrawFn) -> Any:
    """A request for an evaluation that can be read: every check type, with arguments of its and of any kind."""
    pairs = draw(st.lists(st.tuples(A_CASE, AN_OUTPUT), min_size=1, max_size=4))
    data = {
        "test_cases": [{**case, "id": f"case-{index}"} for index, (case, _) in enumerate(pairs)],
        "outputs": [output for _, output in pairs],
        "checks": draw(st.lists(A_CHECK, max_size=4)),
    }
    return request_message(data)


@st.composite
def mutated(draw: st.DrawFn, whole: SearchStrategy[bytes]) -> bytes:
    """Bytes of which parts are gone, doubled, or replaced by any others."""
    data = draw(whole)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 8)))
        new = draw(
            st.sampled_from([b"", data[start:end] * 2, b"\xff", b"\x80\x80\x80\x80\x80"]) | st.binary(max_size=4)
        )
        data = data[:start] + new + data[end:]
    return data
