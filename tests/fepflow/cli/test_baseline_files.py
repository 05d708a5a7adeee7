"""Baselines that travel in a file, from the store of one machine to that of another."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fepflow.imports import source
from fepflow.settings import settings
from fepflow.store.store import Store
from tests.fepflow.cli.conftest import Ran
from tests.fepflow.conftest import NASTY, Cli

IDENTITY: tuple[str, ...] = (
    "id",
    "name",
    "suite_hash",
    "cases_hash",
    "target_hash",
    "version",
    "cause",
    "repeats",
    "n_cases",
)
IDENTITY += ("created_at", "completed_at", "outcome", "metrics", "verdict")


def comparison(cli: Cli, new: str) -> dict[str, Any]:
    done = cli("compare", "main", new, "--format", "json", "--margin", "0.1")
    assert done.exit_code in (0, 1, 4), done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture
def other_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Has all that follows use an empty store."""

    def change() -> None:
        monkeypatch.setenv("FEPFLOW_STORE_URL", f"sqlite:///{home / 'other.db'}")
        settings.cache_clear()

    return change


def test_a_baseline_compares_in_another_store_as_it_does_in_its_own(
    cli: Cli, ran: Ran, store: Store, home: Path, other_home: Callable[[], None]
) -> None:
    texts = list(NASTY.values())
    runs = [ran([[n != wrong, True] for n in range(len(texts))], texts, texts) for wrong in (3, 5)]
    cli("baseline", "set", "main", *(run.id for run in runs))
    new = ran([[n > 14, n > 13] for n in range(len(texts))], texts, texts)
    here = comparison(cli, new.id)
    assert here["outcome"] == "fail"

    done = cli("baseline", "export", "main.zip", "refunds")
    assert (done.exit_code, done.stdout) == (0, "main.zip has 1 baseline: main of refunds.\n")
    assert (home / "main.zip").stat().st_mode & 0o777 == 0o600
    again = cli("baseline", "export", "main.zip")
    assert (again.exit_code, "give --overwrite" in again.stderr) == (2, True)
    report = home / "new.json"
    assert cli("show", new.id, "-o", "new.json").exit_code == 0

    other_home()
    done = cli("baseline", "import", "main.zip")
    assert (done.exit_code, done.stdout) == (0, "main of refunds is run 00000000 and 1 more, with the verdict fail.\n")
    with Store.open(settings().store_address) as there:
        for run in runs:
            imported = there.runs.get(run.id)
            assert [getattr(imported, name) for name in IDENTITY] == [getattr(run, name) for name in IDENTITY]
            hashes = [{u: o.content_hash for u, o in s.results.outputs(run.id).items()} for s in (store, there)]
            assert hashes[0] == hashes[1]
            assert len(hashes[0]) == 2 * len(texts)
        listed = there.runs.baselines()
        assert cli("baseline", "import", "main.zip").stdout == done.stdout
        assert there.runs.baselines() == listed
        assert len(there.runs.newest()) == 2
        _copy_run(store, there, new.id)
    compared = comparison(cli, new.id)
    for run in (here["base"], *here["pooled"], here["compared"][0]["run"]):
        run.pop("created_at")
    for run in (compared["base"], *compared["pooled"], compared["compared"][0]["run"]):
        run.pop("created_at")
    assert compared == here
    assert "imported from main.zip (baseline, sha256 " in cli("show", runs[0].id).stdout

    with zipfile.ZipFile(home / "main.zip") as zipped:
        zipped.extract(f"{runs[0].id}.json", home)
    assert cli("compare", f"{runs[0].id}.json", str(report)).exit_code in (0, 1), "a member is a file of results"


def _copy_run(source: Store, target: Store, run_id: str) -> None:
    """Has a run in another store, too, as if it had been executed there."""
    from fepflow.store.records import NewCheckResult, NewOutput, RunRecord

    run = source.runs.get(run_id)
    outputs, checks = [], []
    for result in source.results.by_case(run_id):
        unit = result.case_index, result.repeat
        assert result.output is not None
        outputs.append(NewOutput(*unit, "a" * 64, result.output))
        checks += [NewCheckResult(*unit, each.check_id, "b" * 64, each, each.passed) for each in result.checks]
    new = RunRecord(
        id=run.id, name=run.name, suite=run.suite, repeats=run.repeats, suite_hash=run.suite_hash, target_hash="t"
    )
    ended: dict[str, Any] = {"outcome": "fail", "metrics": [], "verdict": run.verdict}
    target.runs.add_completed(new, source.runs.cases(run_id), outputs, checks, **ended)


def edited(path: Path, member: str, edit: Callable[[Any], Any]) -> None:
    """Writes a file of baselines anew with another content of the member whose name begins so."""
    with zipfile.ZipFile(path) as zipped:
        texts = {name: zipped.read(name).decode() for name in zipped.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, text in texts.items():
            new = edit(json.loads(text)) if name.startswith(member) else text
            if new is not None:
                zipped.writestr(name, new if isinstance(new, str) else json.dumps(new))


def with_value(*path: Any, value: Any) -> Callable[[Any], Any]:
    def edit(document: Any) -> Any:
        part = document
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = value
        return document

    return edit


FIRST = "results", 0, "execution_context", "test_case"
BROKEN: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "newer": ("baselines", with_value("fepflow_baselines", value=2), "written by a newer version of fepflow (form 2"),
    "another zip": ("baselines", lambda _: None, "is not a file of baselines: it has no baselines.json"),
    "no JSON": ("baselines", lambda _: "{", "is not JSON"),
    "no run": ("00000000", lambda _: None, "has no 00000000feedbeef"),
    "half a report": ("00000000", lambda document: json.dumps(document)[:-20], "is not JSON"),
    "bad name": ("baselines", with_value("baselines", 0, "name", value="latest"), "'latest' cannot name a baseline"),
    "bad id": ("baselines", with_value("runs", 0, "id", value="../../etc/passwd"), "baselines.json.runs[0].id"),
    "bad time": ("baselines", with_value("runs", 0, "created_at", value="now"), "baselines.json.runs[0].created_at"),
    "fewer": ("00000000", lambda document: {**document, "results": document["results"][1:]}, "has 9 results, and 10"),
    "other case": ("00000000", with_value(*FIRST, "input", value="x"), "has other test cases than were exported"),
    "other run": ("00000000", with_value("evaluation_id", value="f" * 32), "is the report of another run"),
    "other suite": (
        "baselines",
        with_value("baselines", 0, "suite", value="other"),
        "is not there, or of another suite",
    ),
    "no suite": ("00000000", with_value("metadata", "suite", value=None), "has no suite or no verdict"),
    "bad gate": ("00000000", with_value("metadata", "suite", "gate", value={"min": 7}), "metadata.suite.gate.min"),
    "bad verdict": (
        "00000000",
        with_value("metadata", "verdict", "reasons", value=-1),
        "has a verdict that cannot be read",
    ),
    "no verdict": ("00000000", with_value("metadata", "verdict", value={}), "has a verdict that cannot be read"),
    "half a letter": (
        "00000000",
        with_value("results", 0, "check_results", 0, "check_type", value="\ud800"),
        "half of a surrogate pair",
    ),
    "odd hash": ("baselines", with_value("runs", 0, "target_hash", value="a\0b"), "baselines.json.runs[0].target_hash"),
    "deep": ("baselines", lambda _: "[" * 100_000, "is not JSON"),
}


def test_a_file_that_is_not_as_it_was_written_is_refused_and_nothing_is_stored(
    cli: Cli, ran: Ran, home: Path, other_home: Callable[[], None], subtests: pytest.Subtests
) -> None:
    cli("baseline", "set", "main", ran([True] * 10).id)
    assert cli("baseline", "export", "main.zip").exit_code == 0
    whole = (home / "main.zip").read_bytes()
    other_home()
    for broken, (member, edit, message) in BROKEN.items():
        with subtests.test(broken):
            (home / "main.zip").write_bytes(whole)
            edited(home / "main.zip", member, edit)
            done = cli("baseline", "import", "main.zip")
            assert done.exit_code == 2, done.stderr
            assert message in done.stderr
            assert "main.zip" in done.stderr
            assert "No runs yet" in cli("list").stdout


def test_damage_a_bomb_and_another_run_of_the_same_id_are_refused(
    cli: Cli, ran: Ran, home: Path, other_home: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "MAX_MEMBER_BYTES", 1_000_000)
    assert "There is no baseline to export" in cli("baseline", "export", "main.zip").stderr
    cli("baseline", "set", "main", ran([True] * 10).id)
    assert "no baseline of the suite other" in cli("baseline", "export", "main.zip", "other").stderr
    cli("baseline", "export", "main.zip")
    whole = (home / "main.zip").read_bytes()
    for damaged in (b"", whole[:-30], whole[: len(whole) // 2], b"{}", whole[:60] + b"\xff" * 20 + whole[80:]):
        (home / "main.zip").write_bytes(damaged)
        done = cli("baseline", "import", "main.zip")
        assert (done.exit_code, "Traceback" in done.stderr) == (2, False), done.stderr
    with zipfile.ZipFile(home / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("baselines.json", " " * 1_000_001)
    done = cli("baseline", "import", "bomb.zip")
    assert (done.exit_code, "is larger than 1,000,000 bytes" in done.stderr) == (2, True)
    assert cli("baseline", "import", "none.zip").exit_code == 2

    (home / "main.zip").write_bytes(whole)
    other_home()
    with Store.open(settings().store_address) as other:
        from fepflow.protocol.test_case import TestCase
        from fepflow.store.records import RunRecord

        run_id = f"{0:08x}{'feedbeef' * 3}"
        other.runs.create(
            RunRecord(id=run_id, name="refunds", suite={"name": "refunds"}, repeats=1), [TestCase(id="a", input="a")]
        )
        done = cli("baseline", "import", "main.zip")
        assert (done.exit_code, "There is another run 00000000feedbeef" in done.stderr) == (2, True)
        assert other.runs.baselines() == []


def test_a_run_that_lacks_outputs_cannot_be_exported(cli: Cli, ran: Ran, home: Path) -> None:
    cli("baseline", "set", "main", ran([[True], [True], []]).id)
    done = cli("baseline", "export", "main.zip")
    assert (done.exit_code, "has outputs for 2 of 3 calls" in done.stderr) == (2, True)
    assert list(home.glob("*.zip")) + list(home.glob(".fepflow-*")) == []


def test_a_baseline_with_an_erased_test_case_travels(
    cli: Cli, ran: Ran, home: Path, other_home: Callable[[], None]
) -> None:
    run = ran([True] * 3)
    cli("baseline", "set", "main", run.id)
    assert cli("delete", "--case", "c1", "--yes").exit_code == 0
    assert cli("baseline", "export", "main.zip").exit_code == 0
    other_home()
    done = cli("baseline", "import", "main.zip")
    assert done.exit_code == 0, done.stderr
    with Store.open(settings().store_address) as there:
        assert there.runs.get(run.id).cases_hash == run.cases_hash
