import os
import stat
import subprocess
from pathlib import Path

import pytest
from sqlalchemy import make_url

from fepflow.errors import InfrastructureError, UserError
from fepflow.store.maintenance import back_up, check_integrity
from fepflow.store.store import Store

from .processes import started
from .test_crashes import checks_per_case
from .writers import rows_of, write_all


@pytest.fixture
def restored(url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    """Gives the URL of the store that is in a backup."""
    if url.startswith("sqlite"):
        return lambda backup: f"sqlite:///{backup}"
    server, databases = (request.getfixturevalue(name) for name in ("postgresql", "databases"))
    monkeypatch.setenv("PATH", str(server.programs), prepend=os.pathsep)

    def restore(backup: Path) -> str:
        new = databases.create("template0")
        request.addfinalizer(lambda: databases.drop(new))
        subprocess.run([server.programs / "pg_restore", "--no-owner", "--dbname", new, backup], check=True)
        return new

    return restore


@pytest.mark.battery
def test_a_backup_that_is_taken_while_a_process_writes_has_all_that_was_committed_before(
    store: Store, url, make_run, tmp_path, restored
):
    cases = 20_000  # more than the pipe takes of their numbers: the writer cannot end before the backup has
    make_run(cases=cases)
    with started(write_all, url, cases) as (writer, connection):
        acknowledged = {connection.recv() for _ in range(50)}
        back_up(url, tmp_path / "backup")
        assert writer.is_alive()

    assert stat.S_IMODE((tmp_path / "backup").stat().st_mode) == 0o600
    backup_url = restored(tmp_path / "backup")
    assert check_integrity(backup_url).problems == []
    with Store.open(backup_url) as backup:
        outputs = {case_index for case_index, _ in backup.results.outputs("run-1")}
        assert acknowledged <= outputs
        assert checks_per_case(backup) == dict.fromkeys(outputs, 3)


def test_a_restored_backup_gives_the_same_results(store: Store, url, make_run, tmp_path, restored):
    make_run(cases=20)
    for case_index in range(20):
        store.results.write("run-1", *rows_of(case_index))
    store.leases.acquire("run-1", "me", 60)
    store.leases.finish("run-1", "me", "completed", outcome="fail", verdict={"nan": "\0"}, error="\ud800")

    back_up(url, tmp_path / "backup")

    with Store.open(restored(tmp_path / "backup")) as backup:
        assert backup.runs.newest() == store.runs.newest()
        assert list(backup.results.by_case("run-1")) == list(store.results.by_case("run-1"))
        assert list(backup.results.check_rows("run-1")) == list(store.results.check_rows("run-1"))


def test_a_backup_overwrites_nothing(store, url, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")

    with pytest.raises(UserError, match=r"notes\.txt already exists, and a backup overwrites nothing: name a new"):
        back_up(url, tmp_path / "notes.txt")

    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_missing_folder_is_an_error_in_one_line(store, url, tmp_path):
    with pytest.raises(InfrastructureError, match=r"nowhere/b cannot be written \(No such file or directory\)"):
        back_up(url, tmp_path / "nowhere" / "b")


def test_a_missing_store_cannot_be_backed_up(tmp_path):
    with pytest.raises(InfrastructureError, match=r"none\.db is not there: the first `fepflow run` makes it"):
        back_up(f"sqlite:///{tmp_path}/none.db", tmp_path / "b")

    assert list(tmp_path.iterdir()) == []


def test_a_damaged_store_leaves_no_backup(sqlite_url, tmp_path):
    Store.open(sqlite_url).close()
    path = Path(sqlite_url.removeprefix("sqlite:///"))
    path.write_bytes(path.read_bytes()[:4096] + b"x" * 40_000)

    with pytest.raises(InfrastructureError, match="is damaged"):
        back_up(sqlite_url, tmp_path / "b")

    assert not (tmp_path / "b").exists()


def test_without_pg_dump_the_error_says_what_to_do(postgresql_url, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(InfrastructureError, match=r"pg_dump, .* is not on PATH: install PostgreSQL's client programs"):
        back_up(postgresql_url, tmp_path / "b")

    assert not (tmp_path / "b").exists()


def test_pg_dump_gets_the_password_by_the_environment(postgresql_url, tmp_path, monkeypatch):
    spy = tmp_path / "bin" / "pg_dump"
    spy.parent.mkdir()
    spy.write_text('#!/bin/sh\necho "$@"; env; echo "no such luck" >&2; exit 1\n')
    spy.chmod(0o700)
    monkeypatch.setenv("PATH", str(spy.parent), prepend=os.pathsep)
    seen: dict[str, str] = {}

    def unlink(path: Path) -> None:
        seen["text"] = path.read_text()
        os.unlink(path)

    monkeypatch.setattr(Path, "unlink", unlink)
    url = make_url(postgresql_url).set(username="me", password="hunter2")

    with pytest.raises(
        InfrastructureError,
        match=rf"was not backed up: no such luck\. .* is {spy}, and it has to be of the server's version or newer",
    ) as caught:
        back_up(url.render_as_string(hide_password=False), tmp_path / "b")

    arguments, _, environment = seen["text"].partition("\n")
    assert "hunter2" not in arguments + str(caught.value)
    assert {"PGPASSWORD=hunter2", "PGUSER=me", f"PGDATABASE={url.database}"} <= set(environment.splitlines())
    assert f"PGHOST={url.query['host']}" in environment.splitlines()
    assert not (tmp_path / "b").exists()
