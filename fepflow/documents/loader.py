"""YAML 1.2 and JSON documents, read safely even if they are hostile, with line numbers for errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fepflow.documents.files import read_text
from fepflow.documents.yaml import Place, parse_yaml, too_deep
from fepflow.errors import DocumentPath, InputError, Problem, dotted
from fepflow.json.values import is_deep, loads, loads_with_nan, syntax_error
from fepflow.text import brief


def _as_it_is(path: DocumentPath) -> DocumentPath:
    return path


@dataclass(frozen=True)
class Document:
    """A parsed document: plain Python data, and where its parts stand in the text."""

    data: Any
    file: str
    text: str = field(repr=False)
    place: Place | None = field(default=None, repr=False, compare=False)
    as_written: Callable[[DocumentPath], DocumentPath] = field(default=_as_it_is, repr=False, compare=False)
    """Returns where the text has what stands at a path of `data`, where these differ."""

    @cached_property
    def _root(self) -> Place | None:
        """The place of the whole; of JSON, which is YAML, nearly, it is looked up when the first error needs one."""
        if self.place is not None or not self.text:
            return self.place
        try:
            return parse_yaml(self.text, self.file)[1]
        except InputError:
            return None

    def line_of(self, path: DocumentPath) -> int | None:
        """Return the line, from 1, of what stands at `path`, or of its nearest ancestor; None in an empty text."""
        position = self.position_of(path)
        return position and position[0]

    def position_of(self, path: DocumentPath) -> tuple[int, int] | None:
        """Return line and column, from 1, of what stands at `path`; as `line_of`."""
        if self._root is None:
            return None
        place = self._root.at(self.as_written(path))
        return place.line + 1, place.column + 1

    def problem(self, path: DocumentPath, message: str, advice: str | None = None) -> Problem:
        """Return an error at `path` of this document."""
        return Problem(message, self.file, self.line_of(path), dotted(self.as_written(path)) or None, advice)


def read_document(path: Path, name: str | None = None) -> Document:
    """Parse a YAML or JSON file of at most 5 MB; `name` is how messages call it (default: the path as given).

    Raises InputError: not there, not UTF-8, too large, bad syntax, a duplicate key, aliases that expand without bound.
    """
    file = name or str(path)
    return parse_document(read_text(path, file), file)


def parse_document(text: str, file: str, *, nan: bool = False) -> Document:
    """Parse the text of a document; JSON when the name ends in .json, else YAML 1.2. See parse_json."""
    if file.endswith(".json"):
        return Document(parse_json(text, file, nan=nan), file, text)
    value, place = parse_yaml(text, file)
    return Document(value, file, text, place)


def parse_json(text: str, file: str, *, nan: bool = False) -> Any:
    """Return the JSON value of a text; with `nan`, it may hold NaN and infinities, as Python writes them.

    Raises InputError with the line and the column.
    """
    try:
        value = (loads_with_nan if nan else loads)(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        what = f"is not valid JSON: {syntax_error(error)}"
        raise InputError(Problem(what, file, error.lineno, column=error.colno)) from None
    except RecursionError:
        raise too_deep(file) from None
    except ValueError as error:
        raise InputError(Problem(f"is not valid JSON: {brief(str(error), 200)}", file)) from None
    if is_deep(value):
        raise too_deep(file)
    return value
