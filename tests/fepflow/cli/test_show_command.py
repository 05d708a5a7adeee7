"""`fepflow list` and `fepflow show`: runs as the store has them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fepflow.cli.console import Console
from fepflow.cli.runs import print_end
from fepflow.protocol.test_case import Output, TestCase
from fepflow.services.run_service import Finished
from fepflow.settings import settings
from fepflow.store.records import NewCheckResult, NewOutput, RunRecord
from fepflow.store.store import Store
from tests.fepflow.conftest import BROKE_OFF, NO_ANSWER, Cli, FillRun, check


def test_list_and_show_print_the_stored_runs(cli: Cli, fill_run: FillRun) -> None:
    run = fill_run(
        [
            ("good", Output(value="yes"), check(True)),
            ("bad [bold]", Output(value="\x1b[31mno"), check(False, text="no")),
            ("silent", NO_ANSWER, check(None, error="the target gave no output")),
        ]
    )
    assert run.id[:8] in cli("list").stdout
    (line,) = [json.loads(line) for line in cli("list", "--json").stdout.splitlines()]
    assert (line["id"], line["outcome"], line["cases"]) == (run.id, "fail", 3)

    shown = cli("show", run.id[:6], "--failed").stdout
    assert "FAIL" in shown
    assert "good" not in shown
    assert "bad [bold]" in shown, "what others wrote is no markup"
    assert r"\u001b[31mno" in shown, "and no control sequence"
    assert "no answer within 2 s" in shown
    assert "good" in cli("show", "--case", "good").stdout
    assert json.loads(cli("show", "--json").stdout)["evaluation_id"] == run.id


def test_show_writes_reports_and_leaves_the_pager_out(
    cli: Cli, fill_run: FillRun, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = fill_run([("bad", Output(value="no"), check(False))])
    assert cli("show", "--output", "report.json").exit_code == 0
    assert json.loads((home / "report.json").read_text(encoding="utf-8"))["evaluation_id"] == run.id
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("PAGER", "false")
    assert "bad" in cli("show", "--failed", "--no-pager").stdout


def test_a_verdict_is_shown_beside_its_baseline(cli: Cli, fill_run: FillRun) -> None:
    counts = {"n_expected": 1, "n_completed": 1, "n_error": 0, "n_skipped": 0}
    metric = {"id": "says_so", "value": 0.25, "low": 0.1, "high": 0.4, **counts}
    change = {"id": "says_so", "value": 0.25, "baseline": 0.75, "difference": -0.5}
    baseline = {"run_id": "cafe1234" * 4, "outcome": "pass", "worsened": True, "metrics": [change]}
    verdict = {"gate": "Every check must pass.", "reasons": ["because"], "warnings": [], "baseline": baseline}
    fill_run([("bad", Output(value="no"), check(False))], verdict=verdict, metrics=[metric])
    shown = cli("show").stdout
    assert "baseline: pass in run cafe1234: the outcome has worsened" in shown
    (row,) = (line.split() for line in shown.splitlines() if line.startswith("says_so") and "0.25" in line)
    assert row[-2:] == ["0.75", "-0.5"]
    assert json.loads(cli("show", "--json").stdout)["metadata"]["verdict"]["baseline"] == baseline


def test_slices_are_a_table(cli: Cli, fill_run: FillRun) -> None:
    counts = {"n_expected": 9, "n_completed": 8, "n_error": 1, "n_skipped": 0}
    figures = {"metric": "acc", "by": "[topic]", "value": 0.25, "low": 0.1, "high": 0.4, **counts}
    slices = [{**figures, "slice": f"t{n}", "threshold": 0.5, "outcome": "fail"} for n in range(30)]
    slices.append({**figures, "slice": "small"})
    verdict = {"gate": "x", "reasons": ["because"], "slices": slices}
    fill_run([("bad", Output(value="no"), check(False))], verdict=verdict)
    shown = cli("show").stdout
    assert "[topic]" in shown
    (row,) = (line.split() for line in shown.splitlines() if line.startswith("t29"))
    assert row == ["t29", "acc", "0.25", "0.1", "to", "0.4", "8", "of", "9", "1", "0.5", "fail"]
    assert "small" not in shown
    assert "... and 1 more (--json)" in shown
    fill_run([("bad", Output(value="no"), check(False))], verdict={**verdict, "slices": slices[-1:]})
    (row,) = (line.split() for line in cli("show").stdout.splitlines() if line.startswith("small"))
    assert row[-2:] == ["·", "·"]
    fill_run(
        [("bad", Output(value="no"), check(False))], verdict={**verdict, "slices": [{**slices[-1], "shrunk": 0.31}]}
    )
    assert " shrunk" in cli("show").stdout
    assert "0.31" in cli("show").stdout


def test_a_share_by_a_judge_is_shown_corrected(cli: Cli, fill_run: FillRun) -> None:
    counts = {"n_expected": 1, "n_completed": 1, "n_error": 0, "n_skipped": 0}
    metric = {"id": "judged", "value": 0.9, "low": 0.8, "high": 0.95, **counts}
    corrected = {"value": 0.8, "low": 0.7, "high": 0.85, "method": "mover"}
    metrics = [
        {**metric, "corrected": corrected},
        {**metric, "id": "other"},
        {**metric, "id": "chance", "corrected": {}},
    ]
    fill_run([("bad", Output(value="no"), check(False))], metrics=metrics)
    shown = cli("show").stdout
    assert "corrected for the judge" in shown
    rows = {line.split()[0]: line.split() for line in shown.splitlines() if "0.95" in line}
    assert rows["judged"][-4:] == ["0.8", "(0.7", "to", "0.85)"]
    assert rows["other"][-1] == rows["chance"][-1] == "·"


def test_a_run_without_a_verdict_shows_what_is_there(cli: Cli, store: Store) -> None:
    says_so = {"id": "says_so", "type": "contains", "arguments": {"text": "$.output.value", "phrases": ["yes"]}}
    suite = {"name": "stopped", "checks": [says_so]}
    cases = [TestCase(id="good", input=1), TestCase(id="later", input=2)]
    store.runs.create(RunRecord(id="abcd1234", name="stopped", suite=suite, repeats=1), cases)
    store.leases.acquire("abcd1234", "me", 60)
    result = check(True)
    store.results.write(
        "abcd1234",
        [NewOutput(0, 0, "a" * 64, Output(value="yes"))],
        [NewCheckResult(0, 0, "says_so", "b" * 64, result, True)],
    )
    under_way = cli("show").stdout
    assert " s so far" in under_way
    assert "1 of 2 calls" in under_way
    assert "RUNNING  no verdict yet, the numbers are of what is there" in under_way

    store.leases.finish("abcd1234", "me", "cancelled")
    shown = cli("show").stdout
    assert "CANCELLED  no verdict yet, the numbers are of what is there" in shown
    (row,) = (line for line in shown.splitlines() if line.startswith("says_so") and " of 2 " in line)
    assert "0.09453 to 1" in row, "what is missing may fail"


def test_a_run_whose_process_has_gone_is_listed_as_interrupted(cli: Cli, store: Store) -> None:
    store.runs.create(RunRecord(id="abcd1234", name="gone", suite={}, repeats=1), [])
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        owner = f"{os.uname().nodename}/{process.pid}/x"
        store.leases.acquire("abcd1234", owner, 1000)
        assert "running" in cli("list").stdout
        process.kill()
    assert "interrupted" in cli("list").stdout
    assert "fepflow run --resume abcd1234" in cli("show", "abcd").stdout


def test_show_has_the_steps_of_a_scenario_that_broke_off_and_what_was_found_in_them(
    cli: Cli, fill_run: FillRun
) -> None:
    fill_run([("broken", BROKE_OFF, check(False, text="one")), ("fine", Output(value="yes"), check(True))])
    shown = cli("show", "latest", "--failed").output
    assert "broke off step 2 of 2: the agent exited with code 1" in shown
    assert 'output    {"steps": [{"public_output": "one"}]}' in shown
    assert "  failed    says_so" in shown
    assert "fine" not in shown.partition("broke off")[2]


def test_the_end_of_a_run_has_the_address_of_its_page(
    store: Store, fill_run: FillRun, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    finished = Finished(fill_run([("bad", Output(value="no"), check(False))]), None)
    print_end(Console(), store, finished, ())
    assert "  page " not in capsys.readouterr().out
    monkeypatch.setenv("FEPFLOW_PAGES_URL", "https://eval.example.org")
    settings.cache_clear()
    print_end(Console(), store, finished, ())
    assert f"\n  page       https://eval.example.org/runs/{finished.run.id}\n" in capsys.readouterr().out
