import json
import socket
from contextlib import suppress
from threading import current_thread, main_thread
from time import perf_counter
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field, field_validator

from fepflow.checks import schema_validation
from fepflow.checks.core import patterns
from fepflow.checks.engine import evaluate_async
from fepflow.checks.schema_validation import SchemaValidationCheck
from fepflow.errors import CheckTimeoutError, FepflowError
from fepflow.protocol.test_case import Output
from fepflow.time_limit import within

DIALECT = "https://json-schema.org/draft/2020-12/schema"

CITY = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "population": {"type": "integer", "minimum": 1}},
    "required": ["name"],
    "additionalProperties": False,
}


class City(BaseModel):
    name: str
    population: int = Field(1, ge=1)

    @field_validator("name")
    @classmethod
    def _is_paris(cls, name):
        assert name == "Paris"
        return name


def validate(results, schema, data):
    return results("schema_validation", answer=data, schema=schema, data="$.output.value")


@pytest.mark.parametrize("schema", [CITY, json.dumps(CITY), City])
def test_data_is_as_the_schema_says_however_the_schema_is_given(results, schema):
    assert validate(results, schema, {"name": "Rome"}) == {"passed": True, "validation_errors": []}
    told = validate(results, schema, {"name": 5, "population": 0})
    assert told["passed"] is False
    assert told["validation_errors"] == [
        "name: 5 is not of type 'string'",
        "population: 0 is less than the minimum of 1",
    ]


def test_a_text_is_read_as_json(results):
    assert validate(results, CITY, '{"name": "Paris"}')["passed"]
    told = validate(results, CITY, "Paris")
    assert told["passed"] is False
    assert "is not valid JSON" in told["validation_errors"][0]


def test_a_model_of_pydantic_is_data_too():
    results = SchemaValidationCheck(schema=CITY, data=City(name="Paris"))()
    assert isinstance(results, dict)
    assert results["passed"]


def test_errors_have_their_path_and_long_values_are_truncated(results):
    schema = {"properties": {"steps": {"items": {"properties": {"tool": {"enum": ["a"]}}}}}}
    (error,) = validate(results, schema, {"steps": [{}, {"tool": "x" * 5_000}]})["validation_errors"]
    assert error.startswith("steps[1].tool: 'xxx")
    assert len(error) < 400


def test_the_first_20_errors_are_listed(results):
    assert len(validate(results, {"items": {"type": "string"}}, list(range(100)))["validation_errors"]) == 20


def test_an_invalid_schema_is_refused_with_the_reason(refused):
    for schema, why in [
        ({"type": "strin"}, "is not valid under any of the given schemas"),
        ({"minimum": "1"}, "minimum: '1' is not of type 'number'"),
        ({"pattern": "("}, "is not a 'regex'"),
        ({"pattern": "a" * 1_001}, "patterns of up to 1,000 characters"),
        ("{", "this text is not valid JSON"),
        ("[]", "must be a mapping"),
        (True, "must be a mapping"),
        (None, "must be a mapping"),
    ]:
        assert why in refused("schema_validation", schema=schema, data={})


def test_references_are_followed_inside_the_schema_and_to_the_standard_itself(results):
    schema = {"$ref": "#/$defs/city", "$defs": {"city": CITY}}
    assert validate(results, schema, {"name": "Paris"})["passed"]
    assert validate(results, {"$ref": "https://json-schema.org/draft/2020-12/schema"}, CITY)["passed"]


def test_no_reference_is_ever_fetched(refused):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"
        message = refused("schema_validation", schema={"properties": {"a": {"$ref": url}}}, data={"a": 1})
        assert url in message
        with pytest.raises(TimeoutError):
            server.accept()


def test_a_reference_to_nothing_is_refused(refused):
    assert "/$defs/town" in refused("schema_validation", schema={"$ref": "#/$defs/town"}, data={})


@pytest.mark.parametrize("schema", [{"$ref": "#"}, {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}])
def test_a_reference_without_end_is_refused(refused, schema):
    assert "refers to itself without end" in refused("schema_validation", schema=schema, data={})


def test_these_formats_are_checked(results):
    for name, good, bad in [
        ("date", "2024-02-29", "2023-02-29"),
        ("date-time", "2024-02-29T12:00:00Z", "2024-02-29"),
        ("email", "a@b.c", "a.b.c"),
        ("ipv4", "127.0.0.1", "256.0.0.1"),
        ("ipv6", "::1", "1::2::3"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
    ]:
        assert validate(results, {"format": name}, json.dumps(good))["passed"]
        assert not validate(results, {"format": name}, json.dumps(bad))["passed"]


def test_other_formats_are_remarks(results):
    for name in ["regex", "uri", "hostname", "duration", "anything"]:
        assert validate(results, {"format": name}, '"("')["passed"]


def test_multiples_are_counted_as_they_are_written(results):
    for factor, multiple, other in [
        (0.01, 19.99, 19.995),
        (0.1, 0.3, 0.35),
        (3, 3 * 10**400, 10**400),
        (0.01, 7**5000, 0.005),
        (2, 4.0, 5.0),
    ]:
        assert validate(results, {"multipleOf": factor}, json.dumps(multiple))["passed"]
        assert not validate(results, {"multipleOf": factor}, json.dumps(other))["passed"]
    assert validate(results, {"multipleOf": 2}, json.dumps("text"))["passed"]


ORDINARY: list[tuple[dict[str, Any], list[Any]]] = [
    ({"pattern": "^a+$"}, ["aaa", "ab", 5]),
    ({"patternProperties": {"^x-": {"type": "integer"}}}, [{"x-a": 1}, {"x-a": "1"}, {"y": "1"}]),
    (
        {"properties": {"a": {}}, "patternProperties": {"^x-": {}}, "additionalProperties": False},
        [{"a": 1, "x-b": 2}, {"b": 1}, []],
    ),
    ({"properties": {"a": {}}, "additionalProperties": {"type": "string"}}, [{"a": 1, "b": "x"}, {"b": 1}]),
    ({"uniqueItems": True}, [[1, True, "1", [1], {"a": 1}], [1, 1.0], [{"a": [1]}, {"a": [1]}], [0, False], "x"]),
    ({"properties": {"a": {}}, "unevaluatedProperties": False}, [{"a": 1}, {"b": 1}, []]),
    ({"allOf": [{"patternProperties": {"^x": {}}}], "unevaluatedProperties": False}, [{"xa": 1}, {"b": 1}]),
    ({"properties": {"a": {}}, "unevaluatedProperties": {"type": "string"}}, [{"a": 1, "b": "x"}, {"b": 1}]),
    (
        {"anyOf": [{"properties": {"a": {"type": "string"}}}, {"required": ["b"]}], "unevaluatedProperties": False},
        [{"a": "x"}, {"a": 1, "b": 1}, {"a": "x", "b": 1}, {}],
    ),
    (
        {"$defs": {"a": {"properties": {"a": {}}}}, "$ref": "#/$defs/a", "unevaluatedProperties": False},
        [{"a": 1}, {"b": 1}],
    ),
    ({"prefixItems": [{"type": "string"}], "unevaluatedItems": False}, [["a"], ["a", 1], [], {}]),
    (
        {"prefixItems": [{}], "contains": {"type": "null"}, "unevaluatedItems": {"minimum": 5}},
        [[1, None, 7], [None, 1]],
    ),
]


def test_the_guarded_keywords_say_what_the_librarys_own_say(results):
    for schema, data in [(schema, item) for schema, items in ORDINARY for item in items]:
        expected = Draft202012Validator(schema).is_valid(data)
        assert validate(results, schema, json.dumps(data))["passed"] is expected


BOMB, TEXT = r"(?:(a+)\1)+$|(a|aa)+$", "a" * 5_000 + "!"


def test_a_pattern_that_runs_away_ends_in_a_time_out_within_two_seconds(ask):
    started = perf_counter()
    schema = {"patternProperties": {BOMB: {}}, "additionalProperties": False}
    result = ask("schema_validation", answer={TEXT: 1}, schema=schema, data="$.output.value")
    assert result.error.type == "timeout_error"
    assert perf_counter() - started < 2


def test_a_pattern_that_runs_away_is_stopped_wherever_it_is(ask, monkeypatch):
    monkeypatch.setattr(patterns, "TIME_LIMIT", 0.1)
    for schema, data in (
        ({"pattern": BOMB}, json.dumps(TEXT)),
        ({"patternProperties": {BOMB: {}}}, {TEXT: 1}),
        ({"propertyNames": {"pattern": BOMB}}, {TEXT: 1}),
    ):
        result = ask("schema_validation", answer=data, schema=schema, data="$.output.value")
        assert result.error.type == "timeout_error"


def test_beside_unevaluated_properties_patterns_have_to_be_simple(refused):
    schema = {"patternProperties": {BOMB: {}}, "unevaluatedProperties": False}
    assert "simple patterns" in refused("schema_validation", schema=schema, data={})
    schema = {"patternProperties": {"a+$": {}}, "unevaluatedProperties": False}
    assert "names of up to 1,000 characters" in refused("schema_validation", schema=schema, data={"a" * 2_000: 1})


NAMES = {f"name {index}": index for index in range(40_000)}


def test_many_unevaluated_members_and_items_are_validated_or_given_up_in_time(monkeypatch):
    monkeypatch.setattr(schema_validation, "TIME_LIMIT", 0.2)
    schema: dict[str, Any]
    for schema, data in (
        ({"allOf": [{"patternProperties": {"^name": {}}}], "unevaluatedProperties": False}, NAMES),
        ({"items": True, "allOf": [{"contains": {}}], "unevaluatedItems": False}, list(range(40_000))),
        (
            {"patternProperties": {"a+$": {}}, "unevaluatedProperties": {}},
            {"a" * 990 + f"!{index}": 1 for index in range(2_000)},
        ),
    ):
        started = perf_counter()
        with suppress(CheckTimeoutError):
            assert schema_validation.schema_errors(schema, data) == []
        assert perf_counter() - started < 4


def test_unevaluated_members_and_items_are_named(results):
    told = validate(results, {"properties": {"a": {}}, "unevaluatedProperties": False}, {"a": 1, "b": 1, "c": 1})
    assert told["validation_errors"] == ["Unevaluated properties are not allowed ('b', 'c' were unexpected)"]
    told = validate(results, {"prefixItems": [{}], "unevaluatedItems": False}, [1, 2, 3])
    assert told["validation_errors"] == ["Unevaluated items are not allowed (2, 3 were unexpected)"]


def test_a_validation_that_takes_too_long_times_out(ask, monkeypatch):
    monkeypatch.setattr(schema_validation, "TIME_LIMIT", 0.05)
    schema = {"items": {"anyOf": [{"type": "string"}, {"minimum": 0}, {"type": "integer"}]}}
    result = ask("schema_validation", answer=list(range(100_000)), schema=schema, data="$.output.value")
    assert result.error.type == "timeout_error"


def test_a_schema_that_contains_itself_is_a_validation_error(refused):
    schema: dict[str, Any] = {"properties": {}}
    schema["properties"]["a"] = schema
    assert refused("schema_validation", schema=schema, data={})


def test_a_class_keeps_the_schema_of_a_model_so_that_it_can_be_written_down():
    check = SchemaValidationCheck(schema=City, data="$.output.value")
    assert check.to_check().arguments["schema"] == City.model_json_schema()


def test_called_directly_a_schema_with_a_mistake_is_refused_at_once():
    with pytest.raises(ValueError, match="must be a JSON Schema"):
        SchemaValidationCheck(schema={"type": 5}, data={})
    with pytest.raises(FepflowError, match="called directly"):
        SchemaValidationCheck(schema={}, data="$.output.value")()


DOUBLING = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)} | {"d40": {"type": "string"}}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/d0", "$defs": DOUBLING},
        {"allOf": [{"$schema": DIALECT, "$ref": "#/$defs/d0"}], "$defs": DOUBLING},
        {"items": {"$schema": DIALECT, "pattern": BOMB}},
    ],
    ids=["references", "references of a dialect", "a pattern of a dialect"],
)
@pytest.mark.may_stall(reason="beside busy threads, Python may give the loop no turn for a third of a second")
async def test_a_schema_that_runs_away_on_small_data_ends_in_time_and_not_in_the_loops_thread(schema, monkeypatch):
    limited = []

    def recorded(seconds, work):
        limited.append((seconds, current_thread()))
        return within(seconds, work)

    monkeypatch.setattr(schema_validation, "within", recorded)
    monkeypatch.setattr(schema_validation, "TIME_LIMIT", 0.3)
    check = {"type": "schema_validation", "arguments": {"schema": schema, "data": "$.output.value"}}
    evaluated = await evaluate_async(["?"], [Output(value=[TEXT])], [check] * 3)
    assert [result.error.type for result in evaluated.results[0].check_results] == ["timeout_error"] * 3
    threads = [thread for seconds, thread in limited if seconds == 0.3]
    assert len(threads) == 3
    assert main_thread() not in threads


def test_reading_a_schema_has_a_time_limit(ask, monkeypatch):
    monkeypatch.setattr(schema_validation, "READ_LIMIT", 0.01)
    schema = {"properties": {f"p{index}": {"type": "string"} for index in range(3_000)}}
    result = ask("schema_validation", schema=schema, data={})
    assert (result.error.type, result.error.message) == (
        "timeout_error",
        "the schema took longer than 0.01 s to be read",
    )
