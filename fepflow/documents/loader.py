"""YAML 1.2 and JSON documents, read so that a hostile one cannot hurt and an error has a line number."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from fepflow.documents.yaml_parser import compose, parse_yaml, too_deep
from fepflow.errors import DocumentPath, InputError, Problem, dotted
from fepflow.json.values import is_deep, loads, syntax_error
from fepflow.security.regular_files import open_regular
from fepflow.text import shortened

MAX_BYTES = 5_000_000


@dataclass(frozen=True)
class Document:
    """A parsed document: plain Python data, and where its parts stand in the text."""

    data: Any
    file: str
    text: str = field(repr=False)

    @cached_property
    def _root(self) -> Node | None:
        try:
            return compose(self.text, self.file)  # JSON is YAML, nearly
        except InputError:
            return None

    def line_of(self, path: DocumentPath) -> int | None:
        """The line, from 1, of what stands at `path`, or of its nearest ancestor; None in an empty text."""
        position = self.position_of(path)
        return position and position[0]

    def position_of(self, path: DocumentPath) -> tuple[int, int] | None:
        """The same with the column, from 1."""
        node = self._root
        if node is None:
            return None
        mark = node.start_mark
        for step in path:
            name, node = _child(node, step)
            if node is None:
                break
            mark = (name or node).start_mark
        return int(mark.line) + 1, int(mark.column) + 1

    def is_plain_text(self, path: DocumentPath) -> bool:
        """Whether a scalar stands at `path` without quotes: YAML 1.1 may take it for something else than 1.2 does."""
        node = self._root
        for step in path:
            if node is None:
                break
            _, node = _child(node, step)
        return isinstance(node, ScalarNode) and not node.style

    def problem(self, path: DocumentPath, message: str, advice: str | None = None) -> Problem:
        """An error at `path` of this document."""
        return Problem(message, self.file, self.line_of(path), dotted(path) or None, advice)


def read_document(path: Path, name: str | None = None) -> Document:
    """Parse a YAML or JSON file of at most 5 MB; `name` is how messages call it (default: the path as given).

    Raises InputError: not there, not UTF-8, too large, bad syntax, a duplicate key, aliases that expand without bound.
    """
    file = name or str(path)
    return parse_document(read_text(path, file), file)


def read_text(path: Path, file: str, limit: int = MAX_BYTES) -> str:
    """The text of a UTF-8 file (a byte order mark is dropped), or an InputError with the reason."""
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


def reason(error: Exception) -> str:
    """Why a file cannot be reached, in a few words."""
    loops = isinstance(error, RuntimeError) and "loop" in str(error)
    return "a symbolic link leads to itself" if loops else getattr(error, "strerror", None) or str(error)[:200]


def decode(raw: bytes, file: str) -> str:
    """Bytes as UTF-8 text, or an InputError with the line of the first byte that is not."""
    if foreign := other_encoding(raw):
        raise InputError(Problem(foreign, file, 1, advice=SAVE_AS_UTF8))
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(Problem(not_utf8(raw, error.start), file, line, advice=SAVE_AS_UTF8)) from None


SAVE_AS_UTF8 = "save the file as UTF-8; Excel calls it CSV UTF-8"


def other_encoding(beginning: bytes) -> str | None:
    """The encoding by the first bytes of a file, if that is not UTF-8."""
    if beginning.startswith((b"\xff\xfe", b"\xfe\xff")) or beginning[1:4:2] == b"\0\0" or beginning[:3:2] == b"\0\0":
        return "is UTF-16, not UTF-8"
    return None


def not_utf8(raw: bytes, offset: int) -> str:
    """What is wrong at a byte that is no UTF-8, and which letter it is where spreadsheets and old editors write it."""
    text = f"is not UTF-8: byte 0x{raw[offset]:02x} at offset {offset}"
    letter = raw[offset : offset + 1].decode("cp1252", "ignore")
    return f"{text} (in Windows-1252 or Latin-1 it is {letter})" if letter.isalpha() else text


def parse_document(text: str, file: str) -> Document:
    """Parse the text of a document; JSON when the name ends in .json, else YAML 1.2."""
    return Document(_parse_json(text, file) if file.endswith(".json") else parse_yaml(text, file), file, text)


def _parse_json(text: str, file: str) -> Any:
    try:
        value = loads(text)
    except json.JSONDecodeError as error:
        raise InputError(Problem(f"is not valid JSON: {syntax_error(error)}", file, error.lineno)) from None
    except RecursionError:
        raise too_deep(file) from None
    except ValueError as error:
        raise InputError(Problem(f"is not valid JSON: {error}", file)) from None
    if is_deep(value):
        raise too_deep(file)
    return value


def _child(node: Node, step: str | int) -> tuple[Node | None, Node | None]:
    """The key and the value at a step of a mapping, or the item of a list, which has no key."""
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if isinstance(key, ScalarNode) and key.value == str(step):
                return key, value
    if isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.value):
        return None, node.value[step]
    return None, None
