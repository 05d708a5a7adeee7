"""The file, or folder, that is imported: read once, within limits, and never more than it and what stands beside it."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import count, islice
from pathlib import Path
from typing import IO, Any

from fepflow.datasets.records import MAX_JSON_BYTES, MAX_LINE_BYTES, ErrorCollector, records
from fepflow.documents.files import decode, open_regular, reason
from fepflow.documents.loader import Document, parse_document, parse_json
from fepflow.errors import DocumentPath, InputError, Problem

HEAD_BYTES = 65_536
MOST_PLACED = 2_000_000
"""Characters of JSON whose parts are found by line."""
MOST_MATCHES = 1_000
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Source:
    """A file or folder to import; `name` is how messages call it."""

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

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the file's bytes, or of the names and sizes of a folder's files."""
        found = hashlib.sha256()
        if self.is_folder:
            for path in sorted(self.path.rglob("*"))[:100_000]:
                if path.is_file():
                    found.update(f"{path.relative_to(self.path)}\0{path.stat().st_size}\n".encode("utf-8", "replace"))
            return found.hexdigest()
        with self._opened(raw=True) as stream:
            while chunk := stream.read(_CHUNK):
                found.update(chunk)
        return found.hexdigest()

    @cached_property
    def head(self) -> bytes:
        """The first bytes, unpacked; nothing of a folder."""
        if self.is_folder:
            return b""
        try:
            with self._opened() as stream:
                return stream.read(HEAD_BYTES)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            return b""

    @cached_property
    def document(self) -> Document:
        """The file as one JSON or YAML document, with lines. NaN is read, as Python's tools write it: a float.

        Raises InputError: larger than 100 MB (YAML 5 MB), bad syntax, a key that appears twice, a tag of YAML's.
        """
        text = self.text()
        if self.ending in (".yaml", ".yml"):
            return parse_document(text, self.name)
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
        """The document's data; None for what is none by its ending."""
        return self.document.data if self.is_document else None

    @cached_property
    def first_record(self) -> Any:
        """The first record of a JSONL or CSV file; None if there is none, or it cannot be read."""
        if self.is_folder or self.ending not in (".jsonl", ".ndjson", ".csv", ".tsv"):
            return None
        if self._format == "jsonl":
            try:
                return next((record for _, record in self.json_lines()), None)
            except InputError:
                return None
        errors = ErrorCollector(self.name)
        return next((record for _, record in records(self.path, self._format, errors)), None)

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

    @property
    def stem(self) -> str:
        """The name up to the first point, of up to 150 characters."""
        return self.path.name.strip(".").split(".")[0][:150]

    def require_first_record(self) -> None:
        """Raise InputError if the first record of a JSONL file cannot be read: why, and in which line."""
        if not self.is_folder and self.ending in (".jsonl", ".ndjson"):
            next(self.json_lines(), None)

    def records(self) -> Iterator[tuple[int, Any]]:
        """Yield the records of a JSONL or CSV file with their lines; raises InputError after the last good one"""
        errors = ErrorCollector(self.name)
        yield from records(self.path, self._format, errors)
        errors.raise_if_any()

    def json_lines(self) -> Iterator[tuple[int, Any]]:
        """Yield the values of a JSONL file with their lines. NaN is read. Raises InputError at the first bad line."""
        with self._opened() as stream:
            for number in count(1):
                raw = stream.readline(MAX_LINE_BYTES + 1)
                if not raw:
                    return
                if len(raw) > MAX_LINE_BYTES:
                    raise InputError(Problem(f"this line is larger than {MAX_LINE_BYTES:,} bytes", self.name, number))
                try:
                    if raw.strip():
                        yield number, parse_json(raw.decode(), self.name, nan=True)
                except (InputError, UnicodeDecodeError) as error:
                    what = error.problems[0].message if isinstance(error, InputError) else "is not UTF-8"
                    raise InputError(Problem(what, self.name, number)) from None

    def text(self, limit: int = MAX_JSON_BYTES) -> str:
        """Return the whole text, unpacked, of at most so many bytes; raises InputError."""
        try:
            with self._opened() as stream:
                raw = stream.read(limit + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise InputError(Problem("is no complete gzip file", self.name)) from None
        if len(raw) > limit:
            raise InputError(Problem(f"is larger than {limit:,} bytes", self.name, advice="import it in parts"))
        return decode(raw, self.name)

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
            found = sorted(path.relative_to(folder).as_posix() for path in islice(folder.glob(pattern), MOST_MATCHES))
        except (OSError, ValueError, NotImplementedError):  # the pattern leads out, or is absolute
            return []
        # A name that is a pattern, too, would be followed without end.
        return [name for name in found if "*" not in name and self.beside(name) is not None]

    @property
    def _format(self) -> Any:
        return "csv" if self.ending in (".csv", ".tsv") else "jsonl"

    @contextmanager
    def _opened(self, *, raw: bool = False) -> Iterator[IO[bytes]]:
        try:
            stream = open_regular(self.path)
        except FileNotFoundError:
            raise InputError(Problem("there is no such file", self.name, advice="check the path")) from None
        except OSError as error:
            raise InputError(Problem(f"cannot be read: {reason(error)}", self.name)) from None
        with stream:
            if raw or self.path.suffix.lower() != ".gz":
                yield stream
                return
            with gzip.open(stream) as plain:
                yield plain  # type: ignore[misc]  # GzipFile reads like any IO[bytes]
