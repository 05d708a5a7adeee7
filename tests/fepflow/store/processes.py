"""Processes that use a store, forked from one that has loaded it: to load it takes longer than what they do."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

_FORKSERVER = multiprocessing.get_context("forkserver")
_FORKSERVER.set_forkserver_preload(["fepflow.store.store", "fepflow.store.writer"])


@contextmanager
def started(work: Callable[..., None], *arguments: Any) -> Iterator[tuple[BaseProcess, Connection]]:
    """A process that does `work(connection, *arguments)`, and our end of the connection; killed in the end."""
    ours, theirs = _FORKSERVER.Pipe(duplex=False)
    process = _FORKSERVER.Process(target=work, args=(theirs, *arguments))
    process.start()
    theirs.close()
    try:
        yield process, ours
    finally:
        process.kill()
        process.join()
        ours.close()


def received(connection: Connection) -> list[Any]:
    """All that a process has sent before it ended."""
    values = []
    try:
        while True:
            values.append(connection.recv())
    except EOFError:
        return values


def sent_by(work: Callable[..., None], *arguments: Any) -> list[Any]:
    """All that a process sends until it ends by itself, without an error."""
    with started(work, *arguments) as (process, connection):
        values = received(connection)
        process.join()
        assert process.exitcode == 0
    return values
