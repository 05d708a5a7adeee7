"""Files that users name: opened only if they are regular ones, unpacked, and read as UTF-8 text."""

from __future__ import annotations

import errno
import gzip
import os
import secrets
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO

from fepflow.errors import InputError, Problem
from fepflow.text import shortened

MAX_BYTES = 5_000_000


UNREADABLE = (OSError, EOFError, zlib.error)
"""Exceptions of reading a file that may be gzipped."""


def read_text(path: Path, file: str, limit: int = MAX_BYTES) -> str:
    """Return the text of a UTF-8 file, unpacked if its name ends in .gz, without its byte order mark.

    Raises InputError if it cannot be read, or is larger than `limit` bytes, unpacked.
    """
    try:
        with open_plain(path) as stream:
            raw = stream.read(limit + 1)
    except UNREADABLE as error:
        message, advice = unreadable(error)
        raise InputError(Problem(message, shortened(file), advice=advice)) from None
    if len(raw) > limit:
        raise InputError(Problem(f"is larger than {limit:,} bytes", file, advice="split it, or use JSONL for data"))
    return decode(raw, file)


def unreadable(error: Exception) -> tuple[str, str | None]:
    """Return why a file cannot be read, and advice."""
    match error:
        case gzip.BadGzipFile() | EOFError() | zlib.error():
            return "is not a complete gzip file", "copy or download it again"
        case FileNotFoundError():
            return "there is no such file", "check the path"
        case IsADirectoryError():
            return "is a folder", "name a file in it"
    return f"cannot be read: {reason(error)}", None


def replace_text(path: Path, text: str) -> None:
    """Write a file whole or not at all, with the mode of the one that it replaces."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="")
        if path.exists():
            part.chmod(path.stat().st_mode & 0o777)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def part_of(path: Path) -> Iterator[Path]:
    """Create a file of mode 0600 and an unpredictable name beside `path`. It is removed at the end, unless it was moved
    to `path`, so that `path` is written whole or not at all.
    """
    part = path.with_name(f".fepflow-{secrets.token_hex(8)}.part")
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY, 0o600))
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)


def reason(error: Exception) -> str:
    """Return why a file cannot be reached, in a few words."""
    loops = isinstance(error, RuntimeError) and "loop" in str(error)
    return "a symbolic link leads to itself" if loops else getattr(error, "strerror", None) or str(error)[:200]


def decode(raw: bytes, file: str) -> str:
    """Return bytes as UTF-8 text. Raises InputError with the line of the first byte that is not UTF-8."""
    if foreign := other_encoding(raw):
        raise InputError(Problem(foreign[0], file, advice=foreign[1]))
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(Problem(not_utf8(error), file, line, advice=SAVE_AS_UTF8)) from None


SAVE_AS_UTF8 = "save the file as UTF-8; Excel calls it CSV UTF-8"


def other_encoding(beginning: bytes) -> tuple[str, str] | None:
    """Return a message and advice if a file's first bytes are those of gzip data or of UTF-16."""
    if beginning.startswith(b"\x1f\x8b"):
        return "is gzip data, but its name does not end in .gz", "add .gz to its name, or unpack it"
    if beginning.startswith((b"\xff\xfe", b"\xfe\xff")) or beginning[1:4:2] == b"\0\0" or beginning[:3:2] == b"\0\0":
        return "is UTF-16, not UTF-8", SAVE_AS_UTF8
    return None


def not_utf8(error: UnicodeDecodeError) -> str:
    """Return a message about a byte that is not UTF-8, with its letter as spreadsheets and old editors write it."""
    byte = error.object[error.start : error.start + 1]
    letter = byte.decode("cp1252", "ignore")
    note = f" (in Windows-1252 or Latin-1 it is {letter})" if letter.isalpha() else ""
    return f"is not UTF-8: byte 0x{byte.hex()} at offset {error.start}{note}"


@contextmanager
def open_plain(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file for reading, unpacked if its name ends in .gz. Raises `UNREADABLE`, also while it is read."""
    with open_regular(path) as stream:
        if path.suffix.lower() != ".gz":
            yield stream
            return
        with gzip.open(stream) as plain:
            yield plain  # type: ignore[misc]  # GzipFile reads like any IO[bytes]


_KINDS = (
    (stat.S_ISFIFO, "is a pipe"),
    (stat.S_ISCHR, "is a device"),
    (stat.S_ISBLK, "is a device"),
    (stat.S_ISSOCK, "is a socket"),
)


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; the caller closes it. A pipe or a device would block, or never end.

    Raises OSError, whose `strerror` fits after "cannot be read: ", for what cannot be opened, and for folders, pipes,
    devices and sockets, without waiting.
    """
    try:
        _refuse_others(path, os.stat(path).st_mode)  # to open some devices does something to them
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, str(error)) from None
    try:
        _refuse_others(path, os.fstat(descriptor).st_mode)  # it may be another one by now
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _refuse_others(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    for is_kind, what in _KINDS:
        if is_kind(mode):
            raise OSError(errno.EINVAL, f"it {what}, not a regular file", str(path))
