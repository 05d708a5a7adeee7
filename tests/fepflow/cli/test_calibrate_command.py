"""`fepflow calibrate` on a run that is there, and what the doors say of a judge then; nobody is called."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.records import NewCheckResult, NewOutput, RunRecord
from fepflow.store.store import Store
from tests.fepflow.conftest import Cli

SUITE = """\
name: judged
target: {recorded: {path: outputs.jsonl, id: $.id}}
test_cases: cases.jsonl
checks:
  - type: llm_judge
    id: right
    arguments:
      prompt: "Is {{$.output.value}} right?"
      response_format: {type: object, properties: {passed: {type: boolean}, score: {type: integer}}}
      model_config: {model: openai/any}
      provider_config: {api_key: "${A_KEY_THAT_IS_NOT_SET}"}
"""


@pytest.fixture
def suite(home: Path) -> Path:
    path = home / "suite.yaml"
    path.write_text(SUITE, encoding="utf-8")
    return path


@pytest.fixture
def run(home: Path, store: Store, suite: Path) -> RunRecord:
    """Forty cases, of which the judge passes c0 to c19."""
    return judged_run(store, suite, [f"c{number}" for number in range(40)])


def judged_run(store: Store, suite: Path, ids: list[str]) -> RunRecord:
    """A run of cases with these ids, of which the judge passes the first half."""
    from fepflow.documents.loader import read_document

    store.runs.create(
        RunRecord(id="cafe0001", name="judged", suite=read_document(suite).data, suite_path=str(suite), repeats=1),
        [TestCase(id=case_id, input=number) for number, case_id in enumerate(ids)],
    )
    store.leases.acquire("cafe0001", "me", 30)
    checks = []
    for case_index in range(len(ids)):
        passed = 2 * case_index < len(ids)
        response = {"passed": passed, "score": case_index % 5}
        result = CheckResult(
            check_type="llm_judge",
            status="completed",
            results={"response": response, "metadata": {}},
            evaluated_at=utc_now(),
            metadata={"check_id": "right"},
        )
        checks.append(NewCheckResult(case_index, 0, "right", "a" * 64, result, passed))
    outputs = [NewOutput(case_index, 0, "b" * 64, Output(value="x")) for case_index in range(len(ids))]
    store.results.write("cafe0001", outputs, checks)
    verdict = {"gate": "Every check must pass.", "reasons": [], "warnings": []}
    store.leases.finish("cafe0001", "me", "completed", outcome="fail", verdict=verdict, metrics=[])
    return store.runs.get("cafe0001")


def labels(home: Path, wrong: int = 0, count: int = 40) -> Path:
    """What people say: the same as the judge, but for the first so many cases."""
    rows = [f"c{number},{'yes' if (number < 20) != (number < wrong) else 'no'}" for number in range(count)]
    path = home / "labels.csv"
    path.write_text("\n".join(["id,label", *rows]), encoding="utf-8")
    return path


def test_it_reports_and_stores_how_far_judge_and_people_agree(cli: Cli, home: Path, suite: Path, run: RunRecord):
    done = cli("calibrate", suite, "--labels", labels(home, wrong=2), "--run", "cafe")
    assert (done.exit_code, done.stderr) == (0, "")
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert lines[:3] == [
        "judge right (openai/any), passed",
        "40 labels; run cafe0001",
        "All judged outputs are labelled, so the labels correct this run",
    ]
    assert lines[4].startswith("  kappa      0.9     95 % interval 0.7")
    assert lines[5].startswith("  agreement  0.95    95 % interval 0.83")
    assert lines[6].endswith("(of 18 that people pass)")
    assert lines[7].endswith("(of 22 that people fail)")
    assert [line.split() for line in lines[11:13]] == [["pass", "18", "0"], ["fail", "2", "20"]]
    shown = cli("show", "cafe").stdout
    assert "judge right (openai/any): TPR 1 and TNR 0.9" in shown
    assert "n = 40" in shown


def test_json_has_everything(cli: Cli, home: Path, suite: Path, run: RunRecord):
    done = cli("calibrate", suite, "--labels", labels(home), "--run", "cafe", "--json")
    data = json.loads(done.stdout)
    assert (data["n"], data["missing"], data["kappa"]["value"], data["matrix"]) == (40, 0, 1.0, [[20, 0], [0, 20]])
    assert (data["check"], data["member"], data["model"], data["run_id"]) == ("right", "passed", "openai/any", run.id)
    report = json.loads(cli("show", "cafe", "--json").stdout)["metadata"]["judges"]
    assert [judge["check"] for judge in report] == ["right"]
    assert report[0]["calibration"] == data


def test_reports_and_show_say_that_a_judge_is_not_calibrated(cli: Cli, store: Store, home: Path, run: RunRecord):
    from fepflow.cli.report_files import write_report

    assert "judge right (openai/any): not calibrated" in cli("show", "cafe").stdout
    (judge,) = json.loads(cli("show", "cafe", "--json").stdout)["metadata"]["judges"]
    assert judge == {"check": "right", "model": "openai/any", "samples": 1, "agreement": None, "disputed": 0,
                     "calibration": None}  # fmt: skip
    write_report(store, run, home / "results.xml")
    properties = ElementTree.parse(home / "results.xml").iter("property")
    found = {item.get("name"): item.get("value") for item in properties}
    assert found["fepflow.judge.right"] == "judge right (openai/any): not calibrated"


def test_a_judge_that_has_changed_since_is_not_calibrated_and_that_is_said(cli, home, suite: Path, run: RunRecord):
    suite.write_text(SUITE.replace("right?", "good?"), encoding="utf-8")
    done = cli("calibrate", suite, "--labels", labels(home), "--run", "cafe")
    assert done.exit_code == 0
    assert "right has changed since run cafe0001: as it is in" in done.stderr
    assert "not calibrated" not in cli("show", "cafe").stdout


@pytest.mark.parametrize(
    ("wrong", "least", "code"), [(0, "0.9", 0), (8, "0.5", 0), (8, "0.61", 1)], ids=["all", "enough", "too few"]
)
def test_a_gate_on_kappa_is_an_exit_code(cli: Cli, home: Path, suite: Path, run, wrong: int, least: str, code: int):
    done = cli("calibrate", suite, "--labels", labels(home, wrong), "--run", "cafe", "--min-kappa", least)
    assert done.exit_code == code


def test_an_undefined_kappa_does_not_pass(cli: Cli, home: Path, suite: Path, run: RunRecord):
    done = cli("calibrate", suite, "--labels", labels(home, count=20), "--run", "cafe", "--min-kappa", "0")
    assert done.exit_code == 1
    assert "kappa      none" in done.stdout
    assert ["TNR", "none", "(of", "0", "that", "people", "fail)"] in [line.split() for line in done.stdout.splitlines()]
    assert "! kappa is not defined: all labels are the same" in done.stdout


def test_mistakes_exit_with_2_and_name_file_and_line(cli: Cli, home: Path, suite: Path, run: RunRecord):
    path = labels(home)
    path.write_text("id,label\nc0,perhaps\nx9,yes\n", encoding="utf-8")
    done = cli("calibrate", suite, "--labels", path, "--run", "cafe")
    assert done.exit_code == 2
    assert f"{path}:2: the label 'perhaps' is not one of" in done.stderr
    assert f"{path}:3: there is no test case with the id 'x9'" in done.stderr
    assert (
        "no judge wrong (--check)"
        in cli("calibrate", suite, "--labels", path, "--run", "cafe", "--check", "wrong").stderr
    )
    suite.write_text(SUITE.replace("name: judged", "name: another"), encoding="utf-8")
    done = cli("calibrate", suite, "--labels", labels(home), "--run", "cafe")
    assert done.exit_code == 2
    assert "Run cafe0001 is one of the suite judged, and not of" in done.stderr


def test_without_a_run_the_suite_has_to_be_valid(cli: Cli, home: Path, suite: Path):
    done = cli("calibrate", suite, "--labels", labels(home))
    assert done.exit_code == 2
    assert "A_KEY_THAT_IS_NOT_SET" in done.stderr


def test_scores_are_compared_when_the_field_is_named(cli: Cli, home: Path, suite: Path, run: RunRecord):
    path = home / "scores.csv"
    path.write_text("id,label\n" + "".join(f"c{number},{number % 5}\n" for number in range(40)), encoding="utf-8")
    done = cli("calibrate", suite, "--labels", path, "--run", "cafe", "--field", "score")
    assert done.exit_code == 0
    assert "(quadratic weights)" in done.stdout
    assert "TPR" not in done.stdout
    assert "kappa of score 1 with people" in cli("show", "cafe").stdout


def draw(cli: Cli, suite: Path, sheet: Path, *more: str):
    return cli("calibrate", suite, "--run", "cafe", "--labels", sheet, "--sample", "10", *more)


def fill_in(sheet: Path, label) -> None:
    """As a person does, with a spreadsheet."""
    rows = list(csv.reader(sheet.read_text(encoding="utf-8-sig").splitlines()))
    column = rows[0].index("label")
    filled = [[*row[:column], label(row[0]), *row[column + 1 :]] for row in rows[1:]]
    with sheet.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([rows[0], *filled])


def test_outputs_are_drawn_at_random_for_people_to_label(
    cli: Cli, home: Path, suite: Path, run: RunRecord, store: Store
):
    sheet = home / "sheet.csv"
    done = draw(cli, suite, sheet, "--seed", "7")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"{sheet}: 10 outputs of run cafe0001, drawn at random (seed 7) from those that the judge passed and "
        "from those that it failed. Fill in each label, yes or no; then:",
        f"  fepflow calibrate {suite} --run cafe0001 --labels {sheet}",
    ]
    rows = list(csv.DictReader(sheet.read_text(encoding="utf-8-sig").splitlines()))
    assert list(rows[0]) == ["id", "label", "check", "input", "expected", "output"], "and not what the judge said"
    (remembered,) = store.labels.draws(run.id, "right")
    assert (remembered.seed, remembered.case_ids) == (7, [row["id"] for row in rows])
    assert rows[0]["output"] == "x"
    assert rows[0]["input"] == rows[0]["id"][1:]
    again = home / "again.jsonl"
    draw(cli, suite, again, "--seed", "7")
    assert [json.loads(line)["id"] for line in again.read_text().splitlines()] == remembered.case_ids
    other = home / "other.jsonl"
    draw(cli, suite, other)
    assert len(other.read_text().splitlines()) == 10


def test_labels_of_a_draw_correct_the_run_that_they_are_from(cli: Cli, home: Path, suite: Path, run: RunRecord):
    sheet = home / "sheet.csv"
    draw(cli, suite, sheet, "--seed", "7")
    assert f"{sheet}:" in cli("calibrate", suite, "--labels", sheet, "--run", "cafe").stderr, "no label yet"
    fill_in(sheet, lambda case_id: "yes" if int(case_id[1:]) < 15 else "no")
    done = cli("calibrate", suite, "--labels", sheet, "--run", "cafe")
    chosen = "drawn from those that the judge passed and from those that it failed, so the labels correct this run"
    assert f"The outputs were {chosen} (seed 7)" in done.stdout
    data = json.loads(cli("calibrate", suite, "--labels", sheet, "--run", "cafe", "--json").stdout)
    assert data["draw"]["matrix"] == data["matrix"]
    assert data["draw"]["n"] == 10


def test_labels_of_a_part_of_a_draw_are_no_random_sample(cli: Cli, home: Path, suite: Path, run: RunRecord):
    sheet = home / "sheet.csv"
    draw(cli, suite, sheet, "--seed", "7")
    fill_in(sheet, lambda case_id: "" if case_id == "c17" or int(case_id[1:]) % 3 == 0 else "yes")
    data = json.loads(cli("calibrate", suite, "--labels", sheet, "--run", "cafe", "--json").stdout)
    assert "draw" not in data
    assert any("of the 10 cases that were drawn at random have no label" in warning for warning in data["warnings"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "Give people's labels (--labels FILE), or the run that they labelled (--run RUN)"),
        (["--sample", "10", "--run", "cafe"], "--sample writes the outputs to a file, to be labelled: name it"),
        (["--sample", "10", "--labels", "new.csv"], "--sample is of the outputs of a run"),
        (["--seed", "1", "--labels", "new.csv", "--run", "cafe"], "--seed is the seed of --sample"),
        (["--sample", "10", "--labels", "suite.yaml", "--run", "cafe"], "suite.yaml already exists"),
        (["--sample", "10", "--labels", "new.xlsx", "--run", "cafe"], "a file of labels is written as .csv or .jsonl"),
        (["--sample", "10", "--labels", "no/such/new.csv", "--run", "cafe"], "cannot be written"),
        (["--sample", "10", "--labels", "new.csv", "--run", "cafe", "--check", "other"], "There is no judge other"),
    ],
)
def test_mistakes_in_a_draw_are_named(cli: Cli, home: Path, suite: Path, run: RunRecord, options, says: str):
    done = cli("calibrate", suite, *options)
    assert done.exit_code == 2
    assert says in done.stderr


def test_a_gate_on_one_call_of_one_model_is_warned_of_until_labels_are_compared(
    cli: Cli, home: Path, suite: Path, run: RunRecord, monkeypatch
):
    monkeypatch.setenv("A_KEY_THAT_IS_NOT_SET", "abcdefgh")
    (home / "cases.jsonl").write_text("".join(f'{{"id": "c{n}", "input": {n}}}\n' for n in range(40)), encoding="utf-8")
    (home / "outputs.jsonl").write_text(
        "".join(f'{{"id": "c{n}", "value": "x"}}\n' for n in range(40)), encoding="utf-8"
    )
    warning = "the gate rests on one call of one model"
    suite.write_text(SUITE + "gate: {min: {right: 0.5}}\n", encoding="utf-8")
    assert warning in cli("validate", suite).stderr
    suite.write_text(SUITE + "gate: {min: {right: 0.5}}\njudge: {samples: 3}\n", encoding="utf-8")
    assert warning not in cli("validate", suite).stderr
    suite.write_text(SUITE + "gate: {min: {right: 0.5}}\n", encoding="utf-8")
    cli("calibrate", suite, "--labels", labels(home, wrong=2), "--run", "cafe")
    assert warning not in cli("validate", suite).stderr


def test_a_gate_that_corrects_a_judge_wants_it_calibrated(
    cli: Cli, home: Path, suite: Path, run: RunRecord, monkeypatch
):
    monkeypatch.setenv("A_KEY_THAT_IS_NOT_SET", "abcdefgh")
    (home / "cases.jsonl").write_text("".join(f'{{"id": "c{n}", "input": {n}}}\n' for n in range(40)), encoding="utf-8")
    (home / "outputs.jsonl").write_text(
        "".join(f'{{"id": "c{n}", "value": "x"}}\n' for n in range(40)), encoding="utf-8"
    )
    suite.write_text(SUITE + "gate: {min: {right: 0.5}, judge: corrected}\n", encoding="utf-8")
    before = cli("validate", suite)
    assert before.exit_code == 0
    assert "gate.judge: the errors of right are not known, so its passes show nothing (fepflow cal" in before.stderr
    cli("calibrate", suite, "--labels", labels(home, wrong=2), "--run", "cafe")
    assert "gate.judge" not in cli("validate", suite).stderr
    without = SUITE[: SUITE.index("checks:")] + "checks: [{type: is_empty, arguments: {value: $.output.value}}]\n"
    suite.write_text(without + "gate: {judge: corrected}\n", encoding="utf-8")
    done = cli("validate", suite)
    assert done.exit_code == 2
    assert "gate.judge: the suite has no judge to correct (remove it)" in done.stderr


def test_a_judge_that_is_the_model_which_the_target_asks_is_warned_of(cli: Cli, home: Path, suite: Path):
    target = "target: {http: {url: 'http://127.0.0.1:9/', body: {model: any, q: $.test_case.input}}}"
    written = SUITE.replace("target: {recorded: {path: outputs.jsonl, id: $.id}}", target)
    suite.write_text(written.replace("test_cases: cases.jsonl", "test_cases: [{id: a, input: b}]"), encoding="utf-8")
    printed = " ".join(cli("validate", suite).output.split())
    assert "checks[0]: right: its judge is the agent's own model (any), and models tend to favour their own" in printed
    assert "(let another model judge, or see by people's labels how far it errs (fepflow calibrate))" in printed
