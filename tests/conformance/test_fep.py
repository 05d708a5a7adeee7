"""Checks and results against the Flexible Evaluation Protocol: its examples, and its JSON Schemas."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from fepflow.checks.engine import evaluate
from fepflow.protocol.check import Check
from fepflow.protocol.results import EvaluationRunResult, ExperimentMetadata
from fepflow.protocol.test_case import Output, TestCase

EXAMPLES = YAML(typ="safe").load(Path(__file__).with_name("fep_checks.yaml").read_text(encoding="utf-8"))
SCHEMA = json.loads(Path(__file__).with_name("fep_schemas.json").read_text(encoding="utf-8"))


def run(examples):
    cases, outputs, checks = [], [], []
    for index, example in enumerate(examples):
        expected = {"expected": example["expected"]} if "expected" in example else {}
        cases.append(TestCase(id=str(index), input="question", **expected))
        outputs.append(Output(value=example.get("output"), metadata=example.get("metadata", {})))
        checks.append([Check(**example["check"])])
    return evaluate(cases, outputs, checks, ExperimentMetadata(name="conformance"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["name"])
def test_an_example_of_the_specification(example):
    result = run([example]).results[0].check_results[0]
    if "error" in example:
        assert (result.status, result.results, result.error.type) == ("error", {}, example["error"])
    else:
        assert (result.status, result.results) == ("completed", {"passed": example["passed"]}), result.error


def test_the_schema_is_one():
    Draft202012Validator.check_schema(SCHEMA)


def test_results_of_all_examples_are_as_the_schemas_have_them():
    text = run(EXAMPLES).model_dump_json()
    Draft202012Validator(SCHEMA, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(json.loads(text))
    assert EvaluationRunResult.model_validate_json(text).model_dump_json() == text


def test_a_failed_call_is_as_the_schemas_have_them():
    case = TestCase(id="a", input="?", checks=[Check(type="contains", arguments={"text": "a", "phrases": "a"})])
    output = Output(value=None, metadata={"error": {"type": "timeout_error", "message": "no answer within 30 s"}})
    result = evaluate([case], [output])
    Draft202012Validator(SCHEMA).validate(json.loads(result.model_dump_json()))
