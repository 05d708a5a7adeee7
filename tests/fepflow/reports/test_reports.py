"""Reports of whatever an agent may have answered are well-formed, and harmless to whoever opens them."""

from __future__ import annotations

import csv
import json
import os
import tracemalloc
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from jsonschema import Draft202012Validator

from fepflow.cli.report_files import require_writable, write_report
from fepflow.errors import InfrastructureError, UserError
from fepflow.protocol.test_case import Output, TestCase
from fepflow.reports.comparison import output_texts
from fepflow.reports.tables import CSV_COLUMNS
from fepflow.settings import settings
from fepflow.store.records import NewOutput, RunRecord
from fepflow.store.store import Store
from tests.fepflow.conftest import NASTY, NO_ANSWER, FillRun, check


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


def test_outputs_of_compared_cases_are_cut_and_not_all_in_memory(fill_run: FillRun, store: Store) -> None:
    run = fill_run([(str(n), Output(value="x" * 500_000), check(True)) for n in range(50)])
    tracemalloc.start()
    texts = output_texts(store, run.id, range(50))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert {text[98_999:] for text in texts} == {"x… (500,000 characters)"}
    assert most < 24_000_000, "all of them take 25 MB, and their JSON as much again"


def table(store: Store, run: RunRecord, folder: Path) -> list[dict[str, str]]:
    with report(store, run, folder, "r.csv").open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def test_no_cell_of_the_csv_is_a_formula(store: Store, nasty: RunRecord, tmp_path: Path) -> None:
    rows = table(store, nasty, tmp_path)
    assert len(rows) == len(NASTY) + 4
    cells = [cell.lstrip(" \ufeff\u200b") for row in rows for cell in row.values()]
    assert not [cell for cell in cells if cell[:1] in ("=", "+", "-", "@", "\t", "\r", "\n", "＝")]
    assert [row["output"] for row in rows[:2]] == [r"bell \u0007, nul \u0000, escape \u001b[31m", r"half a pair \ud83d"]
    assert {row["output"] for row in rows} >= {"'=HYPERLINK(A1)", "'-1", "'\n=1+1", "'＝1+1", NASTY["lines"]}


def test_a_csv_has_input_and_reason(store: Store, fill_run: FillRun, tmp_path: Path) -> None:
    answer = Output(value={"text": "no"}, metadata={"latency_ms": 20.5, "attempts": 2, "tokens": 7, "attempt_log": []})
    rows = table(
        store,
        fill_run(
            [
                ("wrong", answer, check(False, text="no", phrases="yes")),
                ("right", Output(value="yes"), check(True)),
                ("no answer", NO_ANSWER, None),
                ("not got to", None, None),
            ]
        ),
        tmp_path,
    )
    assert list(rows[0]) == list(CSV_COLUMNS)
    assert rows[0] == {
        **dict.fromkeys(CSV_COLUMNS, ""),
        "test_case_id": "wrong",
        "repeat": "1",
        "check_id": "says_so",
        "check_type": "contains",
        "status": "completed",
        "passed": "false",
        "reason": '"yes" is not in: "no"',
        "input": "input of wrong",
        "expected": "yes",
        "output": '{"text": "no"}',
        "output_metadata": '{"tokens": 7}',
        "latency_ms": "20.5",
        "attempts": "2",
    }
    assert (rows[1]["passed"], rows[1]["reason"], rows[1]["metadata"]) == ("true", "", "")
    assert (rows[2]["status"], rows[2]["error"], rows[2]["output"]) == ("error", "no answer within 2 s", "")
    assert (rows[2]["latency_ms"], rows[2]["attempts"]) == ("2500.0", "2")
    assert (rows[3]["status"], rows[3]["reason"]) == ("skip", "the run did not get to it")


def test_excel_knows_the_encoding_and_takes_every_cell(store: Store, fill_run: FillRun, tmp_path: Path) -> None:
    run = fill_run([("grüße", Output(value="ü" * 50_000), check(True))])
    path = report(store, run, tmp_path, "r.csv")
    assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    assert max(len(cell) for row in table(store, run, tmp_path) for cell in row.values()) <= 32_767


def test_a_lone_surrogate_in_a_key_is_written(store: Store, fill_run: FillRun, tmp_path: Path) -> None:
    run = fill_run([("a", Output(value={"half \ud83d": ["\udc00"]}), check(False, text={"\ud83d": 1}))])
    for name in ("r.json", "r.jsonl", "r.csv", "r.xml"):
        assert report(store, run, tmp_path, name).stat().st_size > 0
    result = json.loads((tmp_path / "r.json").read_text(encoding="ascii"))
    assert result["results"][0]["execution_context"]["output"]["value"] == {"half \ud83d": ["\udc00"]}


def test_json_gives_every_answer_back_as_it_was(store: Store, nasty: RunRecord, tmp_path: Path) -> None:
    result = json.loads(report(store, nasty, tmp_path, "r.json").read_text(encoding="ascii"))
    values = [row["execution_context"]["output"]["value"] for row in result["results"]]
    assert values[: len(NASTY)] == list(NASTY.values())
    lines = report(store, nasty, tmp_path, "r.jsonl").read_text(encoding="ascii").splitlines()
    assert [json.loads(line) for line in lines] == result["results"]


def test_json_is_an_evaluation_run_result(store: Store, nasty: RunRecord, tmp_path: Path) -> None:
    schemas = Path(__file__).parents[2] / "conformance" / "fep_schemas.json"
    result = json.loads(report(store, nasty, tmp_path, "r.json").read_text(encoding="ascii"))
    Draft202012Validator(json.loads(schemas.read_text(encoding="utf-8"))).validate(result)
    assert result["metadata"]["outcome"] == "fail"
    assert result["experiment"] == {"name": "refunds", "metadata": {"tags": ["nightly"]}}


def test_an_ended_run_is_completed_whatever_its_results(store: Store, nasty: RunRecord, tmp_path: Path) -> None:
    result = json.loads(report(store, nasty, tmp_path, "r.json").read_text(encoding="ascii"))
    assert result["status"] == "completed"
    assert result["summary"]["error_test_cases"] == 1


def test_a_report_that_cannot_be_written_leaves_nothing_behind(store: Store, nasty: RunRecord, tmp_path: Path) -> None:
    (tmp_path / "taken.json").mkdir()
    with pytest.raises(InfrastructureError, match=r"taken\.json cannot be written: .* the run is in the store"):
        write_report(store, nasty, tmp_path / "taken.json")
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []


def test_reports_hold_a_large_output_whole_and_are_not_written_while_its_blob_is_away(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEPFLOW_BLOBS", (home / "blobs").as_uri())
    settings.cache_clear()
    large = "x" * 300_000
    with Store.open(settings().store_address) as store:
        new = RunRecord(id="1234", name="large", suite={"checks": []}, repeats=1)
        output = NewOutput(0, 0, "a" * 64, Output(value=large))
        store.runs.add_completed(new, [TestCase(id="a", input=1)], [output], [], outcome="pass", metrics=[], verdict={})
        run = store.runs.get("1234")
        for name in ("r.json", "r.jsonl", "r.csv"):
            assert large[:30_000] in report(store, run, home, name).read_text(encoding="utf-8")
        assert pq.read_table(report(store, run, home, "r.parquet")).column("output").to_pylist() == [large]
        (home / "blobs").rename(home / "away")
        for kind in ("json", "jsonl", "csv", "parquet"):
            with pytest.raises(
                InfrastructureError, match=r"written: file:.* \(the folder is not there\): look at .*; the"
            ):
                write_report(store, run, home / f"no.{kind}")
    assert [path.name for path in home.iterdir() if path.name.endswith((".part", "no.json"))] == []


def test_a_report_is_private_and_follows_no_symlink(store: Store, nasty: RunRecord, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / ".r.json.part").symlink_to(victim)
    (tmp_path / "link.json").symlink_to(victim)
    assert report(store, nasty, tmp_path, "r.json").stat().st_mode & 0o777 == 0o600
    report(store, nasty, tmp_path, "link.json")
    assert victim.read_text() == "mine"
    (tmp_path / "r.json").chmod(0o640)
    assert report(store, nasty, tmp_path, "r.json").stat().st_mode & 0o777 == 0o640


def test_existing_files_are_overwritten_only_on_request(tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text("mine")
    with pytest.raises(UserError, match="already exists"):
        require_writable([tmp_path / "r.json"], overwrite=False)
    require_writable([tmp_path / "r.json"], overwrite=True)
    assert (tmp_path / "r.json").read_text() == "mine"


def location(kind: str, folder: Path) -> Path:
    """A path at which no report can be."""
    path = folder / {"long": "x" * 300, "capital": "R"}.get(kind, kind)
    path = path.with_name(path.name + ".json")
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        (folder / "a").symlink_to(folder / "b")
        (folder / "b").symlink_to(folder / "a")
        path = folder / "a" / "r.json"
    elif kind == "file":
        (folder / "file").write_text("")
        path = folder / "file" / "r.json"
    return path


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("folder", "is a folder: name a file in it"),
        ("pipe", "is not a regular file"),
        ("loop", "cannot be written|is not a folder"),
        ("long", "cannot be written: File name too long"),
        ("file", "is not a folder"),
        ("half \udc80", None),
        ("capital", None),
    ],
)
def test_unusual_paths_are_written_or_refused(
    store: Store, nasty: RunRecord, tmp_path: Path, kind: str, says: str | None
) -> None:
    path = location(kind, tmp_path)
    if says is None:
        require_writable([path.with_suffix(".JSON")], overwrite=True)
        write_report(store, nasty, path.with_suffix(".JSON"))
        assert path.with_suffix(".JSON").exists()
    else:
        with pytest.raises(UserError, match=says):
            require_writable([path], overwrite=True)


def test_two_reports_in_one_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is named twice"):
        require_writable([tmp_path / "r.json", tmp_path / "r.json"], overwrite=True)


@pytest.mark.parametrize(("name", "says"), [("r.txt", r"no report ends in \.txt"), ("no/r.json", "is not a folder")])
def test_a_report_that_could_not_be_written_is_refused_beforehand(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        require_writable([tmp_path / name], overwrite=False)
