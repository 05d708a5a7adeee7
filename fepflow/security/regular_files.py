"""Files that users name are opened only if they are regular files: a pipe or a device would block, or never end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_KINDS = (
    (stat.S_ISFIFO, "is a pipe"),
    (stat.S_ISCHR, "is a device"),
    (stat.S_ISBLK, "is a device"),
    (stat.S_ISSOCK, "is a socket"),
)


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading; the caller closes it.

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
