"""Reports of whatever an agent may have answered are well-formed, and harmless to whoever opens them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from jsonschema import Draft202012Validator

from fepflow.errors import InfrastructureError, UserError
from fepflow.protocol.test_case import Output
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from surfaces.reports.files import require_writable, write_report

from .conftest import NO_ANSWER, FillRun, check

NASTY = {
    "control": "bell \x07, nul \x00, escape \x1b[31m",
    "surrogate": "half a pair \ud83d",
    "noncharacter": "\uffff and \ufffe",
    "markup": ']]><!-- & "quoted" </testcase> <script>alert(1)</script>',
    "formula": "=HYPERLINK(A1)",
    "plus": "+1",
    "minus": "-1",
    "at": "@SUM(A1)",
    "tab": "\tx",
    "return": "\rx",
    "lines": 'one\n"two", three',
    "nothing": "",
    "right to left": "\u202eabc",
}


@pytest.fixture
def nasty(fill_run: FillRun) -> RunRecord:
    rows = [
        (f"{name} {text}".replace("\ud83d", ""), Output(value=text), check(False, text=text))  # an id is Unicode
        for name, text in NASTY.items()
    ]
    return fill_run(
        [
            *rows,
            ("fine", Output(value={"any": ["JSON", 1.5, None]}, metadata={"latency_ms": 20.0}), check(True)),
            ("no answer", NO_ANSWER, check(None, error="the target gave no output: no answer within 2 s")),
            ("no check", NO_ANSWER, None),
            ("not got to", None, None),
        ]
    )


def report(store: Store, run: RunRecord, folder: Path, name: str) -> Path:
    path = folder / name
    write_report(store, run, path)
    return path


def test_junit_is_well_formed_whatever_an_agent_says(store: Store, nasty: RunRecord, tmp_path: Path) -> None:
    root = ElementTree.parse(report(store, nasty, tmp_path, "r.xml")).getroot()
    suite = root.find("testsuite")
    assert suite is not None
    counts = {name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": len(NASTY) + 4, "failures": len(NASTY), "errors": 2, "skipped": 1}
    assert len(suite.findall("testcase")) == counts["tests"]
    assert len(suite.findall("testcase/failure")) == counts["failures"]
    assert len(suite.findall("testcase/error")) == counts["errors"]
    assert len(suite.findall("testcase/skipped")) == counts["skipped"]
    markup = next(case for case in suite.findall("testcase") if case.attrib["name"].startswith("markup"))
    assert NASTY["markup"] in markup.attrib["name"]


def test_junit_says_how_long_the_target_was_asked_also_where_it_gave_no_answer(
    store: Store, nasty: RunRecord, tmp_path: Path
) -> None:
    cases = ElementTree.parse(report(store, nasty, tmp_path, "r.xml")).getroot().iter("testcase")
    seconds = {case.attrib["name"]: case.attrib["time"] for case in cases}
    assert seconds["fine"] == "0.020"
    assert seconds["no answer"] == "4.500"


def test_no_cell_of_the_csv_is_a_formula(store: Store, nasty: RunRecord, tmp_path: Path) -> None:
    with report(store, nasty, tmp_path, "r.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(NASTY) + 3
    assert not [cell for row in rows for cell in row.values() if cell[:1] in ("=", "+", "-", "@", "\t", "\r")]
    assert [row["output"] for row in rows[:2]] == [r"bell \u0007, nul \u0000, escape \u001b[31m", r"half a pair \ud83d"]
    assert {row["output"] for row in rows} >= {"'=HYPERLINK(A1)", "'-1", NASTY["lines"]}


def test_a_failed_call_without_checks_has_its_row(store: Store, nasty: RunRecord, tmp_path: Path) -> None:
    with report(store, nasty, tmp_path, "r.csv").open(encoding="utf-8", newline="") as file:
        row = next(row for row in csv.DictReader(file) if row["test_case_id"] == "no check")
    assert (row["status"], row["error"]) == ("error", "no answer within 2 s")


def test_json_gives_every_answer_back_as_it_was(store: Store, nasty: RunRecord, tmp_path: Path) -> None:
    result = json.loads(report(store, nasty, tmp_path, "r.json").read_text(encoding="ascii"))
    values = [row["execution_context"]["output"]["value"] for row in result["results"]]
    assert values[: len(NASTY)] == list(NASTY.values())
    lines = report(store, nasty, tmp_path, "r.jsonl").read_text(encoding="ascii").splitlines()
    assert [json.loads(line) for line in lines] == result["results"]


def test_json_is_an_evaluation_run_result(store: Store, nasty: RunRecord, tmp_path: Path) -> None:
    schemas = Path(__file__).parents[1] / "conformance" / "fep_schemas.json"
    result = json.loads(report(store, nasty, tmp_path, "r.json").read_text(encoding="ascii"))
    Draft202012Validator(json.loads(schemas.read_text(encoding="utf-8"))).validate(result)
    assert result["metadata"]["outcome"] == "fail"
    assert result["experiment"] == {"name": "refunds", "metadata": {"tags": ["nightly"]}}


def test_a_report_that_cannot_be_written_leaves_nothing_behind(store: Store, nasty: RunRecord, tmp_path: Path) -> None:
    (tmp_path / "taken.json").mkdir()
    with pytest.raises(InfrastructureError, match=r"taken\.json cannot be written .* the run is in the store"):
        write_report(store, nasty, tmp_path / "taken.json")
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []


def test_files_that_are_there_stay_unless_one_asks(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text("mine")
    with pytest.raises(UserError, match="is there already"):
        require_writable([tmp_path / "r.json"], overwrite=False)
    require_writable([tmp_path / "r.json"], overwrite=True)
    assert (tmp_path / "r.json").read_text() == "mine"


@pytest.mark.parametrize(("name", "says"), [("r.txt", r"no report ends in \.txt"), ("no/r.json", "is no folder")])
def test_a_report_that_could_not_be_written_is_refused_beforehand(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        require_writable([tmp_path / name], overwrite=False)
