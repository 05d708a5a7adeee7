"""JSON values in google.protobuf.Struct and Value, and where those cannot hold them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from google.protobuf.struct_pb2 import Struct
from hypothesis import strategies as st

from fepflow.api.grpc.fep.v1 import fep_pb2
from fepflow.api.grpc.messages import MAX_DEPTH, MAX_EXACT, read_any, read_object, sendable, write_any, write_object
from fepflow.errors import InputError
from fepflow.json.values import json_equal
from tests.hostile.strategies import ANY_TEXT, JSON_VALUES, TEXTS_OF_JSON
from tests.properties import holds_for


def sent(message: Any) -> Any:
    """As it comes out at the other side."""
    return type(message).FromString(message.SerializeToString())


def through(value: Any) -> Any:
    message = fep_pb2.OutputValue()
    write_any(value, message)
    return read_any(sent(message), "value")


def kind_of(value: Any) -> str | None:
    message = fep_pb2.InputValue()
    write_any(value, message)
    return message.WhichOneof("value")


@holds_for(JSON_VALUES, examples=200)
def test_any_json_value_comes_back_as_it_was(value: Any) -> None:
    assert json_equal(through(value), value)


@holds_for(st.dictionaries(TEXTS_OF_JSON, JSON_VALUES, max_size=5), examples=200)
def test_any_object_comes_back_as_it_was(data: dict[str, Any]) -> None:
    message = fep_pb2.TestCase()
    write_object(data, message, "metadata")
    assert message.HasField("metadata") != message.HasField("metadata_json")
    found = read_object(sent(message), "metadata", "")
    assert found is not None
    assert json_equal(found, data)


@holds_for(st.integers())
def test_integers_stay_integers(number: int) -> None:
    found = through([number])[0]
    assert type(found) is int
    assert found == number


@holds_for(ANY_TEXT)
def test_whatever_a_text_is_it_can_be_sent(text: str) -> None:
    assert sendable(text).encode().decode() == sendable(text)
    assert sendable(text) == text or "\\ud" in sendable(text)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("text", "string_value"),
        ("", "string_value"),
        ("nul \0", "string_value"),
        ({}, "object_value"),
        ({"a": [1, None]}, "object_value"),
        ([], "json_value"),
        (None, "json_value"),
        (False, "json_value"),
        (1.5, "json_value"),
        (MAX_EXACT, "json_value"),
        (MAX_EXACT + 1, "json_text"),
        ({"seed": -MAX_EXACT - 1}, "json_text"),
        ("half a pair \ud83d", "json_text"),
        ({"\udc00": 1}, "json_text"),
    ],
)
def test_each_value_has_one_form(value: Any, kind: str) -> None:
    assert kind_of(value) == kind
    assert through(value) == value


@pytest.mark.parametrize("depth", [1, MAX_DEPTH, MAX_DEPTH + 1, 99])
@pytest.mark.parametrize("make", [lambda inner: [inner], lambda inner: {"a": inner}])
def test_deep_values_are_text_before_readers_of_protobuf_give_up(depth: int, make: Any) -> None:
    value: Any = 1
    for _ in range(depth):
        value = make(value)
    result = fep_pb2.BatchEvaluationResponse()
    context = result.results.add().results.add().execution_context
    write_any(value, context.output.value)
    write_object({"a": value}, context.output, "metadata")
    output = sent(result).results[0].results[0].execution_context.output
    assert read_any(output.value, "") == value
    assert read_object(output, "metadata", "") == {"a": value}


def test_null_and_absent_are_two_things() -> None:
    assert through(None) is None
    with pytest.raises(InputError, match=r"input: there is no value \(set string_value"):
        read_any(fep_pb2.InputValue(), "input")
    assert read_object(fep_pb2.TestCase(), "metadata", "") is None


def test_an_empty_object_is_there() -> None:
    message = fep_pb2.Check()
    write_object({}, message, "arguments")
    assert read_object(sent(message), "arguments", "") == {}


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_json_has_no_number_for_is_refused(number: float) -> None:
    message = fep_pb2.InputValue()
    message.json_value.list_value.values.add().number_value = number
    with pytest.raises(InputError, match="is not a JSON value"):
        read_any(message, "input")


def test_a_value_without_a_kind_is_refused() -> None:
    struct = Struct()
    struct.fields["a"].SetInParent()
    with pytest.raises(InputError, match="has no kind"):
        read_any(fep_pb2.InputValue(object_value=struct), "input")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "valid JSON"),
        ("NaN", "not a JSON value"),
        ('{"a":1,"a":2}', "appears twice"),
        ("[" * 200 + "]" * 200, "100 levels"),
    ],
)
def test_text_that_is_no_json_is_refused(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        read_any(fep_pb2.InputValue(json_text=text), "input")


def test_text_of_something_else_is_no_object() -> None:
    with pytest.raises(InputError, match=r"check\.arguments_json: it is not the text of a JSON object"):
        read_object(fep_pb2.Check(arguments_json="[]"), "arguments", "check")


def test_an_object_in_both_forms_is_refused() -> None:
    message = fep_pb2.Check(arguments_json="{}")
    message.arguments.update({"a": 1})
    with pytest.raises(InputError, match="give one of them"):
        read_object(message, "arguments", "check")


def test_json_text_is_ascii() -> None:
    message = fep_pb2.InputValue()
    write_any(["\ud83d", "é"], message)
    assert message.json_text.isascii()
    assert json.loads(message.json_text) == ["\ud83d", "é"]
