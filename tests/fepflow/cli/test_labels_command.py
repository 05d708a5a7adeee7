"""Labels of the store: `fepflow calibrate --run` without a file, and `fepflow labels export`; nobody is called."""

from __future__ import annotations

import csv
import getpass
import json
from pathlib import Path
from typing import Any

import pytest

from fepflow.access.caller import Caller
from fepflow.analysis.judge_reliability import judges_of_run
from fepflow.analysis.labels import add_label, draw_for_labels
from fepflow.services.judges import person_of
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from tests.fepflow.cli.test_calibrate_command import judged_run, run, suite  # noqa: F401  # fixtures
from tests.fepflow.conftest import Cli


def say(store: Store, case: int, label: Any, who: str = "ann", field: str = "passed", **more: Any) -> None:
    add_label(store, "cafe0001", f"c{case}", 0, "right", field, label, more.pop("note", ""), who, **more)


def rows_of(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return list(csv.DictReader(path.read_text(encoding="utf-8-sig").splitlines()))


def test_a_run_is_compared_with_the_labels_of_the_store(cli: Cli, store: Store, suite: Path, run: RunRecord):  # noqa: F811
    for case in range(40):
        say(store, case, case < 18)
        say(store, case, case < 17, "bob\x1b")
    say(store, 39, None, "bob\x1b")
    done = cli("calibrate", suite, "--run", "cafe")
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[1] == "39 labels; run cafe0001"
    assert lines[2].startswith("The outputs were picked by hand, so the labels do not correct this run")
    assert lines[3] == "labels of 2 people in the store"
    assert lines[4].startswith("  ann and bob\\u001b say the same of 38 of 39 outputs: kappa 0.94")
    assert "! 1 output has no label that more than half of its people gave, and no label that counts." in lines
    data = json.loads(cli("calibrate", suite, "--run", "cafe", "--json").stdout)
    assert (data["n"], data["people"]["count"], data["people"]["undecided"]) == (39, 2, 1)
    assert "n = 39" in cli("show", "cafe").stdout


def test_labels_of_a_whole_draw_correct_the_run(cli: Cli, store: Store, suite: Path, run: RunRecord):  # noqa: F811
    drawn = draw_for_labels(store, run, judges_of_run(run)[0], 10, seed=7)
    for case_id in drawn.case_ids[:9]:
        say(store, int(case_id[1:]), True, draw_id=drawn.id)
    say(store, int(drawn.case_ids[9][1:]), True)
    assert "were picked by hand, so the labels do not correct" in cli("calibrate", suite, "--run", "cafe").stdout
    say(store, int(drawn.case_ids[9][1:]), True, draw_id=drawn.id)
    assert "so the labels correct this run (seed 7)" in cli("calibrate", suite, "--run", "cafe").stdout


def test_without_labels_it_says_so(cli: Cli, store: Store, suite: Path, run: RunRecord, home: Path):  # noqa: F811
    done = cli("calibrate", suite, "--run", "cafe")
    assert done.exit_code == 2
    assert "Run cafe0001 has no labels of right, passed, in the store: label its outputs, or give a" in done.stderr
    done = cli("labels", "export", "cafe", "-o", home / "new.csv")
    assert done.exit_code == 2
    assert "Run cafe0001 has no labels in the store." in done.stderr
    assert not (home / "new.csv").exists()


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_exported_labels_are_read_by_calibrate_and_count_as_in_the_store(
    cli: Cli, store: Store, suite: Path, run: RunRecord, home: Path, suffix: str  # noqa: F811
):  # fmt: skip
    drawn = draw_for_labels(store, run, judges_of_run(run)[0], 3, seed=7)
    cases = sorted({*range(12), *(int(case_id[1:]) for case_id in drawn.case_ids)})
    for case in cases:
        say(store, case, case < 7, draw_id=drawn.id if f"c{case}" in drawn.case_ids else None)
        say(store, case, case % 5, field="score", note="=HYPERLINK(1)")
    say(store, 4, False, "bob")
    file = home / f"labels.{suffix}"
    done = cli("labels", "export", "cafe", "--check", "right", "--output", file)
    assert (done.exit_code, done.stdout) == (0, f"{file}: labels of run cafe0001, {2 * len(cases)} rows.\n")
    rows = rows_of(file)
    assert list(rows[0]) == ["id", "label", "check", "field", "repeat", "draw", "disputed", "by_person"]
    said = rows[1]["by_person"] if suffix == "jsonl" else json.loads(rows[1]["by_person"])
    assert [(each["by"], each["label"], each["note"]) for each in said] == [("ann", 0.0, "=HYPERLINK(1)")]
    assert said[0]["at"].endswith("Z")
    assert not any(str(value).startswith("=") for row in rows for value in row.values())
    for field, count, same in (("passed", 3, ("kappa", "matrix", "draw")), ("score", len(cases), ("kappa", "matrix"))):
        by_store, by_file = (
            json.loads(cli("calibrate", suite, "--run", "cafe", "--json", "--field", field, *labels).stdout)
            for labels in ((), ("--labels", file))
        )
        assert by_file["n"] == by_store["n"] == count
        assert {name: by_file[name] for name in same} == {name: by_store[name] for name in same}
    done = cli("labels", "export", "cafe", "--output", file)
    assert done.exit_code == 2
    assert f"{file} already exists" in done.stderr


def test_labels_of_cases_with_long_ids_are_found(cli: Cli, store: Store, suite: Path, home: Path):  # noqa: F811
    ids = [f"{number} {'é' * 5_000} {number}" for number in range(4)]
    judged_run(store, suite, ids)
    for case_id, label in zip(ids, (True, False, False, False), strict=True):
        add_label(store, "cafe0001", case_id, 0, "right", "passed", label, "", "ann")
    file = home / "labels.csv"
    assert cli("labels", "export", "cafe", "--output", file).exit_code == 0
    assert [row["id"] for row in rows_of(file)] == ids
    for source in ((), ("--labels", file)):
        done = cli("calibrate", suite, "--run", "cafe", "--json", *source)
        assert json.loads(done.stdout)["matrix"] == [[1, 0], [1, 2]], done.stderr


def test_an_exported_file_does_not_make_a_random_sample_of_other_labels(cli, store, suite, run, home):  # noqa: F811
    draw_for_labels(store, run, judges_of_run(run)[0], 3, seed=7)
    for case in range(39):
        say(store, case, case < 18)
    cli("labels", "export", "cafe", "-o", home / "labels.csv")
    done = cli("calibrate", suite, "--run", "cafe", "--labels", home / "labels.csv")
    assert done.exit_code == 0
    assert "were picked by hand" in done.stdout


def test_mistakes_in_an_export_are_named(cli: Cli, store: Store, run: RunRecord, home: Path):  # noqa: F811
    say(store, 0, True)
    for words, says in (
        (("cafe", "-o", "labels.xlsx"), "a file of labels is written as .csv or .jsonl"),
        (("cafe", "-o", "no/such/labels.csv"), "cannot be written"),
        (("cafe", "--check", "other", "-o", "labels.csv"), "has no labels of other in the store"),
        (("beef", "-o", "labels.csv"), "beef"),
    ):
        done = cli("labels", "export", *words)
        assert done.exit_code == 2
        assert says in done.stderr


def test_labels_are_the_callers_or_on_this_machine_the_users():
    assert person_of(Caller("jwt:ann", frozenset())) == "jwt:ann"
    assert person_of(Caller(None, frozenset())) == getpass.getuser()
