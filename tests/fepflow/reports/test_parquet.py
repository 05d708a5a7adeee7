"""`-o results.parquet`: what pyarrow reads of it, whatever agents have answered."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

import fepflow.reports.tables as report
from fepflow.cli.report_files import write_report
from fepflow.protocol.results import COLUMNS
from fepflow.protocol.test_case import Output, TestCase
from fepflow.python_api import load_run
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from tests.fepflow.conftest import NASTY, NO_ANSWER, Cli, FillRun, check

FILE = "results.parquet"


def read(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    return rows


@pytest.fixture
def run(fill_run: FillRun) -> RunRecord:
    return fill_run(
        [
            ("good", Output(value="yes", metadata={"latency_ms": 20.5, "attempts": 1}), check(True)),
            ("bad", Output(value={"a": 1}), check(False)),
            ("silent", NO_ANSWER, check(None, error="the target gave no output")),
            ("unchecked", NO_ANSWER, None),
            ("not got to", None, None),
        ]
    )


def test_each_check_is_a_row_and_nothing_that_was_expected_vanishes(cli: Cli, run: RunRecord, home: Path) -> None:
    done = cli("show", "--output", FILE)
    assert (done.exit_code, done.stderr) == (0, "")
    rows = read(home / FILE)
    assert [list(row) for row in rows] == [list(COLUMNS)] * 5
    assert {(row["run_id"], row["suite"], row["repeat"]) for row in rows} == {(run.id, "refunds", 1)}
    assert [(row["case_index"], row["case_id"]) for row in rows] == list(
        enumerate(["good", "bad", "silent", "unchecked", "not got to"])
    )
    assert [row["status"] for row in rows] == ["completed", "completed", "error", None, None]
    assert [row["passed"] for row in rows] == [True, False, None, None, None]
    assert [row["output"] for row in rows] == ["yes", '{"a": 1}', None, None, None]
    silent = "no answer within 2 s"
    assert [row["output_error"] for row in rows] == [None, None, silent, silent, "the run did not get to it"]
    assert (rows[2]["error_type"], rows[2]["error_message"]) == ("timeout_error", "the target gave no output")
    assert [(row["latency_ms"], row["attempts"]) for row in rows[:3]] == [(20.5, 1), (None, None), (2500.0, 2)]
    assert (rows[0]["input"], rows[0]["expected"], rows[0]["results"]) == ("input of good", "yes", '{"passed": true}')
    assert (home / FILE).stat().st_mode & 0o777 == 0o600


def test_python_has_the_same_rows(store: Store, run: RunRecord, home: Path) -> None:
    write_report(store, run, home / FILE)
    frame = load_run(run.id).to_dataframe()
    written = parquet.read_table(home / FILE).to_pandas().astype(frame.dtypes.to_dict())
    import pandas

    pandas.testing.assert_frame_equal(frame, written)
    assert frame["case_id"].tolist()[-1] == "not got to"


def test_the_results_of_a_run_answer_as_the_run_does(run: RunRecord) -> None:
    loaded = load_run(run.id)
    results = loaded.results
    import pandas

    pandas.testing.assert_frame_equal(results.to_dataframe(), loaded.to_dataframe())
    assert results.pass_rate == loaded.pass_rate
    assert [result.execution_context.test_case.id for result in results] == [
        result.execution_context.test_case.id for result in results
    ]
    assert results.failed == loaded.failed
    assert len(results.failed) > 0


def test_a_metric_without_a_value_has_none_in_python(fill_run: FillRun) -> None:
    run = fill_run([("a", Output(value="x"), None)], metrics=[{"id": "known", "value": 0.5}, {"id": "unknown"}])
    assert load_run(run.id).metrics == {"known": 0.5, "unknown": None}


def test_whatever_an_agent_says_is_in_the_file(store: Store, fill_run: FillRun, home: Path) -> None:
    odd: list[Any] = [*NASTY.values(), [math.nan, -math.inf], 2**64, {"half \ud83d": "\x00"}, {"n": -(2**200)}]
    run = fill_run([(f"case {n}", Output(value=value), check(False, text=value)) for n, value in enumerate(odd)])
    write_report(store, run, home / FILE)
    outputs = [row["output"] for row in read(home / FILE)]
    assert outputs[: len(NASTY)] == [text.replace("\ud83d", "\\ud83d") for text in NASTY.values()]
    assert [json.loads(text) for text in outputs[len(NASTY) :]] == [["NaN", "-Infinity"], *odd[-3:]]


def test_it_is_written_in_groups_of_rows(
    store: Store, run: RunRecord, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_report(store, run, home / FILE)
    whole = read(home / FILE)
    for name, limit, groups in (("MAX_ROWS", 2, 3), ("MAX_CHARACTERS", 1, 5)):
        with monkeypatch.context() as smaller:
            smaller.setattr(report, name, limit)
            write_report(store, run, home / FILE)
        assert parquet.ParquetFile(home / FILE).num_row_groups == groups
        assert read(home / FILE) == whole


def test_a_run_without_cases_is_a_table_without_rows(store: Store, home: Path) -> None:
    store.runs.create(RunRecord(id="a" * 32, name="s", suite={"name": "s"}, repeats=1), [])
    write_report(store, store.runs.get("aaaa"), home / FILE)
    table = parquet.read_table(home / FILE)
    assert (table.num_rows, table.column_names) == (0, list(COLUMNS))
    assert table.schema.field("passed").type == "bool"


def test_a_run_that_has_only_begun_has_all_its_rows(store: Store, home: Path) -> None:
    store.runs.create(
        RunRecord(id="a" * 32, name="s", suite={"name": "s"}, repeats=2), [TestCase(id=i, input=i) for i in "xy"]
    )
    write_report(store, store.runs.get("aaaa"), home / FILE)
    assert [(row["case_id"], row["repeat"]) for row in read(home / FILE)] == [("x", 1), ("x", 2), ("y", 1), ("y", 2)]


@pytest.mark.parametrize("command", [["run", "suite.yaml", "-o", FILE], ["show", "-o", FILE]])
def test_without_pyarrow_it_is_said_before_anything_runs(
    command: list[str], cli: Cli, run: RunRecord, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    done = cli(*command)
    assert done.exit_code == 2
    advice = 'pip install "fepflow[dataframe]"'
    assert done.stderr.strip() == f"error: {FILE} needs pyarrow, which is not installed here: {advice}"
    assert [path.name for path in home.iterdir()] == ["home"]


@pytest.mark.battery
def test_nothing_loads_pandas_or_pyarrow_unless_asked() -> None:
    code = "import sys, fepflow.python_api, fepflow.cli.report_files; print({'pandas', 'pyarrow'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
