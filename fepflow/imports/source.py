"""The file or folder that is imported: read once, within limits, together with files below the same folder only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from fepflow.datasets.records import MAX_JSON_BYTES, ErrorCollector, records
from fepflow.documents.files import UNREADABLE, open_plain, open_regular, read_text, unreadable
from fepflow.documents.loader import Document, parse_document, parse_json
from fepflow.errors import DocumentPath, InputError, Problem
from fepflow.imports.values import cell, mapping

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
