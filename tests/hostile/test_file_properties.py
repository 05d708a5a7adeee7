"""Whatever stands in a suite or a data file, it is read, or refused with the mistakes that are in it."""

from __future__ import annotations

import csv
import gzip
import json
import tempfile
from io import StringIO
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fepflow.diagnose.suite_validation import SuiteValidation
from fepflow.diagnose.validate_suite import validate_suite
from fepflow.documents.loader import parse_document
from fepflow.errors import InputError, Problem
from fepflow.suite.models import Dataset
from fepflow.suite.test_cases import read_test_cases
from tests.properties import holds_for, value_or_error

from .strategies import JSON_PIECES, JSON_VALUES, SENDABLE, mutated, pieces

SUITE = """\
name: refunds
task: refunds
target:
  http:
    url: http://127.0.0.1:9/ask
    headers: {Authorization: "Bearer ${NOT_SET:-x}"}
    body: {question: $.test_case.input}
    output: $.answer
  timeout: 30s
  attempts: 3
test_cases:
  - {id: one, input: "?", expected: fine, metadata: {topic: a}}
  - id: two
    input: [1, 2.5, null, true]
checks:
  - {type: contains, arguments: {text: $.output.value, phrases: $.test_case.expected}}
  - type: regex
    arguments: {text: $.output.value, pattern: '^(a|b)+$'}
  - {id: shape, type: schema_validation, arguments: {data: $.output.value, schema: {type: object}}}
repeats: 2
metrics:
  - {id: acc, check: contains, aggregate: mean}
gate: {min: {acc: 0.9}, confidence: 0.95}
"""
YAML = (
    *(": ", "- ", "\n", "  ", "[", "]", "{", "}", ",", "'", '"', "#", "|", ">", "%", "@", "`", "\t", "?", "---\n"),
    *("&a ", "*a", "<<: ", "!!int ", "!!bool ", "!!python/name:os", "!x ", "~", "null", "yes", "1_000", "0x1F", ".inf"),
    *(
        "-1",
        "1e400",
        "9" * 400,
        "2020-01-01",
        "=",
        "\ufeff",
        "\x85",
        "\u2028",
        "\x00",
        "\\",
        "${",
        "${A:-",
        "{{$.",
        "$.",
    ),
    *("name:", "checks:", "test_cases:", "target:", "type:", "arguments:", "id:", "gate:", "12:30:45", "\r", "\x1b"),
)


def is_told(problems: list[Problem], file: str, text: str) -> None:
    """Each mistake has words, and names a line that its file has."""
    lines = len(text.splitlines()) + 1
    for problem in problems:
        assert problem.message
        assert problem.file is None or Path(problem.file).name == file
        assert problem.line is None or 1 <= problem.line <= lines
        assert str(problem).isprintable()


@holds_for(SENDABLE | pieces(*YAML) | mutated(SUITE, YAML), st.sampled_from(["suite.yaml", "suite.json"]), examples=200)
def test_any_document_is_read_or_refused_with_an_error(text: str, file: str) -> None:
    document = value_or_error(lambda: parse_document(text, file), InputError)
    if isinstance(document, InputError):
        is_told(document.problems, file, text)
        assert all(problem.file == file for problem in document.problems)
    else:
        json.dumps(document.data, allow_nan=False)


@holds_for(mutated(SUITE, YAML), examples=60)
def test_any_suite_is_validated_or_refused_with_errors(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "suite.yaml")
        path.write_bytes(text.encode("utf-8"))
        found = value_or_error(lambda: validate_suite(path, env={}), InputError)
        assert found.problems or isinstance(found, SuiteValidation)
        is_told(found.problems, "suite.yaml", text)


JSONL = '{"id": "one", "input": "?", "expected": "fine"}\n{"id": "two", "input": [1], "metadata": {"a": 1}}\n'
CSV = 'id;input;expected\n1;"what; is ""it""?";fine\n2;"a\nb";\n'
MARKS = (",", ";", "\t", "|", '"', '""', "\n", "\r", "\r\n", "sep=;\n", "\x00", "\ufeff", "id", "input", " ", "=1+1")
JSON_MARKS = ("{", "}", "[", "]", ",", ":", '"', "\n", "NaN", "1e400", "\\ud800", "\x00", "9" * 400, '"id"', '"checks"')
TEXTS = SENDABLE | JSON_PIECES | pieces(*MARKS) | mutated(JSONL, JSON_MARKS) | mutated(CSV, MARKS)
FILES = st.binary(max_size=60) | TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass"))
NAMES = st.sampled_from(["cases.jsonl", "cases.csv", "cases.json", "cases.yaml", "cases.tsv", "cases.jsonl.gz"])
MAPPINGS = st.sampled_from([{}, {"input": "$.input"}, {"id": "$.id", "input": "$..a", "metadata": {"m": "$.b"}}])


def read_cases(name: str, data: bytes, **mapping: Any) -> list[Any]:
    """The test cases of a file that holds these bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        return list(read_test_cases(Dataset(path=name, **mapping), path, name).cases)


@holds_for(NAMES, FILES, MAPPINGS, examples=200)
def test_any_data_file_is_read_or_refused_with_errors(name: str, data: bytes, mapping: dict[str, Any]) -> None:
    text = data.decode("utf-8", "replace")
    packed = gzip.compress(data) if name.endswith(".gz") and len(data) % 2 else data
    cases = value_or_error(lambda: read_cases(name, packed, **mapping), InputError)
    if isinstance(cases, InputError):
        is_told(cases.problems, name, text)
    else:
        assert len({case.id for case in cases}) == len(cases)


CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=8)


@holds_for(st.lists(CELLS.filter(str.strip), min_size=1, max_size=8), st.sampled_from([",", ";", "\t", "|"]))
def test_csv_survives_a_round_trip(inputs: list[str], delimiter: str) -> None:
    text = StringIO()
    writer = csv.writer(text, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([["id", "input"], *([f"c{number}", value] for number, value in enumerate(inputs))])
    assert [case.input for case in read_cases("cases.csv", text.getvalue().encode())] == inputs


@holds_for(st.lists(JSON_VALUES.filter(lambda value: value is not None), min_size=1, max_size=4), examples=50)
def test_jsonl_survives_a_round_trip(inputs: list[Any]) -> None:
    lines = [json.dumps({"id": f"c{number}", "input": value}) for number, value in enumerate(inputs)]
    assert repr([case.input for case in read_cases("cases.jsonl", "\n".join(lines).encode())]) == repr(inputs)
