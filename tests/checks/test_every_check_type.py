"""What holds for each check type that comes with fepflow: typed or declared, once or a thousand times."""

import asyncio
import copy
import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

import fepflow
from fepflow.checks.base import MODIFIERS, JSONPath, argument_fields
from fepflow.checks.core.declarations import with_default_paths
from fepflow.checks.docgen import arguments_of, examples
from fepflow.checks.engine import evaluate, evaluate_async
from fepflow.checks.explanation import explain
from fepflow.checks.registry import CHECKS, JUDGES, SCORED_JUDGES, CheckType, find_check, list_checks
from fepflow.checks.schemas import check_schema
from fepflow.extras import is_installed
from fepflow.protocol.check import Check, in_full
from fepflow.protocol.test_case import Output, TestCase

WITHOUT_A_PATH = {"attribute_exists", "declared", *SCORED_JUDGES}
"""Types whose example has no path to the output, or which say otherwise that there is nothing."""

HERE = [name for name in CHECKS if not name.startswith("ragas.") or is_installed("ragas")]
"""Types that can be evaluated here."""
OF_THE_AUTHOR = {"custom_function", "semantic_similarity", "attribute_exists", "declared", *JUDGES}
"""Types with arguments that only code or the suite can give."""

NEEDS_CODE = {name for name, example in examples().items() if "python" in example}


def yaml_of(value):
    stream = io.StringIO()
    YAML(typ="safe").dump(value, stream)
    return YAML(typ="safe").load(stream.getvalue())


def checks_of_example(name):
    """The example's check, as it stands there and in its other form: (declared, typed)."""
    example = examples()[name]
    if name in NEEDS_CODE:
        scope: dict[str, Any] = {}
        exec(example["python"], scope)
        return scope["check"].to_check(), scope["check"]
    declared = Check(**in_full(YAML(typ="safe").load(example["check"])))
    return declared, find_check(name)(**declared.arguments)


def case_of(example, id="case"):
    expected = {"expected": example["expected"]} if "expected" in example else {}
    return TestCase(id=id, input="question", **expected)


def ask(check, name):
    example = examples()[name]
    return evaluate([case_of(example)], [Output(value=example["output"])], [check]).results[0].check_results[0]


def without_times(result):
    data = result.model_dump(mode="json")
    del data["evaluated_at"], data["metadata"]["execution_time_ms"]
    return data


def test_each_has_an_example_and_a_constant():
    assert list(examples()) == list(CHECKS) == [str(name) for name in CheckType]
    assert set(CHECKS) <= set(list_checks())


def test_its_class_is_exported_by_the_package():
    for name in CHECKS:
        check_class = find_check(name)
        assert getattr(fepflow, check_class.__name__) is check_class


def test_its_example_gives_its_documented_result():
    for name in HERE:
        for check in checks_of_example(name):
            result = ask(check, name)
            assert (result.status, result.results) == ("completed", examples()[name]["results"]), result.error


def test_its_failing_example_says_the_documented_sentence():
    for name in HERE:
        example = examples()[name]
        for check in checks_of_example(name):
            output = Output(value=example.get("failing", example["output"]))
            result = evaluate([case_of(example)], [output], [check]).results[0].check_results[0]
            assert (result.passed, explain(result)) == (False, example["says"])


def test_typed_and_declared_are_the_same_thing():
    for name in CHECKS:
        declared, typed = checks_of_example(name)
        again = typed.to_check()
        assert again == declared.model_copy(update={"version": "1.0.0"})
        assert without_times(ask(typed, name)) == without_times(ask(again, name)) == without_times(ask(declared, name))


def test_it_survives_a_round_trip_through_yaml():
    for name in [name for name in CHECKS if name not in NEEDS_CODE]:
        _, typed = checks_of_example(name)
        read = Check(**yaml_of(typed.to_check().model_dump()))
        assert read == typed.to_check()
        assert find_check(name)(**read.arguments) == typed


def test_it_has_version_time_and_every_argument_in_its_result():
    for name in CHECKS:
        result = ask(checks_of_example(name)[0], name)
        assert result.metadata["check_version"] == "1.0.0"
        assert result.metadata["execution_time_ms"] >= 0
        assert set(result.resolved_arguments) - set(MODIFIERS) == argument_fields(find_check(name)).keys() - set(
            MODIFIERS
        )


def test_one_instance_serves_many_cases_and_stays_what_it_was():
    for name in HERE:
        example = examples()[name]
        declared, typed = checks_of_example(name)
        before, arguments = typed.model_dump(), copy.deepcopy(yaml_safe(declared.arguments))
        cases = [case_of(example, str(index)) for index in range(5)]
        result = evaluate(cases, [Output(value=example["output"])] * 5, [typed, declared])
        answers = [item.results for case in result.results for item in case.check_results]
        assert answers == [example["results"]] * 10
        assert typed.model_dump() == before
        assert yaml_safe(declared.arguments) == arguments


def yaml_safe(arguments):
    return {name: value for name, value in arguments.items() if not callable(value)}


def test_an_instance_cannot_be_changed():
    for name in CHECKS:
        _, typed = checks_of_example(name)
        field = next(iter(type(typed).model_fields))
        with pytest.raises(ValueError, match="frozen"):
            setattr(typed, field, "other")


def test_without_arguments_the_error_names_the_missing_ones():
    for name in [name for name in CHECKS if any(each.default is None for each in arguments_of(name))]:
        result = ask(Check(type=name), name)
        assert result.error.type == "validation_error"
        required = [argument.name for argument in arguments_of(name) if argument.default is None]
        for argument in required:
            assert argument in result.error.message


def test_a_path_to_nothing_is_a_jsonpath_error():
    for name in [name for name in CHECKS if name not in WITHOUT_A_PATH]:
        declared, _ = checks_of_example(name)
        text = json.dumps(yaml_safe(with_default_paths(declared).arguments)).replace(
            "$.output.value", "$.output.nothing"
        )
        functions = {key: value for key, value in declared.arguments.items() if callable(value)}
        result = ask(Check(type=name, arguments={**json.loads(text), **functions}), name)
        assert (result.results, result.error.type) == ({}, "jsonpath_error")
        assert "$.output.nothing" in result.error.message


def test_every_argument_may_come_from_a_path():
    """Each argument is moved into the test case's metadata, with a path to it in its place."""
    for name in [name for name in CHECKS if name not in OF_THE_AUTHOR]:
        declared, _ = checks_of_example(name)
        example = examples()[name]
        moved = {key: value for key, value in declared.arguments.items() if "$." not in json.dumps(value)}
        case = case_of(example).model_copy(update={"metadata": moved})
        paths = {key: f"$.test_case.metadata['{key}']" for key in moved}
        check = Check(
            type=name,
            arguments={**declared.arguments, **{k: p.replace("['", ".").replace("']", "") for k, p in paths.items()}},
        )
        result = evaluate([case], [Output(value=example["output"])], [check]).results[0].check_results[0]
        assert (result.status, result.results) == ("completed", example["results"]), result.error


def test_called_directly_with_a_path_it_refuses():
    for name in CHECKS:
        _, typed = checks_of_example(name)
        if not any(isinstance(value, JSONPath) for value in vars(typed).values()):
            continue  # its example has paths inside of other arguments only
        with pytest.raises(fepflow.FepflowError, match="called directly, a check takes values only"):
            typed()


def test_its_schema_takes_its_example():
    for name in CHECKS:
        schema = check_schema(name)
        declared = checks_of_example(name)[0].model_dump()
        declared["arguments"] = yaml_safe(declared.get("arguments", {}))
        Draft202012Validator(schema).validate(json.loads(json.dumps(declared)))


# A test case must not decide how much is asked, and paid for.
NEVER_FROM_A_PATH = {(name, argument) for name in JUDGES for argument in ("samples", "jury", "pass_at")}


def test_its_schema_takes_a_path_for_any_argument():
    for name in CHECKS:
        schema = check_schema(name)["properties"]["arguments"]
        for argument, told in schema["properties"].items():
            if (name, argument) in NEVER_FROM_A_PATH:
                continue
            (
                Draft202012Validator({**told, "$defs": check_schema(name).get("$defs", {})}).validate("$.output.value"),
                argument,
            )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=8),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=4), children, max_size=4),
    max_leaves=8,
)


@settings(max_examples=6)
@given(st.lists(json_values, min_size=1, max_size=4))
def test_whatever_an_agent_answers_each_check_ends_in_a_result_and_no_other_is_touched(answers):
    checks = [checks_of_example(name)[1] for name in CHECKS if name != "custom_function"]
    checks.append(Check(type="equals", arguments={"actual": 1, "expected": 1}))
    cases = [TestCase(id=str(index), input="?", expected="Paris") for index in range(len(answers))]
    result = evaluate(cases, [Output(value=answer) for answer in answers], checks)
    for case in result.results:
        assert len(case.check_results) == len(checks)
        assert case.check_results[-1].results == {"passed": True}
        assert all(item.error is None or item.error.type != "unknown_error" for item in case.check_results), [
            item.error for item in case.check_results
        ]
    json.loads(result.model_dump_json())


async def test_all_of_them_at_once_over_many_cases():
    checks = [checks_of_example(name)[1] for name in HERE]
    names = HERE[::4]
    cases = [case_of(examples()[name], name) for name in names]
    outputs = [Output(value=examples()[name]["output"]) for name in names]
    first, second = await asyncio.gather(*[evaluate_async(cases, outputs, checks) for _ in range(2)])
    for index, name in enumerate(names):
        assert first.results[index].check_results[4 * index].results == examples()[name]["results"]
    assert [[without_times(item) for item in case.check_results] for case in first.results] == [
        [without_times(item) for item in case.check_results] for case in second.results
    ]
