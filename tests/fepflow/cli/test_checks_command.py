import json

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from fepflow.checks.registry import CHECKS
from fepflow.cli.main import fepflow
from fepflow.errors import CheckArgumentsError


def run(*arguments):
    return CliRunner().invoke(fepflow, ["checks", *arguments])


def test_all_types_are_listed_with_their_versions_and_a_sentence():
    lines = run().output.splitlines()
    assert {line.split()[0] for line in lines} >= set(CHECKS)
    (contains,) = [line for line in lines if line.startswith("contains ")]
    assert contains.split(maxsplit=2)[1:] == ["1.0.0", "Pass if a text contains all phrases."]
    assert not [line for line in lines if "Results:" in line]


def test_a_type_is_shown_with_its_arguments_required_ones_first():
    output = run("regex").output
    assert output.startswith("regex (1.0.0)\n\nPass if a regular expression matches")
    assert output.index("pattern (text; required)") < output.index("text (text; default `$.output.value`)")


COMMON = "\nEvery check also takes extract, pass_at, any.\n"


def test_a_type_without_arguments_and_words_is_shown_as_well():
    from fepflow.checks import registry
    from fepflow.checks.base import BaseCheck

    registry.register("silent")(type("Silent", (BaseCheck,), {}))
    try:
        assert run("silent").output == f"silent (1.0.0)\n\n\n\n{COMMON}"
    finally:
        del registry._registered["silent"]


@pytest.mark.parametrize("name", ["contains", "tool_usage"])
def test_its_schema_is_printed_as_json(name):
    schema = json.loads(run(name, "--json").output)
    Draft202012Validator.check_schema(schema)
    assert schema["properties"]["type"] == {"const": name}


def test_all_schemas_are_printed_by_type():
    assert set(json.loads(run("--json").output)) >= set(CHECKS)


def test_the_error_for_an_unknown_type_names_the_nearest_one():
    result = run("contain")
    assert isinstance(result.exception, CheckArgumentsError)
    assert "did you mean contains" in str(result.exception)


def test_the_suites_schema_knows_what_each_check_takes():
    schema = json.loads(CliRunner().invoke(fepflow, ["schema"]).output)
    suite = {
        "name": "a",
        "target": {"recorded": {"path": "x.jsonl"}},
        "test_cases": "cases.jsonl",
        "checks": [{"type": "contains", "arguments": {"text": 5, "phrases": "a"}}],
    }
    assert [error.absolute_path[-1] for error in Draft202012Validator(schema).iter_errors(suite)] == ["text"]
