"""`fepflow trends`: the metrics of a suite over its runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fepflow.analysis.drift import MOST_RUNS, Series, series_of
from fepflow.cli.comparisons import sparkline
from fepflow.protocol.test_case import TestCase
from fepflow.settings import settings
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from tests.fepflow.conftest import Cli

Fill = Callable[..., str]


@pytest.fixture
def fill(store: Store) -> Fill:
    """Stores runs of 50 cases that came to so many passes, in order; the id of the last."""

    def make(passes: Sequence[int | None], suite: dict[str, Any] | None = None, **fields: Any) -> str:
        run_id, completed = "", fields.pop("n_completed", 50)
        for passed in passes:
            run_id = f"{len(store.runs.newest(1000)):08x}feedbeef"
            new: dict[str, Any] = {"suite_hash": "a", "cause": "schedule", **fields}
            store.runs.create(
                RunRecord(id=run_id, name="s", suite={"name": "s", **(suite or {})}, repeats=1, **new),
                [TestCase(id="1", input=1)],
            )
            store.leases.acquire(run_id, "me", 30)
            value = None if passed is None else passed / 50
            metric = {"id": "acc", "check": "c", "value": value, "low": 0.1, "high": 1.0, "method": "wilson",
                      "n_completed": completed, "n_expected": 50}  # fmt: skip
            store.leases.finish(run_id, "me", "completed", outcome="inconclusive", verdict={}, metrics=[metric])
        return run_id

    return make


def series_in(store: Store, run_id: str) -> list[Series]:
    run = store.runs.get(run_id)
    return series_of(run, store.runs.alike(run, MOST_RUNS))


def test_a_share_that_falls_below_the_gates_minimum_drifts(cli: Cli, fill: Fill, store: Store) -> None:
    last = fill([47, 46, 41, 40, 42], {"gate": {"min": {"acc": 0.92}}})
    done = cli("trends", "s")
    assert (done.exit_code, done.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[0] == "s 5 runs"
    assert lines[3] == "acc 0.94 0.84 █▇▂▁▃ · 0.92 911"
    assert lines[4] == (
        "DRIFT acc has drifted: 0.84 in this run, against the rate of 0.92 by the gate. The last runs are 911 times as "
        "likely if the rate has fallen to 0.86 as if it has not; the alarm is at 365 times."
    )
    (series,) = series_in(store, last)
    assert series.has_drifted
    (before,) = series_in(store, "00000003feedbeef")
    assert (len(before.points), before.has_drifted) == (4, False)


def test_without_a_minimum_the_first_ten_runs_agree_a_rate(cli: Cli, fill: Fill) -> None:
    fill([46] * 10)
    (series,) = [json.loads(line) for line in cli("trends", "s", "--json").stdout.splitlines()]
    assert (series["rate"], series["agreed_by"]) == (pytest.approx(0.90304, abs=1e-5), "runs")
    assert (series["trend"], series["has_drifted"]) == ({"s": 0, "p": 1.0}, False)
    fill([38, 38])
    (series,) = [json.loads(line) for line in cli("trends", "s", "--json").stdout.splitlines()]
    assert series["has_drifted"]
    assert [run["log_evidence"] is None for run in series["runs"]] == [True] * 10 + [False] * 2
    assert "falling (p 0.0" in cli("trends", "s").stdout


def test_a_fall_that_stays_above_the_gates_minimum_drifts_from_what_ten_runs_have_shown(cli: Cli, fill: Fill) -> None:
    fill([48, 49] * 5 + [45, 46, 45, 45], {"gate": {"min": {"acc": 0.9}}})
    done = cli("trends", "s")
    assert "DRIFT" not in done.stdout
    assert "The last runs are 203 times as likely if the rate has fallen to 0.899" in done.stdout
    fill([45], {"gate": {"min": {"acc": 0.9}}})
    lines = [line for line in cli("trends", "s").stdout.splitlines() if line.startswith("DRIFT")]
    assert [line.split(". The")[0] for line in lines] == [
        "DRIFT  acc has drifted: 0.9 in this run, against the rate of 0.9586 by the first 10 runs"
    ]


def test_one_metric_is_shown_run_by_run(cli: Cli, fill: Fill) -> None:
    fill([47, None, 40], {"gate": {"min": {"acc": 0.92}}})
    rows = [line.split() for line in cli("trends", "s", "acc").stdout.splitlines()[3:]]
    assert [(row[0], row[3]) for row in rows[:2]] == [("00000000", "0.94"), ("00000002", "0.8")]
    assert " ".join(rows[2]).startswith("acc: The last runs are 18.1 times as likely if the rate has fallen to 0.86")


def test_show_has_the_trend_of_a_metric_up_to_a_run(
    cli: Cli, fill: Fill, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill([47, 46, 41, 40, 42], {"gate": {"min": {"acc": 0.92}}})
    done = cli("show", "--trend", "acc")
    assert (done.exit_code, done.stdout) == (0, cli("trends", "s").stdout)
    lines = [" ".join(line.split()) for line in cli("show", "00000002", "--trend", "acc").stdout.splitlines()]
    assert (lines[0], lines[3][:21]) == ("s 3 runs", "acc 0.94 0.82 █▇▁ · 0")
    monkeypatch.setenv("FEPFLOW_PAGES_URL", "https://eval.example.org")
    settings.cache_clear()
    assert cli("show", "--trend", "acc").stdout.endswith("\nhttps://eval.example.org/trends?suite=s\n")
    assert "s has no metric 'other': it has acc" in cli("show", "--trend", "other").stderr
    assert "leave --failed" in cli("show", "--trend", "acc", "--failed").stderr
    store.runs.create(RunRecord(id="f" * 32, name="s", suite={"name": "s"}, repeats=1), [TestCase(id="1", input=1)])
    refused = cli("show", "ffff", "--trend", "acc")
    assert (refused.exit_code, "is pending and has no verdict" in refused.stderr) == (2, True)


def test_larger_values_of_what_has_a_maximum_are_the_drift(cli: Cli, fill: Fill) -> None:
    fill([4, 9, 10, 8], {"gate": {"max": {"acc": 0.08}}})
    (line,) = [line for line in cli("trends", "s").stdout.splitlines() if "DRIFT" in line]
    assert "acc has drifted: 0.16 in this run, against the rate of 0.08 by the gate." in line
    assert "times as likely if the rate has risen to 0.14 as if it has not" in line


def test_only_like_runs_are_in_it_and_the_others_are_counted(cli: Cli, fill: Fill, home: Path) -> None:
    fill([10], suite_hash="b")
    fill([10], cause="command")
    fill([46, 47])
    assert "s  2 runs; 2 others measured something else, or were started another way" in cli("trends", "s").stdout
    assert cli("trends", "s", "--all").stdout.startswith("s  3 runs; 1 other measured something else\n")
    (home / "suite.yaml").write_text("name: s\n", encoding="utf-8")
    assert cli("trends", "suite.yaml").stdout == cli("trends", "s").stdout


def test_what_is_not_there_is_said(cli: Cli, fill: Fill) -> None:
    assert "There is no run of a suite 's' with a verdict" in cli("trends", "s").stderr
    fill([None])
    assert "No metric of s has a value" in cli("trends", "s").stderr
    fill([40])
    done = cli("trends", "s", "other")
    assert (done.exit_code, "s has no metric 'other': it has acc" in done.stderr) == (2, True)


def test_a_run_without_a_complete_case_is_no_point(cli: Cli, fill: Fill) -> None:
    fill([47, 46])
    fill([45], n_completed=0)
    (series,) = [json.loads(line) for line in cli("trends", "s", "--json").stdout.splitlines()]
    assert [point["value"] for point in series["runs"]] == [0.94, 0.92]


def test_a_sparkline_goes_from_the_least_to_the_largest() -> None:
    assert sparkline([0.0, 0.5, 1.0]) == "▁▅█"
    assert sparkline([1e308, -1e308]) == "█▁"
    assert sparkline([3.0, 3.0]) == "▄▄"
