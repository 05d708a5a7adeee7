"""Scenarios whose steps come from a file."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from .conftest import Read, told

SCENARIO = """\
manifest_version: "v1"
name: Questions
target: agent
scenarios:
  - name: All
    dataset: {%s}
"""


@pytest.fixture
def case_of(read: Read, tmp_path: Path) -> Any:
    """The test case of a scenario with a dataset in a file of this text; or, of one with errors, those."""

    def case_of(dataset: str, name: str, text: str | bytes) -> Any:
        (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
        loaded = read(SCENARIO % dataset)
        return loaded.snapshot["test_cases"][0] if loaded.suite is not None else told(loaded)

    return case_of


def expected(case: dict[str, Any]) -> dict[str, str]:
    return {check["id"]: check["arguments"]["value"] for check in case["checks"]}


ROWS = 'input,output,topic\n2+2?,4,maths\n"Hello, you",,\nCapital?,Paris,geo\n'


def test_a_row_is_a_step_and_its_output_what_the_agent_is_to_say(case_of: Any) -> None:
    case = case_of("type: csv, source: rows.csv", "rows.csv", ROWS)
    assert case["input"] == ["2+2?", "Hello, you", "Capital?"]
    assert case["checks"][0] == {
        "id": "step-1-text_match",
        "type": "text_match",
        "arguments": {"text": "$.output.value.steps[0].public_output", "condition": "equals", "value": "4"},
    }
    assert expected(case) == {"step-1-text_match": "4", "step-3-text_match": "Paris"}


def test_columns_have_the_names_that_the_manifest_gives(case_of: Any) -> None:
    lines = '{"q": "2+2?", "a": "4"}\n\n{"q": "$.x", "a": "$.y"}\n{"q": "Hello", "a": null}\n{"q": "You"}\n'
    case = case_of("type: jsonl, source: rows.jsonl, input_column: q, output_column: a", "rows.jsonl", lines)
    assert case["input"] == ["2+2?", "$.x", "Hello", "You"]
    assert expected(case) == {"step-1-text_match": "4", "step-2-text_match": "\\$.y"}


def test_files_are_read_as_any_dataset_is(case_of: Any) -> None:
    text = gzip.compress("sep=;\ninput;output\na;b\n".encode("utf-8-sig"))
    assert case_of("type: csv, source: rows.csv.gz", "rows.csv.gz", text)["input"] == ["a"]


def test_the_longest_scenario_gives_the_time_limit(read: Read, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(ROWS)
    suite = read(SCENARIO % "type: csv, source: rows.csv" + "timeout: 2m\n").suite
    assert suite is not None
    assert suite.target.ecp is not None
    assert (suite.target.timeout, suite.target.ecp.step_timeout, suite.target.ecp.start_timeout) == (600, 120, 120)


@pytest.mark.parametrize(
    ("dataset", "name", "text", "mistakes"),
    [
        ("type: csv, source: none.csv", "rows.csv", "", ["6: scenarios[0].dataset.source: there is no file none.csv"]),
        ("type: csv, source: ../rows.csv", "rows.csv", "", ["6: scenarios[0].dataset.source: leads out of the"]),
        ("type: xlsx, source: rows.csv", "rows.csv", ROWS, ["6: scenarios[0].dataset.type: must be one of 'csv' or"]),
        (
            "type: csv, sorce: rows.csv",
            "rows.csv",
            ROWS,
            ["6: scenarios[0].dataset.sorce: ", "6: scenarios[0].dataset: source is"],
        ),
        ("type: csv, source: rows.csv", "rows.csv", "", ["holds no rows"]),
        ("type: csv, source: rows.csv", "rows.csv", "question\na\n", ["2: there is no input (input_column of"]),
        ("type: csv, source: rows.csv, output_column: answer", "rows.csv", ROWS, ["no row has answer (output_column"]),
        ("type: csv, source: rows.csv", "rows.csv", 'input,output\na,b\nc\n"d', ["3: has 1 cells", "4: is not valid"]),
        (
            "type: jsonl, source: rows.jsonl",
            "rows.jsonl",
            '{"input": 5}\n[1]\n{',
            ["1: input: must", "2: a row", "3: "],
        ),
        ("type: jsonl, source: rows.jsonl", "rows.jsonl", '{"input": "a", "output": 4}', ["1: output: must be a text"]),
        ("type: jsonl, source: rows.jsonl", "rows.jsonl", '{"input": "a", "output": "\\\\$.b"}', ["6: scenarios[0].d"]),
    ],
)
def test_what_is_wrong_with_rows_is_told_with_file_and_line(
    case_of: Any, dataset: str, name: str, text: str, mistakes: list[str]
) -> None:
    found = case_of(dataset, name, text)
    assert len(found) == len(mistakes), found
    for line, mistake in zip(found, mistakes, strict=True):
        assert line.removeprefix("error ").strip().startswith(mistake), line
