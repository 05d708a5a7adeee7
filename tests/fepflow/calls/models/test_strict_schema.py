import pytest

from fepflow.calls.models.structured import strict, without_nulls


def closed(**members):
    return {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}


def test_objects_are_closed_at_every_depth_and_all_members_required():
    schema = {
        "type": "object",
        "title": "Verdict",
        "properties": {
            "passed": {"type": "boolean", "default": False},
            "claims": {"type": "array", "items": {"type": "object", "properties": {"text": {"type": "string"}}}},
            "grade": {"enum": ["a", "b"]},
        },
        "required": ["passed"],
    }
    assert strict(schema) == closed(
        passed={"type": "boolean"},
        claims={"type": ["array", "null"], "items": closed(text={"type": ["string", "null"]})},
        grade={"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]},
    )


def test_reasons_come_before_the_verdict_and_the_rest_keeps_its_order():
    members = {key: {"type": "string"} for key in ["passed", "score", "reasoning", "explanation"]}
    adapted = strict({"type": "object", "properties": members, "required": list(members)})
    assert adapted is not None
    assert adapted["required"] == list(adapted["properties"]) == ["reasoning", "explanation", "passed", "score"]


def test_definitions_are_adapted_and_references_stay():
    schema = {
        "type": "object",
        "properties": {"claim": {"$ref": "#/$defs/Claim"}},
        "$defs": {"Claim": {"type": "object", "properties": {"true": {"type": "boolean"}}, "required": ["true"]}},
    }
    adapted = strict(schema)
    assert adapted is not None
    assert adapted["$defs"] == {"Claim": closed(true={"type": "boolean"})}
    assert adapted["properties"] == {"claim": {"anyOf": [{"$ref": "#/$defs/Claim"}, {"type": "null"}]}}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {"type": "object", "properties": {"a": {}}, "allOf": []},
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]},
        {"type": "object", "properties": {"a": True}},
    ],
)
def test_a_schema_without_a_strict_form_gives_none(schema):
    assert strict(schema) is None


@pytest.mark.parametrize(
    ("member", "kept"),
    [
        ({"type": "string"}, False),
        ({"type": ["string", "null"]}, True),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, True),
        ({"enum": ["a", None]}, True),
        ({"enum": ["a"]}, False),
        ({"const": None}, True),
        ({}, True),
    ],
)
def test_a_null_stays_only_where_the_schema_takes_one(member, kept):
    assert without_nulls({"a": None}, {"type": "object", "properties": {"a": member}}) == ({"a": None} if kept else {})


def test_nulls_go_at_every_depth_and_never_where_a_member_is_required_or_not_known():
    inner = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["b"]}
    schema = {
        "type": "object",
        "properties": {"list": {"type": "array", "items": {"$ref": "#/$defs/x"}}},
        "$defs": {"x": inner},
    }
    value = {"list": [{"a": None, "b": None, "c": None}]}
    assert without_nulls(value, schema) == {"list": [{"b": None, "c": None}]}


def test_a_schema_whose_references_double_is_not_followed_without_end() -> None:
    definitions = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(31)}
    schema = {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**definitions, "d31": {"type": "null"}}}
    assert without_nulls({"a": {"b": 1}}, schema) == {"a": {"b": 1}}
