"""The output of a process whose reader may go: a `head` that has enough, a `tee` that ends, a killed `serve`.

An error of a write would be an error of a test case whose agent prints, and Rich, with which Prefect logs, would end
the process in the middle of a run.
"""

from __future__ import annotations

import os
import sys
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any

OUTPUT = "<output>"
"""File name in an OSError of the process's own output."""


class _OutlivingFile(FileIO):
    """A file descriptor whose output goes nowhere from the moment when nobody reads it any more."""

    def write(self, data: Any) -> int:
        """Write the data; return the number of bytes. Raises OSError with the file name OUTPUT, for a full disk."""
        try:
            return super().write(data)
        except BrokenPipeError:
            _send_nowhere(self.fileno())
            return super().write(data)
        except OSError as error:
            error.filename = OUTPUT
            raise


def outlive_reader() -> None:
    """Let this process go on without output when nobody reads it any more."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        # Not a terminal, which has no other end, and not what a host program has put there.
        if not isinstance(stream, TextIOWrapper) or _descriptor(stream) not in (1, 2) or stream.isatty():
            continue
        stream.flush()
        is_buffered = isinstance(stream.buffer, BufferedWriter)  # not with PYTHONUNBUFFERED
        new = outliving(stream.fileno(), stream.encoding, stream.errors, is_buffered=is_buffered, closefd=False)
        new.reconfigure(line_buffering=stream.line_buffering, write_through=stream.write_through)
        setattr(sys, name, new)
    # Handlers of Prefect that exist already write to the former streams.
    if (rich := sys.modules.get("rich.console")) is not None:
        rich.Console.on_broken_pipe = _print_nowhere  # meant for subclasses


def outliving(
    descriptor: int, encoding: str, errors: str | None = None, *, is_buffered: bool = True, closefd: bool = True
) -> TextIOWrapper:
    """Return a stream to a file descriptor, which goes on without a reader."""
    file: Any = _OutlivingFile(descriptor, "w", closefd=closefd)
    return TextIOWrapper(BufferedWriter(file) if is_buffered else file, encoding, errors)


def _descriptor(stream: TextIOWrapper) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError):  # a stream in memory, or a closed one
        return None


def _print_nowhere(console: Any) -> None:
    console.quiet = True
    for number in (1, 2):
        _send_nowhere(number)


def _send_nowhere(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
