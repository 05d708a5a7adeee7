"""Checks in one line: keys beside `type` are arguments, wherever people write checks."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fepflow import Check, evaluate
from fepflow.checks.base import BaseCheck
from fepflow.checks.engine import read_checks, read_test_cases
from fepflow.checks.registry import register
from fepflow.diagnose.validate_suite import validate_suite
from fepflow.documents.loader import parse_document
from fepflow.errors import InputError
from fepflow.protocol.check import to_check
from fepflow.suite.reader import read_suite
from fepflow.tasks.create_run import create_run

START = "name: a\ntarget: {recorded: {path: out.jsonl}}\n"
CASES = "test_cases: [{input: q, expected: Paris}]\n"


def problems(tmp_path, text, name="suite.yaml"):
    (tmp_path / "out.jsonl").write_text('{"value": "Paris"}\n')
    (tmp_path / name).write_text(text)
    found = validate_suite(tmp_path / name)
    return [str(problem).replace(str(tmp_path) + "/", "") for problem in found.errors]


@pytest.mark.parametrize(
    "written",
    [
        "{type: contains, phrases: Paris, negate: true}",
        "{type: contains, phrases: Paris, arguments: {negate: true}}",
        "{type: contains, arguments: {phrases: Paris, negate: true}}",
    ],
)
def test_arguments_stand_beside_the_type_or_in_arguments(written):
    loaded = read_suite(parse_document(f"{START}{CASES}checks:\n  - {written}\n", "suite.yaml"), None, {})
    (check,) = loaded.suite.checks
    assert check == Check(type="contains", arguments={"phrases": "Paris", "negate": True})
    assert loaded.snapshot["checks"][0]["arguments"].keys() == {"phrases", "negate"}


def test_keys_of_a_check_keep_their_meaning():
    document = {"type": "mine", "id": "a", "version": "1.0.0", "turn": 2, "arguments": {"id": "b", "turn": 9}, "x": 1}
    checks, _ = read_checks([document])
    check = to_check(checks[0])
    assert (check.id, check.version, check.turn) == ("a", "1.0.0", 2)
    assert check.arguments == {"x": 1, "id": "b", "turn": 9}


def test_cases_and_their_turns_may_carry_checks_in_one_line(tmp_path):
    case: dict[str, Any] = {
        "turns": ["a", {"input": "b", "checks": [{"type": "contains", "phrases": "x"}]}],
        "checks": [{"type": "exact_match"}],
    }
    text = f"{START}test_cases: {json.dumps([case])}\n"
    loaded = read_suite(parse_document(text, "suite.yaml"), None, {})
    (from_suite,) = loaded.section("test_cases")
    (from_python,) = read_test_cases([{**case, "input": ["a", "b"]}])
    (tmp_path / "cases.jsonl").write_text(json.dumps(case) + "\n")
    (tmp_path / "suite.yaml").write_text(f"{START}test_cases: cases.jsonl\nchecks: [{{type: exact_match}}]\n")
    (from_file,) = validate_suite(tmp_path / "suite.yaml").cases
    for found in (from_suite, from_python, from_file):
        own = [to_check(check) for check in found.checks]
        assert [(check.type, check.turn) for check in own] == [("exact_match", None), ("contains", 2)]
        assert own[1].arguments["phrases"] == "x"


def test_what_is_wrong_is_told_on_its_line_as_it_is_written(tmp_path):
    text = (
        f"{START}{CASES}checks:\n  - type: contains\n    phrases: Paris\n    case_sensitve: false\n"
        "  - type: regex\n    pattern: (\n  - type: contains\n    phrases: a\n    arguments:\n      phrases: b\n"
        "  - type: exact_match\n    extract:\n      regex: '['\n  - type: regex\n"
    )
    assert problems(tmp_path, text) == [
        "suite.yaml:7: checks[0].case_sensitve: contains has no argument case_sensitve (did you mean case_sensitive?)",
        "suite.yaml:8: checks[1]: regex cannot take these arguments: the pattern is not a regular expression: "
        "missing ), unterminated subpattern at position 0",
        "suite.yaml:11: checks[2].phrases: phrases stands beside type and in arguments (keep one of the two)",
        "suite.yaml:16: checks[3].extract.regex: the pattern is not a regular expression: unterminated character set "
        "at position 0",
        "suite.yaml:17: checks[4].pattern: is missing (add it)",
    ]


def test_a_mistake_in_a_json_suite_has_its_line_too(tmp_path):
    suite = {
        "name": "a",
        "target": {"recorded": {"path": "out.jsonl"}},
        "test_cases": [{"input": "q", "expected": "a", "checks": [{"type": "contains", "phrase": "a"}]}],
    }
    assert problems(tmp_path, json.dumps(suite, indent=1), "suite.json")[0].startswith("suite.json:15: ")


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (
            "{type: exact_match}",
            "{type: exact_match, arguments: {actual: $.output.value, expected: $.test_case.expected}}",
        ),
        (
            "{type: contains, phrases: a, id: x}",
            "{id: x, type: contains, arguments: {text: $.output.value, phrases: a}}",
        ),
    ],
)
def test_short_and_long_form_have_the_same_hashes(tmp_path, store, short, long):
    runs = []
    for number, check in enumerate((short, long)):
        case = f"test_cases: [{{input: q, expected: Paris, checks: [{check}]}}]\n"
        (tmp_path / "out.jsonl").write_text('{"value": "Paris"}\n')
        file = tmp_path / f"suite-{number}.yaml"
        file.write_text(f"{START}{case}checks: [{check.replace('id: x', 'id: y').replace('exact_match', 'equals')}]\n")
        runs.append(create_run(store, validate_suite(file)).run)
    one, other = runs
    assert one.suite["checks"] == other.suite["checks"]
    assert (
        one.suite["checks"][0]["arguments"].keys() >= {"phrases", "text"}
        or "actual" in one.suite["checks"][0]["arguments"]
    )
    assert (one.suite_hash, one.cases_hash) == (other.suite_hash, other.cases_hash)


@pytest.mark.parametrize(
    ("check", "says"),
    [
        (
            {"type": "contains", "phrase": "a"},
            "checks[0].phrase: contains has no argument phrase (did you mean phrases?)",
        ),
        ({"type": "contains", "phrases": "a", "negat": True}, "contains has no argument negat (did you mean negate?)"),
        ({"type": "contains", "phrases": "a", "arguments": {"phrases": "b"}}, "stands beside type and in arguments"),
        (
            {"type": "tool_usage", "calls": [], "arguments": {"city": "Paris"}},
            "checks[0].arguments.city: tool_usage has no argument city (what calls are made with is arguments: "
            "{arguments: {city: ...}})",
        ),
    ],
)
def test_python_refuses_what_a_misspelt_key_would_leave_out(check, says):
    with pytest.raises(InputError) as error:
        evaluate([{"input": "q", "expected": "a"}], ["a"], [check])
    assert says in str(error.value)
    with pytest.raises(InputError) as error:
        evaluate([{"input": "q", "expected": "a", "checks": [check]}], ["a"])
    assert says.replace("checks[0]", "test_cases[0].checks[0]") in str(error.value)


def test_no_default_stands_in_for_an_argument_that_is_misspelt():
    check = Check(type="contains", arguments={"phrase": "London"})
    result = evaluate([{"input": "q", "expected": "Paris"}], ["Paris"], [check]).results[0].check_results[0]
    assert result.error.message == (
        "contains: there is no argument phrase (did you mean phrases?), and phrases would be $.test_case.expected"
    )


ALONE = ("exact_match", "equals", "contains", "is_empty", "subset", "superset", "set_equal", "json_valid")


@pytest.mark.parametrize(
    ("check_type", "output", "expected", "is_passed"),
    [
        ("exact_match", "Paris", "Paris", True),
        ("exact_match", "paris", "Paris", False),
        ("equals", {"a": 1}, {"a": 1}, True),
        ("contains", "It is Paris.", "Paris", True),
        ("contains", "It is Paris.", ["Paris", "London"], False),
        ("subset", ["a", "b"], ["a"], True),
        ("superset", ["a"], ["a", "b"], True),
        ("set_equal", ["a", "b"], ["b", "a"], True),
        ("is_empty", " ", "x", True),
        ("json_valid", "[1]", "x", True),
    ],
)
def test_a_type_alone_compares_the_output_with_what_is_expected(check_type, output, expected, is_passed):
    case = {"input": "q", "expected": expected}
    assert evaluate([case], [{"value": output}], [{"type": check_type}]).results[0].check_results[0].passed is is_passed


@pytest.mark.parametrize("case", [{"input": "q"}, {"input": "q", "expected": "x"}, {"input": "q", "expected": ""}])
def test_an_output_of_null_passes_no_type_by_itself_but_is_empty(case):
    results = evaluate([case], [{"value": None}], [{"type": check_type} for check_type in ALONE]).results[0]
    passed = [result.passed is True for result in results.check_results]
    assert passed == [check_type == "is_empty" for check_type in ALONE]


@pytest.mark.parametrize("check_type", ["exact_match", "equals", "contains", "subset", "superset", "set_equal"])
def test_a_case_that_expects_nothing_is_an_error_and_no_pass(check_type):
    outputs: list[Any] = ["", None, [], {}]
    for output in outputs:
        result = evaluate([{"input": "q"}], [{"value": output}], [{"type": check_type}]).results[0].check_results[0]
        assert result.status == "error"


def test_an_empty_phrase_is_an_error_as_every_text_has_it():
    case = {"input": "q", "expected": ""}
    for negate in (True, False):
        check = {"type": "contains", "negate": negate}
        result = evaluate([case], ["anything"], [check]).results[0].check_results[0]
        assert "an empty text is in every text" in result.error.message


def test_a_check_of_ones_own_takes_its_arguments_beside_the_type():
    @register("shorter")
    class Shorter(BaseCheck):
        def __call__(self, text: str, than: int):
            return {"passed": len(text) < than}

    check = {"type": "shorter", "text": "$.output.value", "than": 4}
    assert evaluate(["q"], ["abc"], [check]).results[0].check_results[0].passed


def test_callers_of_fep_must_send_its_own_form():
    for refused in ({"type": "contains", "phrases": "a"}, {"type": "exact_match", "negate": True}):
        with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
            Check.model_validate(refused)


@pytest.mark.parametrize("cases", ["cases.jsonl", '[{"input": "q", "checks": [{"contains": "a"}]}]'])
def test_a_check_of_a_case_that_has_its_type_as_a_key_is_named_with_advice(cases: str, tmp_path: Path) -> None:
    (tmp_path / "cases.jsonl").write_text('{"input": "q", "checks": [{"contains": "a"}]}')
    text = f"name: s\ntarget: {{python: a.py:f}}\ntest_cases: {cases}\n"
    (tmp_path / "suite.yaml").write_text(text)
    problems = validate_suite(tmp_path / "suite.yaml", {}).problems
    (of_check,) = [str(problem) for problem in problems if "checks" in str(problem)]
    assert of_check.endswith(
        "checks[0].type: is missing (write {type: contains, ...}, with the arguments beside the type)"
    )
