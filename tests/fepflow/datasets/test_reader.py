"""Test cases from files: every format, every mapping, every mistake with its line."""

from __future__ import annotations

import gzip
import json
import os
import tracemalloc
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from fepflow.errors import InputError
from fepflow.suite.models import Dataset
from fepflow.suite.test_cases import Cases, read_records, read_test_cases

Read = Callable[..., Cases]

CASES = [{"id": "a", "input": "one", "expected": "1"}, {"id": "b", "input": "two", "expected": "2"}]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Writes a file and reads it as the test cases of a suite."""

    def read(content: str | bytes, name: str = "cases.jsonl", **mapping: Any) -> Cases:
        raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
        (tmp_path / name).write_bytes(raw)
        return read_test_cases(Dataset(path=name, **mapping), tmp_path / name, name)

    return read


def mistakes(read: Read, *args: Any, **mapping: Any) -> list[str]:
    with pytest.raises(InputError) as raised:
        read(*args, **mapping)
    return [str(problem) for problem in raised.value.problems]


def lines(*records: Any) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


YAML = """
- id: a
  input: one
  expected: "1"
- {id: b, input: two, expected: "2"}
"""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cases.jsonl", lines(*CASES)),
        ("cases.jsonl", "\ufeff" + lines(CASES[0]) + "\r\n  \n" + lines(CASES[1]).rstrip()),
        ("cases.ndjson", lines(*CASES)),
        ("cases.json", json.dumps(CASES)),
        ("cases.json", json.dumps({"checks": [], "x": {"test_cases": 1}, "test_cases": CASES}, indent=2)),
        ("cases.yaml", YAML),
        ("cases.yml", "test_cases:" + YAML.replace("\n", "\n  ")),
        ("cases.csv", "id,input,expected\na,one,1\r\nb,two,2\r\n"),
        ("cases.csv", '\ufeff"id" , input,expected\n\n"a","one",1\nb,two,2'.replace('" ,', '",')),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_the_same_cases_come_out_of_every_format(read: Read, name: str, content: str, packed: bool) -> None:
    raw = content.encode()
    found = read(gzip.compress(raw, mtime=0), name + ".gz") if packed else read(raw, name)
    assert [case.model_dump() for case in found.cases] == CASES
    assert found.warnings == []


def test_a_given_format_wins_over_the_file_extension(read: Read) -> None:
    assert len(read(lines(*CASES), "cases.txt", format="jsonl").cases) == 2


def test_inputs_of_any_kind_are_kept(read: Read) -> None:
    values: list[Any] = [None, 0, True, 1.5, [], {"a": [1]}, "\ud800\x00", ""]
    found = read(lines(*({"id": str(number), "input": value} for number, value in enumerate(values))))
    assert [case.input for case in found.cases] == values


def test_a_case_without_id_gets_one_from_its_content(read: Read) -> None:
    first, second, third = read(lines({"input": "x"}, {"id": None, "input": "y"}, {"id": 7, "input": "z"})).cases
    assert first.id.startswith("case-")
    assert second.id.startswith("case-")
    assert first.id != second.id
    assert third.id == "7"


def test_a_case_may_carry_its_own_checks(read: Read) -> None:
    record = {"id": "a", "input": 1, "checks": [{"type": "contains", "arguments": {"phrases": "$.x"}}]}
    (case,) = read(lines(record)).cases
    assert case.model_dump() == record


def test_unknown_fields_go_to_the_metadata_with_one_warning(read: Read) -> None:
    records = [{"input": 1, "lang": "de", "metadata": {"own": 1}}, {"input": 2, "lang": "en", "level": 3}]
    found = read(lines(*records))
    assert [case.metadata for case in found.cases] == [{"lang": "de", "own": 1}, {"lang": "en", "level": 3}]
    (warning,) = found.warnings
    assert warning.severity == "warning"
    assert "lang, level" in str(warning)


def test_fields_are_read_under_the_names_of_other_tools_unless_ours_are_there(read: Read) -> None:
    records = [
        {"id": "a", "inputs": {"q": 1}, "expected_output": "x"},
        {"id": "b", "input": "i", "inputs": "other", "expected": None, "expected_output": "y"},
    ]
    first, second = read(lines(*records)).cases
    assert (first.input, first.expected, first.metadata) == ({"q": 1}, "x", None)
    assert (second.input, second.expected) == ("i", None)
    assert second.metadata == {"inputs": "other", "expected_output": "y"}
    (mapped,) = read(lines({"inputs": "x", "expected_output": "y"}), input="$.inputs").cases
    assert (mapped.input, mapped.expected) == ("x", None)


class TestMapping:
    RECORD = {"q_id": 17, "question": {"text": "6 * 7?"}, "answer": "42", "level": "easy", "other": 1}  # noqa: RUF012  # only read

    def test_parts_come_from_where_the_suite_says(self, read: Read) -> None:
        metadata = {"level": "$.level", "source": "$.source"}
        found = read(
            lines(self.RECORD, {**self.RECORD, "q_id": 18, "source": "x"}),
            id="$.q_id",
            input="$.question.text",
            expected="$.answer",
            metadata=metadata,
        )
        assert next(iter(found.cases)).model_dump() == {
            "id": "17",
            "input": "6 * 7?",
            "expected": "42",
            "metadata": {"level": "easy"},
        }
        assert list(found.cases)[1].metadata == {"level": "easy", "source": "x"}
        assert found.warnings == []

    def test_a_part_without_mapping_is_where_fep_has_it(self, read: Read) -> None:
        (case,) = read(lines({"id": "a", "question": "?", "expected": 1}), input="$.question").cases
        assert case.model_dump() == {"id": "a", "input": "?", "expected": 1}

    def test_a_path_that_finds_nothing_names_line_path_and_fields(self, read: Read) -> None:
        found = mistakes(read, lines({"question": 1, "answer": 2}, {"question": 1}), input="$.q", expected="$.answer")
        assert found == [
            "cases.jsonl:1: input: none of the 2 records has anything at $.q (the record has question, answer)",
            "cases.jsonl:2: expected: nothing at $.answer (the record has question)",
        ]

    def test_a_metadata_path_without_a_match_is_an_error(self, read: Read) -> None:
        assert mistakes(read, lines({"input": 1}), metadata={"level": "$.lvl"}) == [
            "cases.jsonl: metadata.level: no record has anything at $.lvl"
        ]

    def test_an_invalid_path_is_refused(self, read: Read) -> None:
        with pytest.raises(ValidationError, match="not a valid JSONPath"):
            read(lines({"input": 1}), input="$[")


class TestCsv:
    def test_cells_are_strings_and_line_breaks_in_quotes_are_kept(self, read: Read) -> None:
        found = read('id,input,expected,n\n1,"a\nb, ""c""",,05\n2,,x,\n', "cases.csv")
        assert [case.model_dump() for case in found.cases] == [
            {"id": "1", "input": 'a\nb, "c"', "metadata": {"n": "05"}},
            {"id": "2", "input": "", "expected": "x", "metadata": {"n": ""}},
        ]

    def test_columns_are_mapped_like_fields(self, read: Read) -> None:
        (case,) = read("Question Text,Answer\nwhy?,\n", "q.csv", input="$['Question Text']", expected="$.Answer").cases
        assert case.input == "why?"
        assert "expected" not in case.model_dump()

    def test_a_large_cell_is_read(self, read: Read) -> None:
        assert len(next(iter(read("input\n" + "x" * 1_000_000 + "\n", "cases.csv").cases)).input) == 1_000_000

    @pytest.mark.parametrize(
        ("content", "mistake"),
        [
            ("input,input\na,b\n", "cases.csv:1: the columns input appear twice in the header"),
            ("input,\na,b\n", "cases.csv:1: column 2 has no name in the header"),
            ("input,expected\na,b\nc\n", "cases.csv:3: has 1 cells, but the header has 2"),
            (
                'input\n"a\nb"\n"never closed\nx\n',
                "cases.csv:4: is not valid CSV: a quote is opened here",
            ),
            ("question;answer\nq;a\n", "cases.csv:2: input is missing (the record has question, answer;"),
            ("input\n", "cases.csv: holds no test cases"),
        ],
    )
    def test_errors_have_their_line(self, read: Read, content: str, mistake: str) -> None:
        assert mistakes(read, content, "cases.csv")[0].startswith(mistake)


class TestMistakes:
    def test_all_are_reported_at_once_in_the_order_of_the_file(self, read: Read) -> None:
        content = (
            '{"id": "a", "input": 1}\n{"id": \n[1]\n{"id": "a", "input": 2}\n{"id": "c"}\n{"id":"d","input":NaN}\n'
        )
        assert mistakes(read, content) == [
            "cases.jsonl:2: is not valid JSON: Expecting value at column 7",
            "cases.jsonl:3: a test case is an object, but this is a list",
            "cases.jsonl:4: the id 'a' stands in line 1 already",
            "cases.jsonl:5: input is missing (the record has id; say where the input is, as in `input: $.question`)",
            "cases.jsonl:6: is not valid JSON: NaN is not a JSON value",
        ]

    def test_twenty_are_spelled_out_and_the_others_counted(self, read: Read) -> None:
        found = mistakes(read, "nonsense\n" * 1500)
        assert len(found) == 21
        assert found[-1] == "cases.jsonl: ... and 1,480 more"

    @pytest.mark.parametrize(
        ("record", "mistake"),
        [
            ({"id": ["x"], "input": 1}, "1: id: an id is a text or a number"),
            ({"id": True, "input": 1}, "1: id: an id is a text or a number"),
            ({"id": "", "input": 1}, "1: id: an id is a text or a number"),
            ({"input": 1, "metadata": 5}, "1: metadata: must be a mapping"),
            ({"input": 1, "checks": [{"arguments": {}}]}, "1: checks[0].type: is missing (add it)"),
            ("text", "1: a test case is an object, but this is a text"),
            (None, "1: a test case is an object, but this is null"),
        ],
    )
    def test_an_invalid_record_is_refused(self, read: Read, record: Any, mistake: str) -> None:
        assert mistakes(read, lines(record)) == [f"cases.jsonl:{mistake}"]

    def test_the_same_case_twice_without_ids(self, read: Read) -> None:
        (found,) = mistakes(read, lines({"input": 1}, {"input": 2}, {"input": 1}))
        assert found.startswith("cases.jsonl:3: is the same test case as the one in line 1")

    def test_an_id_twice_in_one_line(self, read: Read) -> None:
        found = mistakes(read, '[{"id": "a", "input": 1}, {"id": "a", "input": 2}]', "cases.json")
        assert found == ["cases.json:1: the id 'a' stands in line 1 already"]

    @pytest.mark.parametrize(
        ("name", "content", "mistake"),
        [
            ("cases.jsonl", "", "cases.jsonl: holds no test cases"),
            ("cases.jsonl", "\n \n", "cases.jsonl: holds no test cases"),
            ("cases.json", "[]", "cases.json: holds no test cases"),
            ("cases.yaml", "", "cases.yaml: holds no test cases"),
            ("cases.json", '{"cases": []}', "cases.json: holds no list of records"),
            ("cases.json", "17", "cases.json: holds no list of records"),
            ("cases.json", '[{"input": 1},\n{"input" 2}]', "cases.json: is not valid JSON: Expecting"),
            ("cases.yaml", "- input: 1\n- {input: 2", "cases.yaml:3:1: is not valid YAML"),
            ("cases.json", '[{"input": 1},\n\n 5]', "cases.json:3: a test case is an object"),
            ("cases.json", '{"test_cases":\n[{"input": 1}\n,\n5]}', "cases.json:4: a test case is an object"),
            ("cases.yaml", "- input: 1\n\n- 5\n", "cases.yaml:3: a test case is an object"),
            ("cases.jsonl", "[\n{}\n]", "cases.jsonl:1: is one JSON document, not a record a line"),
            ("cases.jsonl", '{"input": 1}'.encode("utf-16"), "cases.jsonl: is UTF-16, not UTF-8"),
            ("cases.json", "[]".encode("utf-16"), "cases.json: is UTF-16, not UTF-8"),
            ("cases.jsonl", '{"input": 1}\n{"input": "Zoë"}\n'.encode("latin-1"), "cases.jsonl:2: is not UTF-8: byte"),
            ("cases.json", '[{"input":\n"Zoë"}]'.encode("latin-1"), "cases.json:2: is not UTF-8: byte 0xeb"),
            ("cases.jsonl", gzip.compress(b"{}", mtime=0), "cases.jsonl: is gzip data, but its name does not end in"),
            ("cases.jsonl.gz", b"{}", "cases.jsonl.gz: is not a complete gzip file"),
            ("cases.json.gz", gzip.compress(b"[]" * 50, mtime=0)[:-10], "cases.json.gz: is not a complete gzip file"),
            ("cases.jsonl", '{"input": ' + "[" * 200 + "]" * 200 + "}", "cases.jsonl:1: is not valid JSON: it is"),
            ("cases.txt", "x", "cases.txt: the ending does not say what format it is"),
            ("cases", "x", "cases: the ending does not say what format it is"),
        ],
    )  # fmt: skip
    def test_an_unusable_file_is_refused(self, read: Read, name: str, content: str | bytes, mistake: str) -> None:
        assert mistakes(read, content, name)[0].startswith(mistake)

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"^cases\.jsonl: there is no such file"):
            read_test_cases(Dataset(path="cases.jsonl"), tmp_path / "cases.jsonl", "cases.jsonl")

    def test_a_folder(self, tmp_path: Path) -> None:
        (tmp_path / "cases.json").mkdir()
        with pytest.raises(InputError, match="is a folder"):
            read_test_cases(Dataset(path="cases.json"), tmp_path / "cases.json", "cases.json")


@cache
def bomb_of_spaces() -> bytes:
    return gzip.compress(b" " * 300_000_000, 1, mtime=0)


class TestBounds:
    @pytest.mark.parametrize("name", ["bomb.jsonl.gz", "bomb.csv.gz", "bomb.json.gz", "bomb.yaml.gz"])
    def test_a_bomb_does_not_fill_the_memory(self, read: Read, name: str) -> None:
        bomb = bomb_of_spaces()
        tracemalloc.start()
        found = mistakes(read, bomb, name)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert "is larger than" in found[0]
        assert peak < 250_000_000

    def test_a_long_file_is_read_as_a_stream(self, tmp_path: Path) -> None:
        path = tmp_path / "long.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for number in range(6_000):
                file.write(f'{{"id": {number}, "input": "{"x" * 1000}"}}\n')
        tracemalloc.start()
        count = sum(1 for _ in read_records(path, None, "long.jsonl"))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert count == 6_000
        assert peak < 2_000_000


def test_records_come_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text('1\n\nnull\n"x"\n', encoding="utf-8")
    assert list(read_records(path, None, "records.jsonl")) == [(1, 1), (3, None), (4, "x")]


def test_readable_records_are_yielded_before_errors_are_raised(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text("1\n{\n3\n", encoding="utf-8")
    records = read_records(path, None, "records.jsonl")
    assert [next(records), next(records)] == [(1, 1), (3, 3)]
    with pytest.raises(InputError, match=r"^records\.jsonl:2: is not valid JSON"):
        next(records)


@pytest.mark.skipif("FEPFLOW_TEST_DATA" not in os.environ, reason="FEPFLOW_TEST_DATA names no folder with test data")
def test_the_questions_of_gsm8k() -> None:
    path = Path(os.environ["FEPFLOW_TEST_DATA"]) / "data" / "gsm8k" / "solutions.jsonl"
    found = read_test_cases(Dataset(path="s.jsonl", input="$.question", expected="$.ground_truth"), path, "s.jsonl")
    assert len(found.cases) == 1319
    assert next(iter(found.cases)).expected.endswith("A: 18")
    assert found.warnings == []
