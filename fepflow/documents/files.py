"""Files that users name: opened only if they are regular ones, and read as UTF-8 text."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path
from typing import BinaryIO

from fepflow.errors import InputError, Problem
from fepflow.text import shortened

MAX_BYTES = 5_000_000


def read_text(path: Path, file: str, limit: int = MAX_BYTES) -> str:
    """Return the text of a UTF-8 file (a byte order mark is dropped), or an InputError with the reason."""
    try:
        with open_regular(path) as stream:
            raw = stream.read(limit + 1)
    except FileNotFoundError:
        raise InputError(Problem("there is no such file", file, advice="check the path")) from None
    except IsADirectoryError:
        raise InputError(Problem("is a folder", shortened(file), advice="name a file in it")) from None
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {reason(error)}", shortened(file))) from None
    if len(raw) > limit:
        raise InputError(Problem(f"is larger than {limit:,} bytes", file, advice="split it, or use JSONL for data"))
    return decode(raw, file)


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


def reason(error: Exception) -> str:
    """Why a file cannot be reached, in a few words."""
    loops = isinstance(error, RuntimeError) and "loop" in str(error)
    return "a symbolic link leads to itself" if loops else getattr(error, "strerror", None) or str(error)[:200]


def decode(raw: bytes, file: str) -> str:
    """Return bytes as UTF-8 text, or an InputError with the line of the first byte that is not."""
    if foreign := other_encoding(raw):
        raise InputError(Problem(foreign, file, 1, advice=SAVE_AS_UTF8))
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(Problem(not_utf8(raw, error.start), file, line, advice=SAVE_AS_UTF8)) from None


SAVE_AS_UTF8 = "save the file as UTF-8; Excel calls it CSV UTF-8"


def other_encoding(beginning: bytes) -> str | None:
    """Return the encoding by the first bytes of a file, if that is not UTF-8."""
    if beginning.startswith((b"\xff\xfe", b"\xfe\xff")) or beginning[1:4:2] == b"\0\0" or beginning[:3:2] == b"\0\0":
        return "is UTF-16, not UTF-8"
    return None


def not_utf8(raw: bytes, offset: int) -> str:
    """Return what is wrong at a byte that is no UTF-8, and its letter as spreadsheets and old editors write it."""
    text = f"is not UTF-8: byte 0x{raw[offset]:02x} at offset {offset}"
    letter = raw[offset : offset + 1].decode("cp1252", "ignore")
    return f"{text} (in Windows-1252 or Latin-1 it is {letter})" if letter.isalpha() else text


_KINDS = (
    (stat.S_ISFIFO, "is a pipe"),
    (stat.S_ISCHR, "is a device"),
    (stat.S_ISBLK, "is a device"),
    (stat.S_ISSOCK, "is a socket"),
)


def open_regular(path: Path) -> BinaryIO:
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
            raise OSError(errno.EINVAL, f"it {what}, and no regular file", str(path))
