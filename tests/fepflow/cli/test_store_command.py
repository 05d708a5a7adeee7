"""`fepflow store`: what a person is told, and how it ends."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from sqlalchemy import text

from fepflow.protocol.test_case import Output
from fepflow.settings import settings
from fepflow.store.migrate import revisions
from fepflow.store.store import Store
from tests.fepflow.conftest import Cli, FillRun, check

NEWEST = revisions()[-1]


@pytest.fixture
def filled(fill_run: FillRun) -> None:
    fill_run([("a", Output(value="yes"), check(True)), ("b", Output(value="no"), check(False)), ("c", None, None)])


def test_an_intact_store_has_no_problems(cli: Cli, filled: None) -> None:
    done = cli("store", "check")

    assert (done.exit_code, done.stderr) == (0, "")
    where, counts, verdict = done.stdout.splitlines()
    assert "fepflow.db (SQLite 3" in where
    assert where.endswith(f"schema {NEWEST}")
    assert counts == "  runs: 1, test cases: 3, outputs: 2, check results: 2"
    assert verdict == "  everything can be read"


def test_a_damaged_store_is_reported_with_exit_code_3(cli: Cli, store: Store, filled: None) -> None:
    store._database.write(
        lambda connection: connection.execute(text("UPDATE output SET value = '{' WHERE case_index = 1"))
    )

    done = cli("store", "check")

    assert done.exit_code == 3
    assert "error: output 00000000feedbeef/1/0: value cannot be read (JSONDecodeError).\n" in done.stderr
    assert "everything" not in done.stdout


def test_a_store_that_is_not_there_is_not_made_by_looking(cli: Cli, home: Path) -> None:
    done = cli("store", "check")

    assert done.exit_code == 3
    assert "fepflow.db is not there: the first `fepflow run` makes it" in done.stderr
    assert not (home / "home").exists()


def test_migrating_makes_the_store_and_says_from_which_schema_to_which(cli: Cli, home: Path) -> None:
    assert cli("store", "migrate").stdout.endswith(f"fepflow.db: schema none -> {NEWEST}.\n")
    assert cli("store", "migrate").stdout.endswith(f"fepflow.db has schema {NEWEST} already.\n")
    assert cli("store", "check").exit_code == 0


def test_an_unknown_schema_revision_is_refused(cli: Cli, home: Path) -> None:
    done = cli("store", "migrate", "--to", "1234", "--yes")

    assert done.exit_code == 2
    assert "error: There is no schema 1234: this fepflow knows 0001" in done.stderr


def test_a_backup_is_a_store_and_overwrites_nothing(cli: Cli, home: Path, filled: None, monkeypatch) -> None:
    before = cli("show").stdout

    done = cli("store", "backup", "copy.db")
    again = cli("store", "backup", "copy.db")

    assert done.exit_code == 0
    assert "backed up to copy.db (" in done.stdout
    assert stat.S_IMODE((home / "copy.db").stat().st_mode) == 0o600
    assert again.exit_code == 2
    assert "copy.db already exists" in again.stderr
    monkeypatch.setenv("FEPFLOW_STORE_URL", f"sqlite:///{home / 'copy.db'}")
    settings.cache_clear()
    assert cli("show").stdout == before


def test_the_store_is_shown_without_its_password(cli: Cli, home: Path, monkeypatch) -> None:
    monkeypatch.setenv("FEPFLOW_STORE_URL", "postgresql://me:hunter2@127.0.0.1:1/evals?password=hunter2")
    settings.cache_clear()

    for command in (["status"], ["store", "check"], ["store", "migrate"], ["store", "backup", "b"]):
        done = cli(*command)
        assert "hunter2" not in done.stdout + done.stderr
    assert not (home / "b").exists()
    assert "cannot be reached" in done.stderr or "pg_dump" in done.stderr


def test_status_does_not_show_the_password(monkeypatch, home: Path) -> None:
    from fepflow.services.prefect_api import store_location

    monkeypatch.setenv("FEPFLOW_STORE_URL", "postgresql://me:hunter2@host/evals?password=hunter2")
    settings.cache_clear()

    assert store_location() == "postgresql://host/evals"
