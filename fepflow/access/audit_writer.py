"""The writer of the audit log: to the store, and as JSON lines to a file a day."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Self

from fepflow.errors import FepflowError, InfrastructureError
from fepflow.host import locked
from fepflow.protocol.model import utc_now
from fepflow.store.records import AuditEntry
from fepflow.store.store import Store
from fepflow.tasks.local_run import STORE_WAIT

logger = logging.getLogger(__name__)

MAX_GROUP = 500
"""Entries of one transaction."""

_DAY = 86_400


LATE_SECONDS = 1.0
"""Time after which a request that changes nothing is answered though its entry is in the file only."""

MAX_LATE = 10_000
"""Entries that wait for the table."""


@dataclass(slots=True)
class _Item:
    """An entry to be written: to the file, then to the table."""

    entry: AuditEntry
    written: asyncio.Future[None]
    is_in_file: bool = False


_Queue = asyncio.Queue[_Item | None]
_Write = Callable[[Sequence[AuditEntry]], None]


class AuditWriter:
    """A writer that commits the entries of concurrent requests together; used as an async context manager.

    An entry is written to the file first and then to the table, both in the order of the requests. While one group is
    written, the next one gathers. Entries older than `retention` seconds are deleted at the start and once a day. All
    entries are written before the context ends. Entering raises InfrastructureError if nothing can be written.
    """

    def __init__(self, store: Store, folder: Path, retention: float) -> None:
        self._store = store.waiting(STORE_WAIT)  # as runs wait for one that another process holds
        self._folder = folder
        self._retention = timedelta(seconds=retention)
        self._for_file, self._for_table = _Queue(), _Queue()
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="fepflow-audit")
        self._writing: list[tuple[_Queue, asyncio.Task[None]]] = []
        self._daily: asyncio.Task[None] | None = None
        self._closed = True

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._prepare)
        self._closed = False
        file = self._write_groups(self._for_file, partial(append_lines, self._folder), self._on_file)
        table = self._write_groups(self._for_table, self._store.access.add_audit_entries, _on_table)
        self._writing = [(self._for_file, asyncio.create_task(file)), (self._for_table, asyncio.create_task(table))]
        self._daily = asyncio.create_task(self._delete_old_daily())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        if self._daily is not None:
            self._daily.cancel()
        for queue, task in self._writing:  # in this order: the file hands entries on to the table
            queue.put_nowait(None)
            await task
        self._threads.shutdown()

    async def write(self, entry: AuditEntry, *, may_be_late: bool = False) -> None:
        """Write an entry, and return once it is in the file and in the table. Raises InfrastructureError.

        With `may_be_late`, for a request that changes nothing, this waits only a second: the entry is then in the file,
        and gets into the table once another process releases the store.
        """
        if self._closed:
            raise InfrastructureError("The audit log is closed: this server is about to end.")
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        written.add_done_callback(lambda done: done.cancelled() or done.exception())  # maybe nobody waits any more
        item = _Item(entry, written)
        self._for_file.put_nowait(item)
        if may_be_late:
            await asyncio.wait({written}, timeout=LATE_SECONDS)
            if not written.done() and item.is_in_file and self._for_table.qsize() <= MAX_LATE:
                return
        await written

    def _on_file(self, item: _Item) -> None:
        item.is_in_file = True
        self._for_table.put_nowait(item)

    def _prepare(self) -> None:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _append(_file_of(self._folder, utc_now().date()), b"")
            self._delete_old()
        except OSError as error:
            raise InfrastructureError(
                f"The audit log in {self._folder} cannot be written ({error.strerror}): make the folder writable for "
                "this user, or set FEPFLOW_HOME to another one."
            ) from error

    async def _delete_old_daily(self) -> None:
        while True:
            await asyncio.sleep(_DAY)
            try:
                await asyncio.to_thread(self._delete_old)
            except (FepflowError, OSError) as error:
                logger.warning("old entries of the audit log could not be deleted: %s", error)

    def _delete_old(self) -> None:
        before = utc_now() - self._retention
        self._store.access.delete_audit_entries(before)
        delete_files(self._folder, before.date())

    async def _write_groups(self, queue: _Queue, write: _Write, hand_on: Callable[[_Item], None]) -> None:
        """Pass the entries of a queue in groups to `write`, in a thread, and then to `hand_on`, until None comes."""
        while (first := await queue.get()) is not None:
            group = [first]
            while not queue.empty() and len(group) < MAX_GROUP:
                following = queue.get_nowait()
                if following is None:
                    queue.put_nowait(None)
                    break
                group.append(following)
            problem = await self._problem(write, [item.entry for item in group])
            for item in group:
                if problem is None:
                    hand_on(item)
                elif not item.written.done():
                    item.written.set_exception(InfrastructureError(problem))

    async def _problem(
        self, write: Callable[[Sequence[AuditEntry]], None], entries: Sequence[AuditEntry]
    ) -> str | None:
        """Write a group, and return the error as text, if there was one."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._threads, write, entries)
        except OSError as error:
            reason = f"in {self._folder}: {error.strerror}"
        except FepflowError as error:
            reason = str(error)
        except Exception as error:
            reason = type(error).__name__
        else:
            return None
        text = "the audit log cannot be written (%s); %d requests are refused, or their entries are in the file only"
        logger.error(text, reason, len(entries))
        return "The audit log cannot be written, and without it nothing is done: try again later."


def _on_table(item: _Item) -> None:
    if not item.written.done():  # else its request was given up
        item.written.set_result(None)


def write_entries(store: Store, folder: Path, entries: Sequence[AuditEntry]) -> None:
    """Add entries to the table and to the files of a folder. Raises InfrastructureError, and OSError for a file."""
    store.access.add_audit_entries(entries)
    append_lines(folder, entries)


def append_lines(folder: Path, entries: Sequence[AuditEntry]) -> None:
    """Append entries to the files of their days (UTC), `FOLDER/2026-11-23.jsonl`. Raises OSError."""
    days: dict[date, list[AuditEntry]] = {}
    for entry in entries:
        days.setdefault(entry.at.date(), []).append(entry)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for day, some in days.items():
        _append(_file_of(folder, day), "".join(map(_line, some)).encode("ascii"))


def delete_files(folder: Path, before: date) -> None:
    """Delete the files of days before this one. Raises OSError."""
    for path in folder.glob("*.jsonl"):
        with suppress(ValueError):  # a file of another name is not ours
            if date.fromisoformat(path.stem) < before:
                path.unlink(missing_ok=True)


def _file_of(folder: Path, day: date) -> Path:
    return folder / f"{day}.jsonl"


def _line(entry: AuditEntry) -> str:
    # With JSON's escapes, no entry can break its line.
    return json.dumps({**asdict(entry), "at": entry.at.isoformat()}) + "\n"


def _append(path: Path, data: bytes) -> None:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        with locked(descriptor):  # other processes append to the same file
            size = os.fstat(descriptor).st_size
            if data and size and os.pread(descriptor, 1, size - 1) != b"\n":
                data = b"\n" + data  # a process has died within a line
            if os.write(descriptor, data) < len(data):
                os.ftruncate(descriptor, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)
