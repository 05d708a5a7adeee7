"""Variants, and values replaced for one run (`--set`): the suite of each, and what is wrong with one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from fepflow.diagnose.suite_validation import SuiteValidation
from fepflow.diagnose.validate_suite import validate_suite
from fepflow.documents.loader import Document
from fepflow.errors import InputError, UserError
from fepflow.suite.reader import read_snapshot
from fepflow.suite.variants import (
    chosen,
    label_of,
    parse_replacement,
    run_name,
    tags_of,
    value_label,
    with_replacements,
)

CASES = [{"id": "a", "input": "a", "expected": "a"}]
SAME = {"type": "exact_match", "arguments": {"actual": "$.output.value", "expected": "$.test_case.expected"}}
HTTP = {"url": "${AGENT}/${variant.version}", "body": {"q": "$.test_case.input", "t": "${variant.temperature}"}}


def validated(folder: Path, variants: Any, http: dict[str, Any] = HTTP, **sections: Any) -> SuiteValidation:
    suite = {"name": "s", "target": {"http": http}, "test_cases": CASES, "checks": [SAME], **sections}
    if variants is not None:
        suite["variants"] = variants
    path = folder / "suite.yaml"
    with path.open("w", encoding="utf-8") as file:
        YAML().dump(suite, file)
    return validate_suite(path, {"AGENT": "http://127.0.0.1:9", "API_KEY": "secret-of-b"})


BOTH = {"version": ["a", "b"], "temperature": [0, {"of": [1]}]}


def test_each_combination_is_a_suite_of_its_own(tmp_path: Path) -> None:
    validation = validated(tmp_path, BOTH)
    assert not validation.problems
    suites = [variant.require() for variant in validation.variants]
    targets = [(suite.target.http.url, suite.target.http.body["t"]) for suite in suites if suite.target.http]
    a, b, last = "http://127.0.0.1:9/a", "http://127.0.0.1:9/b", {"of": [1]}
    assert targets == [(a, 0), (a, last), (b, 0), (b, last)], "the last name changes fastest"
    assert [suite.variant for suite in suites][1] == {"version": "a", "temperature": {"of": [1]}}
    assert len({variant.run_name for variant in validation.variants}) == 4


def test_the_snapshot_of_a_variant_is_its_suite_without_the_others_and_without_secrets(tmp_path: Path) -> None:
    http = {"url": "${AGENT}/${variant.version}", "headers": {"Authorization": "Bearer ${variant.key}"}}
    validation = validated(tmp_path, {"version": ["a"], "key": ["${API_KEY}", "${OTHER_KEY:-}"]}, http)
    assert not validation.errors
    snapshot = validation.variants[0].loaded.snapshot
    assert snapshot["target"]["http"]["headers"] == {"Authorization": "Bearer ${API_KEY}"}
    assert "variants" not in snapshot
    env = {"AGENT": "http://127.0.0.1:9", "API_KEY": "secret-of-b"}
    again = read_snapshot(snapshot, validation.loaded.document.file, "s", env)
    assert again.suite is not None
    assert again.suite.target == validation.variants[0].require().target
    assert "secret-of-b" in again.secrets


@pytest.mark.parametrize(
    ("variants", "http", "place", "message"),
    [
        (["a"], {}, "variants", "must be a mapping of names to lists of values"),
        ({}, {}, "variants", "must be a mapping of names to lists of values"),
        ({"version": "a"}, {}, "variants.version", "must be a list of values"),
        ({"version": []}, {}, "variants.version", "has no value"),
        ({"version": ["a", "b", "a"]}, {}, "variants.version[2]", "a appears twice"),
        ({"version": [1, "1"]}, {}, "variants.version[1]", "1 appears twice"),
        ({"version": ["a"], "unused": [1]}, {}, "variants.unused", "the target does not refer to it"),
        ({"version": ["a"], "a-b": [1]}, {}, "variants.a-b", "a-b is not a name for variants"),
        ({"verson": ["a"]}, {}, "target.http.url", "there are no variants version"),
        ({"version": [{"a": 1}]}, {}, "target.http.url", "has values that are neither texts nor numbers"),
        ({"version": ["a"]}, {"body": "${variants.version}"}, "target.http.body", "is not a reference to variants"),
        ({"version": ["a"]}, {"body": "${variant.version:-b}"}, "target.http.body", "is not a reference to variants"),
        ({"version": ["a"], "api_key": ["sk-1234567890abcdef"]}, {"headers": {"X-Api-Key": "${variant.api_key}"}},
         "variants.api_key[0]", "a secret must not stand in the suite"),
        ({"version": list(range(1001))}, {}, "variants", "come to 1,001 combinations"),
        (None, {}, "target.http.url", "refers to variants, but the suite has none"),
    ],
)  # fmt: skip
def test_a_mistake_in_variants_has_its_place(
    tmp_path: Path, variants: Any, http: dict[str, Any], place: str, message: str
) -> None:
    validation = validated(tmp_path, variants, {"url": "${AGENT}/${variant.version}", **http})
    found = [problem for problem in validation.errors if message in problem.message]
    assert [problem.path for problem in found] == [place], validation.errors
    assert found[0].line is not None
    with pytest.raises(UserError):
        validation.require()


def test_a_reference_outside_of_the_target_is_an_error_and_none_in_test_cases(tmp_path: Path) -> None:
    cases = [{"id": "a", "input": "${variant.version}", "expected": "a"}]
    http = {"url": "${AGENT}/${variant.version}"}
    assert not validated(tmp_path, {"version": ["a"]}, http, test_cases=cases).errors
    (error,) = validated(tmp_path, {"version": ["a"]}, http, description="of ${variant.version}").errors
    assert (error.path, error.message) == ("description", "${variant.version} has a value in target only")


def test_a_suite_cannot_say_which_variant_it_is(tmp_path: Path) -> None:
    (error,) = validated(tmp_path, None, {"url": "${AGENT}/a"}, variant={"version": "a"}).errors
    assert error.path == "variant"


def test_an_error_of_one_combination_names_it(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"value": "a"}\n', encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"value": "a"}\n', encoding="utf-8")
    target = {"recorded": {"path": "${variant.of}.jsonl"}}
    errors = validated(tmp_path, {"of": ["a", "c", "b"]}, target=target).errors
    assert [error.message for error in errors] == ["there is no file c.jsonl (variant of=c)"]


def test_an_error_that_all_combinations_have_is_said_once(tmp_path: Path) -> None:
    check = {"type": "exact_match", "arguments": {"actual": "$.outptu.value", "expected": 1}}
    validation = validated(tmp_path, BOTH, checks=[check])
    assert len(validation.errors) == 1
    with pytest.raises(UserError):
        validation.variants[3].require()


def test_labels_are_short_and_no_two_values_share_one() -> None:
    long = "Answer the customer in one sentence, and be kind"
    assert value_label(f"{long}.") != value_label(f"{long}!")
    assert len(value_label(long * 100)) <= 40
    variant = {"model": "openai/gpt", "prompt": "a\n b", "options": {"b": 1, "a": True}}
    assert label_of(variant) == 'model=openai/gpt, prompt=a b, options={"a": true, "b": 1}'
    assert run_name("s", variant).startswith("s [model=openai/gpt, ")
    assert run_name("s", None) == "s"
    assert tags_of({"model": "a"}) == ["variant:model=a"]


def test_values_choose_variants() -> None:
    variants = [{"m": m, "t": t} for m in ("a", "b") for t in (0, 0.5)]
    assert chosen(variants, []) == [0, 1, 2, 3]
    assert chosen(variants, [("m", "b")]) == [2, 3]
    assert chosen(variants, [("m", "b"), ("m", "a"), ("t", "0.5")]) == [1, 3]
    with pytest.raises(UserError, match="it has m, t"):
        chosen(variants, [("model", "b")])
    with pytest.raises(UserError, match=r"t has no such value; it has 0, 0\.5"):
        chosen(variants, [("t", "1")])


def test_prompts_in_files_and_whole_targets_may_vary(tmp_path: Path) -> None:
    (tmp_path / "asks.md").write_text("Answer: {{$.test_case.input}}", encoding="utf-8")
    (tmp_path / "same.md").write_text("Always the same", encoding="utf-8")
    openai = {"model": "openai/gpt-5", "prompt": "${variant.prompt}", "api_key": "${API_KEY}"}
    validation = validated(tmp_path, {"prompt": ["asks.md", "same.md"]}, target={"openai": openai})
    assert [problem.message for problem in validation.problems] == [
        "the request is the same for all test cases (variant prompt=same.md)"
    ]
    agents = [{"http": {"url": "http://127.0.0.1:9/"}}, {"htpp": {"url": "http://127.0.0.1:9/"}}]
    (error,) = validated(tmp_path, {"agent": agents}, target="${variant.agent}").errors
    assert error.path == "target.htpp"
    assert "(variant agent=" in error.message


SUITE = """\
name: s
target:
  http: {url: "http://127.0.0.1:1/", body: {q: $.test_case.input}}
test_cases: [{id: a, input: 1}]
checks:
  - {type: is_empty, arguments: {value: $.output.value}}
"""


@pytest.mark.parametrize(
    ("text", "place", "value"),
    [
        ("a.b=http://localhost:8000", ("a", "b"), "http://localhost:8000"),
        ("a=3", ("a",), 3),
        ("a=true", ("a",), True),
        ("a=", ("a",), None),
        ("a={min: {acc: 0.9}}", ("a",), {"min": {"acc": 0.9}}),
        ("checks[0].pass_at=0.5", ("checks", 0, "pass_at"), 0.5),
        ("checks.0.pass_at=0.5", ("checks", 0, "pass_at"), 0.5),
        ("a=x=y", ("a",), "x=y"),
        ("a=[", ("a",), "["),
    ],
)
def test_a_replacement_is_a_path_and_a_value_as_suites_have_it(text: str, place: Any, value: Any) -> None:
    replacement = parse_replacement(text)
    assert (replacement.path, replacement.value) == (place, value)


@pytest.mark.parametrize("text", ["a", "=3", "a..b=3", ".a=3"])
def test_what_is_no_replacement_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UserError, match=r"--set reads like target.http.url="):
        parse_replacement(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("checks.3.type=x", "--set checks.3.type: checks is a list of 1 and has no 3 .give a position from 0 to 0"),
        ("name.first=x", "--set name.first: name is one value and has no first inside .replace name as a whole"),
    ],
)
def test_a_place_that_the_suite_does_not_have_is_named(text: str, says: str) -> None:
    document = Document({"name": "s", "checks": [{}]}, "suite.yaml", "")
    with pytest.raises(InputError, match=says):
        with_replacements(document, [parse_replacement(text)])


def suite_with(folder: Path, *texts: str) -> Any:
    path = folder / "suite.yaml"
    path.write_text(SUITE)
    return validate_suite(path, replacements=[parse_replacement(text) for text in texts])


def test_the_run_has_the_replaced_values_and_the_file_is_as_it_was(tmp_path: Path) -> None:
    validation = suite_with(tmp_path, "target.http.url=http://127.0.0.1:2/", "gate.min.is_empty=0.5", "repeats=3")
    suite = validation.require()
    assert (suite.target.http.url, suite.repeats, suite.gate.min) == ("http://127.0.0.1:2/", 3, {"is_empty": 0.5})
    assert validation.loaded.snapshot["target"]["http"]["url"] == "http://127.0.0.1:2/"
    assert (tmp_path / "suite.yaml").read_text() == SUITE


def test_an_error_of_a_replaced_value_names_the_option_and_no_line_of_the_file(tmp_path: Path) -> None:
    validation = suite_with(tmp_path, "target.http.urll=x", "repeats=many")
    assert {(problem.file, problem.line) for problem in validation.errors} == {
        ("--set target.http.urll", None),
        ("--set repeats", None),
    }


def test_a_secret_is_refused_there_too_and_not_shown(tmp_path: Path) -> None:
    validation = suite_with(tmp_path, "target.http.headers.Authorization=Bearer sk-0123456789abcdef")
    assert [problem.file for problem in validation.errors] == ["--set target.http.headers.Authorization"]
    assert "sk-0123456789abcdef" not in str(validation.errors)
