import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from fepflow.checks.base import BaseCheck, JSONPath
from fepflow.checks.registry import CHECKS, register
from fepflow.checks.schemas import check_schema, complete_suite_schema
from fepflow.documents.loader import read_document
from fepflow.errors import CheckArgumentsError

ROOT = Path(__file__).parents[2]
SUITES = [*ROOT.glob("deployments/suites/**/suite*.yaml"), *ROOT.glob("docs/examples/**/suite*.yaml")]
SUITES.append(ROOT / "fepflow" / "cli" / "starter" / "suite.yaml")

MINIMAL = {
    "name": "a",
    "target": {"recorded": {"path": "out.jsonl"}},
    "test_cases": [{"input": "?", "checks": [{"type": "is_empty", "arguments": {"value": "$.output.value"}}]}],
}


@pytest.fixture(scope="module")
def validator():
    """A validator of suites with checks of ours."""
    return Draft202012Validator(complete_suite_schema())


def schema_errors(validator, *checks, **more):
    errors = validator.iter_errors({**MINIMAL, "checks": list(checks), **more})
    return ["/".join(map(str, error.absolute_path)) for error in errors]


def test_the_suites_schema_is_one(validator):
    Draft202012Validator.check_schema(validator.schema)
    assert json.loads(json.dumps(validator.schema)) == validator.schema
    assert schema_errors(validator) == []


def test_the_shipped_suites_are_as_the_schema_says(validator):
    for suite in SUITES:
        validator.validate(read_document(suite).data)


def test_a_mistake_in_a_check_is_shown_where_it_is(validator):
    for check, location in [
        ({"type": "contains", "arguments": {"text": 5, "phrases": ["a"]}}, "checks/0/arguments/text"),
        ({"type": "regex", "arguments": {"text": "a"}}, "checks/0"),
        ({"type": "regex"}, "checks/0"),
        ({"type": "regex", "patern": "a"}, "checks/0"),
        ({"type": "regex", "pattern": 5}, "checks/0/pattern"),
        ({"type": "regex", "pattern": "a", "extract": {"regx": "a"}}, "checks/0/extract"),
        ({"type": "regex", "pattern": "a", "pass_at": "high"}, "checks/0/pass_at"),
        ({"type": "threshold", "arguments": {"value": 1, "min": 2}}, "checks/0/arguments"),
        (
            {"type": "regex", "arguments": {"text": "a", "pattern": "a", "flags": {"dotall": True}}},
            "checks/0/arguments/flags",
        ),
        ({"type": "attribute_exists", "arguments": {"path": "output"}}, "checks/0/arguments/path"),
        ({"type": "tool_usage", "arguments": {"calls": [], "min_count": -1}}, "checks/0/arguments/min_count"),
        ({"type": "contains", "argument": {}}, "checks/0"),
        ({"type": ""}, "checks/0/type"),
    ]:
        assert location in schema_errors(validator, check)


def test_a_mistake_in_a_test_cases_own_check_is_shown_too(validator):
    cases = [{"input": "?", "checks": [{"type": "is_empty", "arguments": {"values": 1}}]}]
    assert schema_errors(validator, test_cases=cases)


def test_paths_and_types_and_versions_of_other_people_are_fine(validator):
    for check in [
        {
            "type": "contains",
            "arguments": {"text": "$.output.value", "phrases": "$.test_case.expected", "negate": "$.a.b"},
        },
        {
            "type": "contains",
            "arguments": {"text": "a", "phrases": ["$.test_case.expected"]},
            "id": "x",
            "version": "1.0.0",
        },
        {"type": "final_number", "arguments": {"anything": [1]}},
        {"type": "final_number", "anything": [1]},
        {"type": "exact_match"},
        {"type": "regex", "pattern": "a", "negate": True, "id": "a", "turn": 1, "extract": {"as": "json"}},
        {"type": "regex", "negate": True, "arguments": {"pattern": "a"}},
        {"type": "tool_usage", "calls": "$.output.value", "arguments": {"arguments": {"city": "Paris"}}},
        {"type": "contains", "version": "3.0.0", "arguments": {"words": 5}},
    ]:
        assert schema_errors(validator, check) == []


def test_a_registered_check_is_in_the_schema_in_all_its_versions():
    @register("mine", "1.0.0")
    class First(BaseCheck):
        old: int | JSONPath

    @register("mine", "2.0.0")
    class Second(BaseCheck):
        new: list[int] | JSONPath
        thing: object = object()

    validator = Draft202012Validator(complete_suite_schema())
    assert schema_errors(validator, {"type": "mine", "arguments": {"new": [1], "thing": "?"}}) == []
    assert schema_errors(validator, {"type": "mine", "arguments": {"old": 1}})
    assert schema_errors(validator, {"type": "mine", "version": "1.0.0", "arguments": {"old": 1}}) == []
    assert schema_errors(validator, {"type": "mine", "version": "1.0.0", "arguments": {"new": [1]}})
    assert schema_errors(validator, {"type": "mine", "new": [1]}) == []
    assert check_schema("mine", "1.0.0")["properties"]["arguments"]["required"] == ["old"]


def test_an_unknown_type_has_no_schema():
    with pytest.raises(CheckArgumentsError, match="there is no check type vibes"):
        check_schema("vibes")


def test_each_argument_is_described():
    for name in CHECKS:
        properties = check_schema(name)["properties"]["arguments"]["properties"]
        assert all(told["description"] for told in properties.values())
