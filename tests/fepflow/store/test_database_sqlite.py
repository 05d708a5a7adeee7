"""What is SQLite's own: the file, its permissions, its locks, its disk."""

import os
import re
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import pytest
from sqlalchemy import event

from fepflow.errors import InfrastructureError
from fepflow.protocol.test_case import Output
from fepflow.store import database
from fepflow.store.records import NewOutput
from fepflow.store.store import Store

from .processes import sent_by
from .writers import create_run, write_over_the_limit


@pytest.fixture
def url(sqlite_url: str) -> str:
    return sqlite_url


def outputs(text: str, count: int = 1) -> list[NewOutput]:
    return [NewOutput(case_index, 0, "a" * 64, Output(value=text)) for case_index in range(count)]


def path_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def test_a_store_that_is_opened_twice_in_a_process_sees_what_others_write(store, url):
    for run_id in ("run-1", "run-2"):
        assert run_id not in {run.id for run in store.runs.newest(5)}
        Store.open(url).close()
        sent_by(create_run, url, run_id)
        assert run_id in {run.id for run in store.runs.newest(5)}


def test_the_files_are_readable_by_their_owner_only(store, url, make_run):
    make_run()
    path = path_of(url)

    files = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}

    assert files == {"fepflow.db": 0o600, "fepflow.db-wal": 0o600, "fepflow.db-shm": 0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_every_missing_folder_on_the_way_is_private(tmp_path):
    Store.open(f"sqlite:///{tmp_path}/a/b/c.db").close()

    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "a/b")] == [0o700, 0o700]


def test_sqlite_is_set_up_for_many_processes_and_for_power_cuts(store):
    with store._database.reading() as connection:
        names = ("journal_mode", "foreign_keys", "busy_timeout", "synchronous")
        settings = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names]

    assert settings == ["wal", 1, 5000, 2]


def test_a_file_that_is_not_a_database_is_named_in_a_sentence(tmp_path):
    (tmp_path / "notes.txt").write_text("not a database " * 1_000)

    with pytest.raises(InfrastructureError, match=r"notes\.txt is not a database .* name another file"):
        Store.open(f"sqlite:///{tmp_path}/notes.txt")

    assert (tmp_path / "notes.txt").read_text() == "not a database " * 1_000


def test_a_folder_in_place_of_the_file_is_an_error(tmp_path):
    with pytest.raises(InfrastructureError, match=r"cannot be opened \(Is a directory\): make the file"):
        Store.open(f"sqlite:///{tmp_path}")


def test_a_file_in_place_of_the_folder_is_an_error(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(InfrastructureError, match=r"file/x\.db cannot be opened \(Not a directory\)"):
        Store.open(f"sqlite:///{tmp_path}/file/x.db")


@pytest.fixture
def unwritable_folder(tmp_path: Path) -> Iterator[Path]:
    """No folder is unwritable for root, who becomes somebody else for the test."""
    tmp_path.chmod(0o500)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield tmp_path
    os.seteuid(user)


def test_an_unwritable_folder_is_named_in_a_sentence(unwritable_folder):
    with pytest.raises(
        InfrastructureError, match=r"x\.db cannot be opened \(Permission denied\): make the file and its"
    ):
        Store.open(f"sqlite:///{unwritable_folder}/x.db")


def test_a_database_that_another_process_holds_is_said_to_be_locked_and_works_again_afterwards(
    url, store, make_run, monkeypatch
):
    make_run()
    monkeypatch.setattr(database, "BUSY_TIMEOUT", 0.1)
    other = sqlite3.connect(path_of(url), isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")

    with Store.open(url) as impatient:
        with pytest.raises(InfrastructureError, match=r"fepflow\.db is locked by another process .* try again"):
            impatient.results.write("run-1", outputs("lost"), [])
        other.execute("COMMIT")
        other.close()
        impatient.results.write("run-1", outputs("kept"), [])

    assert store.results.outputs("run-1")[0, 0].output.value == "kept"


def test_a_locked_database_is_waited_for_within_wait_seconds(url, store, make_run, monkeypatch):
    make_run()
    monkeypatch.setattr(database, "BUSY_TIMEOUT", 0.1)
    other = sqlite3.connect(path_of(url), isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    Timer(1, other.execute, ["COMMIT"]).start()

    with Store.open(url, wait_seconds=20) as patient:
        patient.results.write("run-1", outputs("kept"), [])

    other.close()
    assert store.results.outputs("run-1")[0, 0].output.value == "kept"


def test_readers_do_not_wait_for_a_writer(url, store, make_run):
    make_run()
    writer = sqlite3.connect(path_of(url), isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")

    assert store.runs.get("run-1").n_cases == 3

    writer.close()


def test_a_full_disk_is_reported_and_the_transaction_is_rolled_back(store, make_run):
    make_run(cases=100)
    store._database.engine.dispose()
    event.listen(
        store._database.engine, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count = 60")
    )

    with pytest.raises(InfrastructureError, match=r"fepflow\.db is full .* free space .* --resume"):
        store.results.write("run-1", outputs("x" * 10_000, count=100), [])

    assert store.results.outputs("run-1") == {}
    store.results.write("run-1", outputs("small"), [])
    assert set(store.results.outputs("run-1")) == {(0, 0)}


def test_a_file_size_limit_reached_while_writing_is_an_infrastructure_error(url, store, make_run):
    make_run(cases=100)
    (message,) = sent_by(write_over_the_limit, url)

    assert re.search(r"fepflow\.db (is full|cannot be read or written) ", message)
    assert store.results.outputs("run-1") == {}
