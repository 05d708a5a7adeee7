"""The file or folder that is imported: read once, within limits, together with files below the same folder only.

A zip archive is read member by member, also those that are packed with Zstandard (method 93).
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, LargeZipFile, ZipFile, ZipInfo

from fepflow.datasets.records import MAX_JSON_BYTES, ErrorCollector, records
from fepflow.documents.files import UNREADABLE, open_plain, open_regular, read_text, reason, unreadable
from fepflow.documents.loader import Document, parse_document, parse_json
from fepflow.errors import DocumentPath, InputError, Problem
from fepflow.extras import require
from fepflow.imports.imported import cell, mapping

HEAD_BYTES = 65_536
MOST_PLACED = 2_000_000
"""Characters of JSON whose parts are found by line."""

MOST_MATCHES = 1_000
ROWS = ("data", "events", "items", "objects", "rows")
"""Names under which APIs list their rows."""


@dataclass(frozen=True)
class Source:
    """A file or folder to import; messages call it `name`."""

    path: Path
    name: str

    @property
    def is_folder(self) -> bool:
        """True for a folder: Harbor's jobs, inspect_ai's log folders."""
        return self.path.is_dir()

    @property
    def ending(self) -> str:
        """The ending in small letters, without `.gz`: `.json`."""
        suffixes = [suffix.lower() for suffix in self.path.suffixes if suffix.lower() != ".gz"]
        return suffixes[-1] if suffixes else ""

    @property
    def stem(self) -> str:
        """The name up to the first point, of up to 150 characters."""
        return self.path.name.strip(".").split(".")[0][:150]

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the file's bytes, or of the names and sizes of a folder's files."""
        if self.is_folder:
            digest = hashlib.sha256()
            for path in sorted(self.path.rglob("*"))[:100_000]:
                if path.is_file():
                    digest.update(f"{path.relative_to(self.path)}\0{path.stat().st_size}\n".encode("utf-8", "replace"))
            return digest.hexdigest()
        try:
            with open_regular(self.path) as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as error:
            raise InputError(Problem(unreadable(error)[0], self.name)) from None

    @cached_property
    def head(self) -> bytes:
        """The first bytes, unpacked; empty for a folder, and for a file that cannot be read."""
        with suppress(*UNREADABLE), open_plain(self.path) as stream:
            return stream.read(HEAD_BYTES)
        return b""

    @cached_property
    def document(self) -> Document:
        """The file as one JSON or YAML document, with lines. NaN is read, as Python's tools write it: a float.

        Raises InputError: larger than 100 MB (YAML 5 MB), bad syntax, a key that appears twice, a tag of YAML's.
        """
        if self.ending != ".json":
            return parse_document(read_text(self.path, self.name), self.name)
        text = read_text(self.path, self.name, MAX_JSON_BYTES)
        return Document(parse_json(text, self.name, nan=True), self.name, text)

    def line_of(self, path: DocumentPath) -> int | None:
        """Return the line of a part of the document; None where it takes too long to find (JSON above 2 MB)."""
        document = self.document
        return None if document.place is None and len(document.text) > MOST_PLACED else document.line_of(path)

    @property
    def is_document(self) -> bool:
        """True if the file is one JSON or YAML document by its ending."""
        return not self.is_folder and self.ending in (".json", ".yaml", ".yml")

    @property
    def data(self) -> Any:
        """The document's data; None if the file is not a document by its ending."""
        return self.document.data if self.is_document else None

    def records(self) -> Iterator[tuple[int, Any]]:
        """Yield the records of a JSONL or CSV file with their lines. NaN is read.

        Raises InputError after the last readable record, with what is wrong with the others.
        """
        errors = ErrorCollector(self.name)
        yield from records(self.path, "csv" if self.is_table else "jsonl", errors, nan=True)
        errors.raise_if_any()

    @property
    def is_table(self) -> bool:
        """True for a CSV file by its ending."""
        return self.ending in (".csv", ".tsv")

    @cached_property
    def first_record(self) -> Any:
        """The first readable record of a JSONL or CSV file; None for other files. Raises InputError without one."""
        is_read = not self.is_folder and (self.is_table or self.ending in (".jsonl", ".ndjson"))
        return next((record for _, record in self.records()), None) if is_read else None

    def listed(self, *names: str) -> list[Any] | None:
        """Return the list that the document is, or that it has under one of these names; None without one."""
        data = self.data
        if isinstance(data, dict):
            data = next((data[name] for name in names if isinstance(data.get(name), list)), None)
        return data if isinstance(data, list) else None

    def first_of(self, *names: str) -> Any:
        """Return the first record of a JSONL or CSV file, or of the list in a document; None without one."""
        return self.first_record if not self.is_document else next(iter(self.listed(*names) or ()), None)

    def items(self, *names: str) -> Iterator[tuple[int | None, Any]]:
        """Yield the records of a JSONL or CSV file, or those of the list in a document, with their lines."""
        if not self.is_document:
            yield from self.records()
            return
        data, listed = self.data, self.listed(*names)
        place = [name for name in names if isinstance(data, dict) and data.get(name) is listed][:1]
        for index, record in enumerate(listed or ()):
            yield self.line_of((*place, index)), record

    def rows(self) -> Iterator[tuple[int | None, dict[str, Any]]]:
        """Yield the rows of an export that are objects; those of JSONL and tables with their lines, cells as JSON."""
        if self.is_document:
            rows = self.listed(*ROWS) or [self.data]
            yield from ((None, row) for row in rows if isinstance(row, dict))
            return
        for line, row in self.records():
            if isinstance(row, dict):
                yield line, {name: cell(value) for name, value in row.items()} if self.is_table else row

    def first_row(self) -> dict[str, Any]:
        """Return the first row of an export, whose cells may be texts; an empty one if there is none."""
        return mapping(self.first_of(*ROWS) or self.data)

    def beside(self, name: str) -> Path | None:
        """Return a file that the imported one names, if it is there, below the same folder, also behind links."""
        folder = self.path.parent.resolve()
        try:
            path = (folder / name).resolve()
            return path if path.is_relative_to(folder) and path.is_file() else None
        except (OSError, ValueError, RuntimeError):
            return None

    def matching(self, pattern: str) -> list[str]:
        """Return the names of files that fit a pattern such as `tests/*.yaml`, below the same folder, in order."""
        folder = self.path.parent.resolve()
        try:
            names = sorted(path.relative_to(folder).as_posix() for path in islice(folder.glob(pattern), MOST_MATCHES))
        except (OSError, ValueError, NotImplementedError):  # the pattern leads out, or is absolute
            return []
        # A name that is a pattern, too, would be followed without end.
        return [name for name in names if "*" not in name and self.beside(name) is not None]


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
