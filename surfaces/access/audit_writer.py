"""Writing the audit log: to the store, and as JSON lines to a file a day."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Self

from fepflow.errors import FepflowError, InfrastructureError
from fepflow.protocol.model import utc_now
from fepflow.store.access_records import AuditEntry
from fepflow.store.store import Store

logger = logging.getLogger(__name__)

MAX_GROUP = 500
"""Entries of one transaction."""

_DAY = 86_400


class AuditWriter:
    """Commits the entries of concurrent requests together; used as an async context manager.

    While one group is committed, the next gathers. Entries older than `retention` seconds are deleted at the beginning
    and once a day. What was handed over is written before the context ends. It begins with an InfrastructureError if
    nothing could be written.
    """

    def __init__(self, store: Store, folder: Path, retention: float) -> None:
        self._store = store
        self._folder = folder
        self._retention = timedelta(seconds=retention)
        self._queue: asyncio.Queue[tuple[AuditEntry, asyncio.Future[None]] | None] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fepflow-audit")
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = True

    async def __aenter__(self) -> Self:
        try:
            await self._in_thread(self._prepare)
        except BaseException:
            self._thread.shutdown()
            raise
        self._closed = False
        self._tasks = [asyncio.create_task(self._write_groups()), asyncio.create_task(self._delete_old_daily())]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = True
        writer, daily = self._tasks
        self._queue.put_nowait(None)
        daily.cancel()
        with suppress(asyncio.CancelledError):
            await daily
        await writer
        self._thread.shutdown()

    async def write(self, entry: AuditEntry) -> None:
        """Return once the entry is in the table and in the file. Raises InfrastructureError."""
        if self._closed:
            raise InfrastructureError("The audit log is closed: this server is about to end.")
        written = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((entry, written))
        await written

    async def _write_groups(self) -> None:
        while (first := await self._queue.get()) is not None:
            group = [first]
            while not self._queue.empty() and len(group) < MAX_GROUP:
                following = self._queue.get_nowait()
                if following is None:
                    self._queue.put_nowait(None)
                    break
                group.append(following)
            problem = await self._written([entry for entry, _ in group])
            for _, written in group:
                if written.done():  # its request was given up
                    continue
                if problem is None:
                    written.set_result(None)
                else:
                    written.set_exception(InfrastructureError(problem))

    async def _written(self, entries: Sequence[AuditEntry]) -> str | None:
        """Write a group; what went wrong, in words."""
        try:
            await self._in_thread(write_entries, self._store, self._folder, entries)
        except OSError as error:
            problem = f"The audit log in {self._folder} cannot be written ({error.strerror})"
        except FepflowError as error:
            problem = f"The audit log cannot be written: {error}"
        except Exception as error:
            problem = f"The audit log cannot be written ({type(error).__name__})"
        else:
            return None
        logger.error("%s; %d requests are refused", problem, len(entries))
        return "The audit log cannot be written, and without it nothing is done: try again later."

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
                await self._in_thread(self._delete_old)
            except (FepflowError, OSError) as error:
                logger.warning("old entries of the audit log could not be deleted: %s", error)

    def _delete_old(self) -> None:
        before = utc_now() - self._retention
        self._store.delete_audit_entries(before)
        delete_files(self._folder, before.date())

    async def _in_thread(self, work: Callable[..., None], *arguments: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)


def write_entries(store: Store, folder: Path, entries: Sequence[AuditEntry]) -> None:
    """Add entries to the table and to the files of a folder. Raises InfrastructureError, and OSError for a file."""
    store.add_audit_entries(entries)
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
        with suppress(ValueError):  # it is named otherwise, and so is none of ours
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
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # other processes append to the same file
        size = os.fstat(descriptor).st_size
        if data and size and os.pread(descriptor, 1, size - 1) != b"\n":
            data = b"\n" + data  # a process has died within a line
        if os.write(descriptor, data) < len(data):
            os.ftruncate(descriptor, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)  # which unlocks it
