"""Members of a zip archive, also those that are packed with Zstandard (method 93), within limits."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, LargeZipFile, ZipFile, ZipInfo

from fepflow.documents.files import open_regular, reason
from fepflow.errors import InputError, Problem
from fepflow.extras import require
from fepflow.imports.source import Source

ZSTANDARD = 93
_METHODS = (ZIP_STORED, ZIP_DEFLATED, ZSTANDARD)

MAX_MEMBER_BYTES = 200_000_000
"""Size of one unpacked member: it is in memory as a whole."""
MAX_UNPACKED_BYTES = 50_000_000_000
"""Size of all members that are read, unpacked. A member may unpack to a thousand times its size."""

_ENCRYPTED = 0x1
_LOCAL_HEADER = 30
_SIGNATURE = b"PK\x03\x04"


class MemberError(Exception):
    """A member that cannot be read; the message fits after its name."""


class Archive:
    """An open zip archive. `names` has each name once: several members may have the same name."""

    def __init__(self, zipped: ZipFile, name: str) -> None:
        self._stream = zipped.fp
        self._members: dict[str, list[ZipInfo]] = {}
        for info in zipped.infolist():
            if not info.is_dir():
                self._members.setdefault(info.filename, []).append(info)
        self.name = name
        self.names = list(self._members)
        self._left = MAX_UNPACKED_BYTES

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def copies(self, name: str) -> int:
        """Return how many members have this name."""
        return len(self._members[name])

    def read(self, name: str, copy: int = -1) -> bytes:
        """Return a member, unpacked; of several the last one. Raises MemberError: damaged, encrypted or too large."""
        info = self._members[name][copy]
        if info.flag_bits & _ENCRYPTED:
            raise MemberError("is encrypted")
        if info.compress_type not in _METHODS:
            raise MemberError(f"is packed by the unknown method {info.compress_type}")
        if info.file_size > MAX_MEMBER_BYTES or info.compress_size > MAX_MEMBER_BYTES:
            raise MemberError(f"is larger than {MAX_MEMBER_BYTES:,} bytes")
        self._left -= info.file_size
        if self._left < 0:
            message = f"unpacks to more than {MAX_UNPACKED_BYTES:,} bytes"
            raise InputError(Problem(message, self.name, advice="it may be made to exhaust memory: look at it first"))
        try:
            data = _unpacked(self._packed(info), info)
        except (OSError, ValueError, zlib.error) as error:
            raise MemberError(f"is damaged: {error}") from None
        if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
            raise MemberError("is damaged: its checksum or its size is another one")
        return data

    def _packed(self, info: ZipInfo) -> bytes:
        assert self._stream is not None
        self._stream.seek(info.header_offset)
        header = self._stream.read(_LOCAL_HEADER)
        if len(header) != _LOCAL_HEADER or not header.startswith(_SIGNATURE):
            raise ValueError("it does not begin where the archive says")
        # The local header's own name and extra field stand before the data; their lengths are at 26 and 28.
        skipped = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        self._stream.seek(info.header_offset + _LOCAL_HEADER + skipped)
        return self._stream.read(info.compress_size)


def _unpacked(packed: bytes, info: ZipInfo) -> bytes:
    """Return the data, of at most one byte more than the archive says: a bomb is not unpacked."""
    if info.compress_type == ZIP_STORED:
        return packed
    if info.compress_type == ZIP_DEFLATED:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, info.file_size + 1)
    import zstandard

    try:
        reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(packed, read_across_frames=True)
        return bytes(reader.read(info.file_size + 1))
    except (zstandard.ZstdError, MemoryError) as error:
        raise ValueError(str(error)) from None


@contextmanager
def open_archive(source: Source) -> Iterator[Archive]:
    """Open a zip archive. Raises InputError for other files, MissingExtraError if a member needs `zstandard`."""
    try:
        with open_regular(source.path) as stream, ZipFile(stream) as zipped:
            archive = Archive(zipped, source.name)
            if any(info.compress_type == ZSTANDARD for info in zipped.infolist()):
                require("run", f"{source.name}, which is packed with Zstandard,", "zstandard")
            yield archive
    except (BadZipFile, LargeZipFile, EOFError, NotImplementedError, UnicodeDecodeError) as error:
        message = f"is not a whole zip archive: {error}"
        raise InputError(Problem(message, source.name, advice="copy or download it again")) from None
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {reason(error)}", source.name)) from None
