"""Entries of the audit log: in the table and in the file, whole, or an error."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import stat
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

from fepflow.access.access import Access, Credentials, append_lines
from fepflow.errors import InfrastructureError
from fepflow.protocol.model import utc_now
from fepflow.store.records import AuditEntry
from fepflow.store.store import Store
from tests.fepflow.access.conftest import MakeSettings, token
from tests.fepflow.access.test_access import HERE, key


async def test_entries_are_in_the_table_and_in_the_file(access: Access, store: Store, tmp_path: Path) -> None:
    mine = key(store)
    await access.record(f"key:{mine[4:16]}", HERE, f"GET /v1/{mine}/{token()}", "one\ntwo\ud83d\x00" + mine, "200")

    entry = store.access.audit_entries(1)[0]

    assert (entry.caller, entry.source, entry.outcome) == (f"key:{mine[4:16]}", HERE, "200")
    assert entry.action == f"GET /v1/fep_{mine[4:16]}_***/***"
    assert entry.resource == f"one\\u000atwo\\ud83d\\u0000fep_{mine[4:16]}_***"
    (file,) = (tmp_path / "home" / "audit").iterdir()
    assert file.name == f"{entry.at:%Y-%m-%d}.jsonl"
    (line,) = file.read_text(encoding="ascii").splitlines()
    told = json.loads(line)
    assert told.pop("at") == entry.at.isoformat()
    assert told == {name: getattr(entry, name) for name in ("caller", "source", "action", "resource", "outcome")}
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)


class CountedStore:
    """A store that counts transactions of the audit log, and may fail."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.access = self
        self.groups: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store.access, name)

    def waiting(self, seconds: float) -> Any:
        return self

    def add_audit_entries(self, entries: Any) -> None:
        self.groups.append(len(entries))
        self.store.access.add_audit_entries(entries)


async def test_a_long_text_spoils_no_entry_of_others(access: Access, store: Store) -> None:
    texts = ["x" * 100_000, "\x00\ud83d\n" * 100, "é" * 300]
    await asyncio.gather(
        *(access.record(None, each, each, each, "200" + each) for each in texts),
        access.record(None, HERE, "a", "b", "c"),
    )
    entries = store.access.audit_entries(10)
    assert len(entries) == 4
    assert all(len(entry.outcome) <= 32 and len(entry.action) < 300 for entry in entries)


async def test_concurrent_requests_share_transactions(store: Store, make_settings: MakeSettings) -> None:
    counted: Any = CountedStore(store)
    async with Access(counted, make_settings(), may_be_open=True) as access:
        await asyncio.gather(*(access.record(None, HERE, f"GET /{number}", None, "200") for number in range(300)))
    assert sum(counted.groups) == 300
    assert len(counted.groups) <= 3
    assert {entry.action for entry in store.access.audit_entries(1000)} == {f"GET /{number}" for number in range(300)}


async def test_what_was_handed_over_is_written_though_its_request_is_given_up(
    store: Store, make_settings: MakeSettings
) -> None:
    async with Access(store, make_settings(), may_be_open=True) as access:
        given_up = asyncio.create_task(access.record(None, HERE, "GET /first", None, "200"))
        await asyncio.sleep(0)
        given_up.cancel()
        await access.record(None, HERE, "GET /second", None, "200")
    assert [entry.action for entry in store.access.audit_entries(10)] == ["GET /second", "GET /first"]
    with pytest.raises(InfrastructureError, match="about to end"):
        await access.record(None, HERE, "GET /third", None, "200")


async def test_an_entry_that_cannot_be_written_is_an_error_and_the_next_one_is_tried(
    access: Access, store: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "home" / "audit"
    folder.rename(tmp_path / "elsewhere")
    folder.write_text("in the way", encoding="ascii")
    done = await asyncio.gather(
        *(access.record(None, HERE, "GET /", None, "200") for _ in range(3)), return_exceptions=True
    )
    assert [type(one) for one in done] == [InfrastructureError] * 3
    folder.unlink()
    await access.record(None, HERE, "GET /", None, "200")
    assert len(list(folder.iterdir())) == 1


async def test_a_log_that_cannot_be_written_is_a_sentence_at_the_start(
    store: Store, make_settings: MakeSettings, tmp_path: Path
) -> None:
    (tmp_path / "home" / "audit").write_text("in the way", encoding="ascii")
    with pytest.raises(InfrastructureError, match=r"cannot be written \(File exists\): make the folder writable"):
        async with Access(store, make_settings(), may_be_open=True):
            pass


async def test_without_the_table_nobody_is_admitted_and_nothing_recorded(access: Access, store: Store) -> None:
    mine = key(store)
    for table in ("audit_entry", "api_key"):
        drop = text(f"DROP TABLE {table}")
        store._database.write_once(partial(Connection.execute, statement=drop))
    with pytest.raises(InfrastructureError):
        await access.record(None, HERE, "GET /", None, "200")
    for shown in ({"api_key": mine}, {}):
        with pytest.raises(InfrastructureError):
            await access.identify(Credentials(source=HERE, **shown))


async def test_of_what_was_over_a_limit_the_first_is_recorded(access: Access, store: Store) -> None:
    for caller, source in (("key:a", HERE), ("key:a", HERE), ("key:b", HERE), (None, HERE), (None, HERE)):
        await access.record(caller, source, "GET /", None, "429")
    assert [entry.caller for entry in store.access.audit_entries(10)] == [None, "key:b", "key:a"]


async def test_old_entries_and_files_go_at_the_start(store: Store, make_settings: MakeSettings, tmp_path: Path) -> None:
    now = utc_now()
    new = AuditEntry(None, None, "new", None, "200", now)
    old = replace(new, action="old", at=now - timedelta(days=4))
    folder = tmp_path / "home" / "audit"
    store.access.add_audit_entries([old, new])
    append_lines(folder, [old, new])
    (folder / "notes.jsonl").touch()
    async with Access(store, make_settings(audit_retention="2d"), may_be_open=True):
        assert store.access.audit_entries(10) == [new]
        assert {file.name for file in folder.iterdir()} == {f"{now:%Y-%m-%d}.jsonl", "notes.jsonl"}


def test_a_line_that_was_cut_off_does_not_spoil_the_next(tmp_path: Path) -> None:
    entry = AuditEntry(None, None, "GET /", None, "200")
    append_lines(tmp_path, [entry])
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-10])
    append_lines(tmp_path, [entry])
    assert file.read_bytes() == whole[:-10] + b"\n" + whole


def test_writers_of_several_threads_do_not_tear_each_others_lines(tmp_path: Path) -> None:
    def write(number: int) -> None:
        for _ in range(6):
            append_lines(tmp_path, [AuditEntry(None, None, f"{number} " + "x" * 200, None, "200")] * 50)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(8)))
    actions = [json.loads(line)["action"] for file in tmp_path.iterdir() for line in file.read_text().splitlines()]
    assert Counter(actions) == {f"{number} " + "x" * 200: 300 for number in range(8)}


def test_on_a_full_disk_nothing_of_an_entry_is_left(tmp_path: Path) -> None:
    entry = AuditEntry(None, None, "GET /", None, "200")
    append_lines(tmp_path, [entry])
    (file,) = tmp_path.iterdir()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 10, limits[1]))  # Python ignores its signal
    try:
        with pytest.raises(OSError, match="No space left on device"):
            append_lines(tmp_path, [entry])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(file.read_text().splitlines()) == 1
    assert file.read_bytes().endswith(b"\n")


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    entry = AuditEntry(None, None, "GET /", None, "200")
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit" / f"{entry.at:%Y-%m-%d}.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        append_lines(tmp_path / "audit", [entry])
    assert not os.path.exists(tmp_path / "elsewhere")
