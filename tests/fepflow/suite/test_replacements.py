"""`--set`: a value of the suite replaced for one run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fepflow.diagnose.validate_suite import validate_suite
from fepflow.documents.loader import Document
from fepflow.errors import InputError, UserError
from fepflow.suite.variants import parse_replacement, with_replacements

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
