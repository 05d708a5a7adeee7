"""Test cases from Parquet and Excel: typed values become JSON, or an error of their row."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pytest
from pyarrow import parquet

from fepflow.datasets import records
from fepflow.errors import InputError
from fepflow.suite.models import Dataset
from fepflow.suite.test_cases import read_records, read_test_cases


def parquet_file(path: Path, **columns: Any) -> Path:
    parquet.write_table(pa.table(columns), path)
    return path


def excel_file(path: Path, *rows: list[Any]) -> Path:
    book = openpyxl.Workbook()
    for row in rows:
        book.worksheets[0].append(row)
    book.save(path)
    return path


def cases_of(path: Path, **mapping: Any) -> list[dict[str, Any]]:
    cases = read_test_cases(Dataset(path=path.name, **mapping), path, path.name).cases
    return [case.model_dump() for case in cases]


def mistakes(path: Path, **mapping: Any) -> str:
    with pytest.raises(InputError) as raised:
        cases_of(path, **mapping)
    return str(raised.value)


def test_typed_values_of_parquet_become_json(tmp_path: Path) -> None:
    east = timezone(timedelta(hours=2))
    file = parquet_file(
        tmp_path / "cases.parquet",
        id=[1, 2],
        input=["one", "two"],
        expected=[{"price": Decimal("12.50"), "day": date(2026, 1, 5)}, {"price": None, "day": None}],
        moment=[datetime(2026, 1, 5, 8, 30, tzinfo=east), None],
        tags=[["a"], []],
        score=[0.5, 1.0],
        waited=[timedelta(seconds=90), timedelta(0)],
    )
    first, second = cases_of(file)
    assert (first["id"], first["input"], second["id"]) == ("1", "one", "2")
    assert first["expected"] == {"price": 12.5, "day": "2026-01-05"}
    assert first["metadata"]["moment"].startswith("2026-01-05T0")
    assert first["metadata"] | {"moment": 0} == {"moment": 0, "tags": ["a"], "score": 0.5, "waited": 90.0}


def test_an_empty_expected_is_left_out_of_parquet_as_of_excel(tmp_path: Path) -> None:
    of_parquet = parquet_file(tmp_path / "cases.parquet", input=["a", "b"], expected=["A", None])
    of_excel = excel_file(tmp_path / "cases.xlsx", ["input", "expected"], ["a", "A"], ["b", None])
    assert cases_of(of_parquet) == cases_of(of_excel)
    mapped = parquet_file(tmp_path / "mapped.parquet", q=["a", None], checks=[None, None], answer=["A", None])
    first, second = cases_of(mapped, input="$.q", expected="$.answer")
    assert (first["expected"], second["input"]) == ("A", None)
    assert first.keys() - second.keys() == {"expected"}


def test_rows_of_parquet_are_read_in_bounded_parts_and_keep_their_numbers(tmp_path: Path) -> None:
    file = parquet_file(tmp_path / "cases.parquet", input=[f"question {number}" for number in range(1_000)])
    assert [line for line, _ in read_records(file, None, "cases.parquet")] == list(range(1, 1_001))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "nan has no JSON form; an empty cell is null"),
        (float("inf"), "inf has no JSON form"),
        (b"\x89PNG", "binary data has no JSON form"),
        (Decimal("0.1234567890123456789012"), "more digits than a number of JSON keeps"),
    ],
)
def test_a_value_without_json_form_is_an_error_of_its_row(tmp_path: Path, value: Any, words: str) -> None:
    file = parquet_file(tmp_path / "cases.parquet", input=["a", "b"], odd=[None, value])
    told = mistakes(file)
    assert "cases.parquet:2: odd: " in told
    assert words in told
    # A column that is not mapped is not read.
    assert [case["input"] for case in cases_of(file, input="$.input")] == ["a", "b"]


def test_a_mapping_to_a_column_that_is_not_there_names_the_one_that_was_meant(tmp_path: Path) -> None:
    file = parquet_file(tmp_path / "cases.parquet", question=["a", "b"], image=[1, 2])
    assert "none of the 2 records has anything at $.qestion (did you mean $.question?)" in mistakes(
        file, input="$.qestion"
    )


def test_a_column_of_categories_counts_by_the_values_of_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    categories = pa.array([f"category {number}" for number in range(1_000)]).dictionary_encode()
    file = parquet_file(tmp_path / "cases.parquet", id=range(1_000), input=["a"] * 1_000, topic=categories)
    monkeypatch.setattr(records, "MAX_STREAM_BYTES", 100_000)
    assert cases_of(file)[-1]["metadata"]["topic"] == "category 999"


def test_a_moment_past_the_years_of_the_calendar_is_an_error(tmp_path: Path) -> None:
    file = parquet_file(tmp_path / "cases.parquet", input=["a"], when=pa.array([10**12], pa.timestamp("s")))
    assert "is not a readable Parquet file" in mistakes(file)


def test_hostile_parquet_is_an_error_and_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = parquet_file(tmp_path / "wide.parquet", **{f"c{number}": [1] for number in range(1_500)})
    assert "has 1,500 columns, more than 1,000" in mistakes(wide)
    (tmp_path / "cut.parquet").write_bytes(wide.read_bytes()[:-3_000])
    assert "is not a readable Parquet file" in mistakes(tmp_path / "cut.parquet")
    (tmp_path / "page.parquet").write_text("<html>" * 100)
    assert "is not a readable Parquet file" in mistakes(tmp_path / "page.parquet")
    long = parquet_file(tmp_path / "long.parquet", input=["a" * 10_000_001])
    assert "is longer than 10,000,000 characters" in mistakes(long)
    again = pa.DictionaryArray.from_arrays(pa.array([0] * 64, pa.int32()), ["a" * 12_000_000])
    repeated = parquet_file(tmp_path / "repeated.parquet", input=again)
    assert "repeated.parquet:1: rows are longer than 10,000,000 bytes" in mistakes(repeated)
    # 60 MB in a few kilobytes
    bomb = parquet_file(tmp_path / "bomb.parquet", id=range(60), input=["a" * 1_000_000] * 60)
    assert bomb.stat().st_size < 200_000
    monkeypatch.setattr(records, "MAX_STREAM_BYTES", 50_000_000)
    assert "bomb.parquet:49: is larger than 50,000,000 bytes, unpacked" in mistakes(bomb)
    monkeypatch.setattr(records, "MAX_STREAM_BYTES", 50_000)
    assert "bomb.parquet: is larger than 50,000 bytes, unpacked" in mistakes(bomb)
    (tmp_path / "cases.parquet.gz").write_bytes(b"")
    assert "parquet is compressed by itself" in mistakes(tmp_path / "cases.parquet.gz")


def test_the_first_sheet_of_a_workbook_is_read_by_its_header(tmp_path: Path) -> None:
    file = excel_file(
        tmp_path / "cases.xlsx",
        [],
        ["id", "input", "expected", "due", "price"],
        [1, "one", "1", datetime(2026, 1, 5), 9.5],
        [None, " ", "\t"],
        [2, "two", None, datetime(2026, 1, 5, 8, 30), None],
    )
    first, second = cases_of(file)
    assert first == {
        "id": "1",
        "input": "one",
        "expected": "1",
        "metadata": {"due": "2026-01-05", "price": 9.5},
    }
    assert "expected" not in second
    assert second["metadata"]["due"] == "2026-01-05T08:30:00"
    assert [line for line, _ in read_records(file, None, "cases.xlsx")] == [3, 5]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (["=A1&B1"], "cases.xlsx:2: input: this formula was never calculated (open it in Excel, and save it)"),
        (["#N/A"], "cases.xlsx:2: input: the cell is the error #N/A"),
        (["a", "b"], "cases.xlsx:2: has 2 cells, but the header has 1"),
    ],
)
def test_a_cell_that_holds_no_value_is_an_error_of_its_row(tmp_path: Path, row: list[Any], words: str) -> None:
    assert words in mistakes(excel_file(tmp_path / "cases.xlsx", ["input"], row))


def packed(**entries: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return file.getvalue()


def replaced(path: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    with zipfile.ZipFile(path) as archive:
        entries = {entry: archive.read(entry) for entry in archive.namelist()}
    path.write_bytes(packed(**{**entries, name: change(entries[name])}))


def test_hostile_workbooks_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_EXCEL_BYTES", 1_000_000)
    monkeypatch.setattr(records, "MAX_EXCEL_ROWS", 1_000)
    file = tmp_path / "cases.xlsx"
    file.write_bytes(packed(bomb=bytes(1_500_000)))
    assert file.stat().st_size < 5_000
    assert "is larger than 1,000,000 bytes, unpacked (save the sheet as CSV)" in mistakes(file)
    for content in (b"<html></html>", packed(nothing=b""), b""):
        file.write_bytes(content)
        assert "Excel workbook" in mistakes(file)
    sheet = "xl/worksheets/sheet1.xml"
    excel_file(file, ["input"], ["a"])
    replaced(file, sheet, lambda text: text.replace(b'<row r="2"', b'<row r="999999999"'))
    assert "holds no test cases" in mistakes(file)
    excel_file(file, ["input"], ["a"])
    entities = b"".join(b'<!ENTITY l%d "%s">' % (level, b"&l%d;" % (level - 1) * 10) for level in range(1, 10))
    bomb = b'<!DOCTYPE worksheet [<!ENTITY l0 "lol">%s]><worksheet' % entities
    replaced(file, sheet, lambda text: text.replace(b"<worksheet", bomb, 1).replace(b"<t>a</t>", b"<t>&l9;</t>"))
    assert "is not a readable Excel workbook" in mistakes(file)


def test_recorded_outputs_are_read_from_tables_too(tmp_path: Path) -> None:
    file = parquet_file(tmp_path / "outputs.parquet", id=["a"], value=["yes"])
    assert list(read_records(file, None, "outputs.parquet")) == [(1, {"id": "a", "value": "yes"})]
