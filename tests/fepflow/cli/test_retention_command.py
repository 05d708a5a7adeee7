"""`fepflow store prune` and `fepflow delete`: what a person is told, and what is left."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pyarrow.parquet
import pytest

from fepflow.errors import UserError
from fepflow.protocol.model import utc_now
from fepflow.protocol.test_case import TestCase
from fepflow.store.records import NewLabel, RunRecord
from fepflow.store.store import Store
from fepflow.tasks.prune import delete_runs
from tests.fepflow.cli.conftest import Ran
from tests.fepflow.conftest import Cli


@pytest.fixture
def old(store: Store) -> list[str]:
    """Three runs of 10, 20 and 30 days ago, with a verdict."""
    ids = []
    for days in (10, 20, 30):
        run = RunRecord(
            id=f"{days:08x}feedbeef",
            name="refunds",
            suite={"name": "refunds"},
            repeats=1,
            created_at=utc_now() - timedelta(days),
        )
        cases = [TestCase(id="a", input="secret"), TestCase(id="b", input="other")]
        store.runs.add_completed(run, cases, [], [], outcome="fail", metrics=[], verdict={"reasons": ["too few"]})
        ids.append(run.id)
    return ids


def left(store: Store) -> list[str]:
    return [run.id for run in store.runs.newest()]


def test_a_dry_run_names_what_would_go_and_deletes_nothing(cli: Cli, store: Store, old: list[str]) -> None:
    done = cli("store", "prune", "--keep", "15d", "--dry-run")
    assert done.exit_code == 0
    first, second, count = done.stdout.splitlines()
    assert (first[:8], second[:8], count) == (old[2][:8], old[1][:8], "2 runs would be deleted.")
    assert "fail  refunds" in first
    assert left(store) == old


def test_old_runs_go_after_they_were_archived(cli: Cli, store: Store, old: list[str], tmp_path: Path) -> None:
    done = cli(
        "store", "prune", "--keep", "5d", "--keep-last", "1", "--suite", "refunds", "--archive", tmp_path / "kept"
    )
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("Deleted 2 runs")
    assert left(store) == old[:1]
    files = sorted((tmp_path / "kept").iterdir())
    assert [file.name.rpartition("-")[2] for file in files] == [f"{old[2]}.parquet", f"{old[1]}.parquet"]
    table = pyarrow.parquet.read_table(files[0])
    assert table.column("case_id").to_pylist() == ["a", "b"]
    assert json.loads(table.schema.metadata[b"fepflow"])["verdict"] == {"reasons": ["too few"]}
    assert {path.stat().st_mode & 0o777 for path in [files[0].parent, *files]} == {0o700, 0o600}
    long = RunRecord(id="long", name="評" * 200, suite={}, repeats=1, created_at=utc_now() - timedelta(9))
    store.runs.add_completed(long, [TestCase(id="a", input=1)], [], [], outcome="fail", metrics=[], verdict={})
    done = cli("store", "prune", "--keep", "5d", "--keep-last", "0", "--suite", long.name, "--archive", tmp_path)
    assert (done.exit_code, left(store)) == (0, old[:1]), done.stderr


def test_what_stays_has_to_be_said(cli: Cli, store: Store, old: list[str]) -> None:
    assert "nowhere" in cli("store", "prune", "--keep", "1d", "--env-file", "nowhere").stderr
    done = cli("store", "prune")
    assert done.exit_code == 2
    assert "--keep 90d" in done.stderr
    assert left(store) == old


def test_runs_with_labels_go_only_if_that_is_asked(cli: Cli, store: Store, old: list[str]) -> None:
    store.labels.add(NewLabel(old[2], 0, 0, "c", "passed", True, "", "ann"))
    assert cli("store", "prune", "--keep", "25d").stdout == "Deleted 0 runs.\n"
    refused = cli("delete", old[2], "--yes")
    assert refused.exit_code == 2
    assert "1 label" in refused.stderr
    assert cli("store", "prune", "--keep", "25d", "--labels").stdout.startswith("Deleted 1 run")
    assert left(store) == old[:2]


def test_flow_runs_of_what_was_deleted_before_an_error_are_named(store: Store, old: list[str]) -> None:
    flow_runs: list[str] = []
    for number, run in enumerate(old):
        store.runs.set_flow_run(run, f"flow-run-{number}")
    runs = [store.runs.get(run) for run in old]
    store.runs.set_baseline("refunds", "main", old[1])
    with pytest.raises(UserError, match="in use by now"):
        delete_runs(store, runs, flow_runs)
    assert (left(store), flow_runs) == (old[1:], ["flow-run-0"])


def test_a_run_is_deleted_if_a_person_agrees(cli: Cli, store: Store, old: list[str]) -> None:
    asked = cli("delete", old[0][:8])
    assert (asked.exit_code, left(store)) == (130, old)
    assert f"{old[0][:8]}  " in asked.stdout
    assert cli("delete", old[0][:8], old[2], "--yes").stdout.startswith("Deleted 2 runs")
    assert left(store) == [old[1]]
    store.labels.add(NewLabel(old[1], 0, 0, "c", "passed", True, "", "ann"))
    assert cli("delete", old[1], "--labels", "--yes").exit_code == 0


def test_a_test_case_is_erased_in_all_runs(cli: Cli, store: Store, old: list[str]) -> None:
    assert cli("delete", "--case", "a").exit_code == 130
    done = cli("delete", "--case", "a", "--yes")
    assert done.stdout == "Erased the test case a in 3 runs.\n"
    assert [case.input for run_id in old for case in store.runs.cases(run_id)] == [None, "other"] * 3
    store.runs.set_flow_run(old[0], "f" * 32)
    assert "still has artifacts of 1 flow run: start it" in cli("delete", "--case", "a", "--yes").stderr
    assert cli("delete", "--case", "nobody", "--yes", "--env-file", "nowhere").exit_code == 2
    assert cli("delete", "--case", "nobody", "--yes").exit_code == 2
    assert cli("delete", "--yes").exit_code == 2
    assert cli("delete", "--case", "", "--yes").exit_code == 2


def test_an_erased_case_shows_that_it_was(cli: Cli, store: Store, ran: Ran) -> None:
    run = ran([True, False, True])
    cli("delete", "--case", "c1", "--yes")
    shown = cli("show", run.id, "--failed")
    assert shown.exit_code == 0, shown.output
    assert "c1" in shown.stdout
    assert "says False" not in shown.stdout


def test_a_run_with_an_erased_case_is_not_resumed_and_keeps_its_verdict(store: Store, ran: Ran) -> None:
    from fepflow.tasks.plan_run import resume_run

    run = ran([True, False, None])  # one check ended in error
    other = TestCase(id="about", input="erased_at", metadata={"is": '"erased_at"'})
    store.runs.add_completed(
        RunRecord(id="b" * 32, name="refunds", suite={}, repeats=1),
        [other],
        [],
        [],
        outcome="pass",
        metrics=[],
        verdict={"reasons": []},
    )
    assert resume_run(store, "b" * 32).retried is not None
    before = store.results.check_totals(run.id)
    store.retention.erase_case("c2")
    with pytest.raises(UserError, match="its test case c2 was erased"):
        resume_run(store, run.id)
    assert store.results.check_totals(run.id) == before
    assert store.runs.get(run.id).outcome == run.outcome
