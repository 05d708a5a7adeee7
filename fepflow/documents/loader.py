"""YAML 1.2 and JSON documents, read safely even if they are hostile, with line numbers for errors.

Errors in YAML have advice about the common mistakes of people who write suites. `dump_yaml` writes YAML.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    StreamEndEvent,
)
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from fepflow.documents.files import read_text
from fepflow.errors import DocumentPath, InputError, Problem, dotted
from fepflow.json.values import MAX_DEPTH, is_deep, loads, loads_with_nan, map_leaves, syntax_error
from fepflow.text import brief, shortened


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


# --- YAML and its errors ---------------------------------------------------------------------------------------------


MAX_EVENTS = 200_000
MAX_EXPANDED_NODES = 1_000_000
_SLOWLY = 200_000
"""Characters that the parser in Python is given, which takes 3 s for 100,000."""

Event = Any
"""An event of ruamel.yaml, whose stubs say only of some what they have."""

_CORE = "tag:yaml.org,2002:"
_CONSTANTS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?(?:[0-9]+|0o[0-7]+|0x[0-9A-Fa-f]+|0b[01]+)")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
"""The core schema of YAML 1.2: no dates, no numbers with underscores, and `yes` is a text."""


@dataclass(slots=True)
class Place:
    """The place of a value, from 0, and those of its parts by key or index: each has that of its key and its own."""

    line: int
    column: int
    parts: dict[str | int, tuple[Place, Place]] = field(default_factory=dict)

    def at(self, path: DocumentPath) -> Place:
        """Return the place of the key, or else of the value, at `path`, or of its nearest ancestor."""
        name = value = self
        for step in path:
            part = value.parts.get(step) or value.parts.get(str(step))
            if part is None:
                break
            name, value = part
        return name


def parse_yaml(text: str, file: str) -> tuple[Any, Place | None]:
    """Return the value that YAML text holds, and its place; None twice for an empty text.

    Raises InputError, with line, column and advice: bad syntax, a duplicate key, aliases that expand without bound,
    values that JSON does not have.
    """
    try:
        return _parsed(text, file)
    except YAMLError as error:
        raise InputError(problem_of(error, text, file)) from None
    except (ValueError, KeyError, RecursionError) as error:
        raise InputError(Problem(f"is not valid YAML: {error}", file)) from None


def _parsed(text: str, file: str) -> tuple[Any, Place | None]:
    # The C parser: a suite with a thousand inline cases reads in 0.1 s, not in 2.
    try:
        return _Builder(YAML(typ="safe").parse(text), file).document()
    except YAMLError as error:
        # It does not know `{model: local:letters}` and `{input: Who?}`, which YAML 1.2 and the parser in Python do.
        has_question = "?" in text and FLOW_END in str(error)
        if not (has_question or FLOW_COLON in str(error)) or len(text) > _SLOWLY:
            raise
        try:
            return _Builder(YAML(typ="safe", pure=True).parse(text), file).document()
        except YAMLError:
            if has_question:
                raise error from None  # its message is the one with advice
            raise


def too_deep(file: str, line: int | None = None) -> InputError:
    """Return the error of a document that nests deeper than it may."""
    return InputError(Problem(f"is nested deeper than {MAX_DEPTH} levels", file, line))


class _Part(NamedTuple):
    """A value with its place, the number of values in it, itself included, and the number of its levels."""

    value: Any
    place: Place
    size: int = 1
    height: int = 0


class _Builder:
    """Builds values from the flat stream of events, and counts them, because aliases make a small text a huge document.

    The C composer is not used: it recurses, and deep nesting crashes the process.
    """

    def __init__(self, events: Iterator[Event], file: str) -> None:
        self._events = events
        self._file = file
        self._count = 0
        self._depth = 0
        self._anchors: dict[str, _Part | None] = {}

    def document(self) -> tuple[Any, Place | None]:
        self._next()
        event = self._next()
        if isinstance(event, StreamEndEvent):
            return None, None
        part = self._part(self._next())
        self._next()
        if isinstance(event := self._next(), DocumentStartEvent):
            raise _error("but found another document", event)
        return part.value, part.place

    def _next(self) -> Event:
        event = next(self._events)
        self._count += 1
        if self._count > MAX_EVENTS:
            message = f"holds more than {MAX_EVENTS:,} values"
            raise InputError(Problem(message, self._file, event.start_mark.line + 1, advice="use JSONL for data"))
        return event

    def _part(self, event: Event) -> _Part:
        if isinstance(event, AliasEvent):
            return self._alias(event)
        if event.anchor:
            self._anchors[event.anchor] = None  # known, and not at its end
        part = self._scalar(event) if isinstance(event, ScalarEvent) else self._collection(event)
        if event.anchor:
            self._anchors[event.anchor] = part
        return part

    def _alias(self, event: AliasEvent) -> _Part:
        line = event.start_mark.line + 1
        if event.anchor not in self._anchors:
            raise _error(f"found undefined alias {event.anchor!r}", event)
        part = self._anchors[event.anchor]
        if part is None:
            raise InputError(Problem("an alias contains itself", self._file, line))
        if self._depth + part.height > MAX_DEPTH:
            raise too_deep(self._file, line)
        self._require_bounded(part.size)
        return part._replace(value=map_leaves(part.value, lambda leaf: leaf))  # a copy of its own, as in JSON

    def _require_bounded(self, size: int) -> None:
        if size > MAX_EXPANDED_NODES:
            raise InputError(Problem(f"its aliases expand to more than {MAX_EXPANDED_NODES:,} nodes", self._file))

    def _collection(self, event: Event) -> _Part:
        is_mapping = isinstance(event, MappingStartEvent)
        if event.tag not in (None, f"{_CORE}{'map' if is_mapping else 'seq'}"):
            raise _unknown_tag(event)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise too_deep(self._file, event.start_mark.line + 1)
        part = self._mapping(event) if is_mapping else self._sequence(event)
        self._depth -= 1
        return part

    def _sequence(self, start: Event) -> _Part:
        values: list[Any] = []
        places: dict[str | int, tuple[Place, Place]] = {}
        size, height = 1, 0
        while not isinstance(event := self._next(), SequenceEndEvent):
            part = self._part(event)
            places[len(values)] = part.place, part.place
            values.append(part.value)
            size, height = size + part.size, max(height, part.height)
            self._require_bounded(size)
        return _Part(values, _place(start, places), size, height + 1)

    def _mapping(self, start: Event) -> _Part:
        merged: dict[str, Any] = {}
        values: dict[str, Any] = {}
        places: dict[str | int, tuple[Place, Place]] = {}
        size, height, has_merge = 1, 0, False
        while not isinstance(event := self._next(), MappingEndEvent):
            is_merge = isinstance(event, ScalarEvent) and event.value == "<<" and event.implicit[0]
            key, key_place = self._key(event)
            part = self._part(self._next())
            if (key in values) if not is_merge else has_merge:
                raise _error(f'found duplicate key "{key}"', event)
            if is_merge:
                has_merge = True
                merged = _merged(part.value, event)
            else:
                values[key], places[key] = part.value, (key_place, part.place)
            size, height = size + 1 + part.size, max(height, part.height)
            self._require_bounded(size)
        return _Part({**merged, **values}, _place(start, places), size, height + 1)

    def _key(self, event: Event) -> tuple[str, Place]:
        """Return a key as JSON has it: `1:` and `'1':` are the same key, `true:` and `1:` are not."""
        if isinstance(event, ScalarEvent):
            if event.tag is not None and not event.tag.startswith(_CORE):
                raise _unknown_tag(event)
            part = _Part(event.value, _place(event))
            if event.anchor:
                self._anchors[event.anchor] = part
        else:
            part = self._part(event)
        if isinstance(part.value, dict | list):
            raise _error("found unhashable key", event)
        if not isinstance(part.value, str):  # by an alias
            raise _error(f"{shown(str(part.value))} cannot be a key: JSON's keys are strings", event)
        return part.value, part.place

    def _scalar(self, event: ScalarEvent) -> _Part:
        try:
            return _Part(_scalar_value(event), _place(event))
        except ValueError as error:
            mark, advice = event.start_mark, "put it in quotes, if it is a text"
            place = {"line": mark.line + 1, "column": mark.column + 1}
            raise InputError(Problem(f"is not valid YAML: {error}", self._file, advice=advice, **place)) from None


def _scalar_value(event: ScalarEvent) -> Any:
    text, tag = event.value, event.tag
    if tag is None:
        return _plain_value(text) if event.implicit[0] else text
    if tag in ("!", *(f"{_CORE}{kind}" for kind in ("str", "timestamp", "value", "merge"))):
        return text
    value: Any = _plain_value(text)
    match tag.removeprefix(_CORE), value:
        case "binary" | "set" as kind, _:
            raise ValueError(f"a {kind} is not a JSON value")
        case "null", _:
            return None
        case "bool", bool():
            return value
        case "bool", _:
            raise ValueError(f"{shown(text)} is not true or false")
        case "int" | "float", bool() | str() | None:
            raise ValueError(f"{shown(text)} is not a number")
        case "int", _:
            return int(value)
        case "float", _:
            return float(value)
    raise _unknown_tag(event)


def _plain_value(text: str) -> Any:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        sign, digits = (-1 if text[0] == "-" else 1), text.lstrip("+-")
        base = {"0o": 8, "0x": 16, "0b": 2}.get(digits[:2], 10)
        # Python writes at most 4,300 decimal digits; 3,500 digits of base 16 are 4,215.
        if len(digits) > (4_300 if base == 10 else 3_500):
            raise ValueError("a number has too many digits")
        return sign * int(digits, base)
    if _FLOAT.fullmatch(text) or _NOT_FINITE.fullmatch(text):
        value = float(text.replace(".inf", "inf").replace(".nan", "nan") if text[-1].isalpha() else text)
        if not math.isfinite(value):
            raise ValueError(f"{value} is not a JSON value")
        return value
    return text


def _merged(value: Any, event: Event) -> dict[str, Any]:
    """Return the members that `<<` merges into a mapping: of a mapping, or of several, where the first wins."""
    mappings = value if isinstance(value, list) else [value]
    if not all(isinstance(mapping, dict) for mapping in mappings):
        raise _error("<< takes a mapping, or a list of mappings", event)
    return {key: item for mapping in reversed(mappings) for key, item in mapping.items()}


def _place(event: Event, parts: dict[str | int, tuple[Place, Place]] | None = None) -> Place:
    return Place(event.start_mark.line, event.start_mark.column, parts or {})


def _error(problem: str, event: Event) -> MarkedYAMLError:
    return MarkedYAMLError(problem=problem, problem_mark=event.start_mark)


def _unknown_tag(event: Event) -> MarkedYAMLError:
    return _error(f"could not determine a constructor for the tag {event.tag!r}", event)


_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@ +-]*")
_WORDS = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"})
"""Words that some version of YAML does not take for texts."""


def dump_yaml(value: Any) -> str:
    """Return a JSON value as YAML that people read, and that `parse_yaml` reads as the same value.

    Half a character (a lone surrogate), which no file can hold, becomes its escape.
    """
    yaml = YAML()
    yaml.width = 10_000
    yaml.indent(mapping=2, sequence=4, offset=2)
    stream = io.StringIO()
    yaml.dump(_quoted(value), stream)
    return stream.getvalue().removesuffix("...\n")


def _quoted(value: Any) -> Any:
    if isinstance(value, dict):
        return {_text(key): _quoted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_quoted(item) for item in value]
    return _text(value) if isinstance(value, str) else value


def _text(text: str) -> str:
    text = _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    is_plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS and text == text.strip()
    return text if is_plain else DoubleQuotedScalarString(text)


FLOW_COLON = "found unexpected ':'"
"""Message of the C parser about `{model: local:letters}`."""

FLOW_END = "did not find expected ',' or"
"""Beginning of its message about `{input: Who is it?}`, and about every bracket that is not closed."""

_SHOWN = 60
_QUOTE = "put the text in quotes"
_NO_SPACE = re.compile(r"^\s*(?:- +)?([A-Za-z_][\w-]*):(?![\s/])\S")
_ALIGN = ("the line is not aligned with its siblings", "indent siblings alike")

LineColumn = tuple[int, int]
"""A line and a column, from 0."""

Explanation = tuple[str, str | None] | tuple[str, str | None, LineColumn]
"""A message and advice, and a place that is not the one where the parser stopped."""


@dataclass(frozen=True)
class _ParseError:
    """The place where the parser stopped, and the beginning of what it was reading."""

    problem: str
    lines: list[str]
    place: LineColumn
    context: LineColumn | None

    @property
    def text(self) -> str:
        """The line where it stopped."""
        return self.text_of(self.place[0])

    @property
    def before(self) -> str:
        """The part of the line that it has read."""
        return self.text[: self.place[1]]

    @property
    def char(self) -> str:
        """The character where it stopped."""
        return self.text[self.place[1] : self.place[1] + 1]

    def text_of(self, line: int) -> str:
        return self.lines[line] if 0 <= line < len(self.lines) else ""

    def last(self, *chars: str) -> LineColumn:
        """Return the place of the last of some characters up to where it stopped."""
        return self.place[0], max(0, *(self.text.rfind(char, 0, self.place[1] + 1) for char in chars))


def shown(text: str) -> str:
    """Return the beginning of a text, in quotes, in one line."""
    return repr(shortened(text, _SHOWN))


def problem_of(error: YAMLError, text: str, file: str) -> Problem:
    """Return the parser's error as a Problem with line, column and advice; it contains no value of the text."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if not isinstance(error, MarkedYAMLError) or mark is None:
        advice = "save it as plain text" if "control characters" in str(error) else None
        return Problem(f"is not valid YAML: {str(error).splitlines()[0]}", file, advice=advice)
    problem, context = str(error.problem or error.context).strip().splitlines()[0], error.context_mark
    lines, place = re.split(r"\r\n|\r|\n", text), (mark.line, mark.column)
    parse_error = _ParseError(problem, lines, place, (context.line, context.column) if context else None)
    explain = next((explain for part, explain in _EXPLAINED if part in problem), lambda it: (it.problem, None))
    message, advice, *places = explain(parse_error)
    line, column = places[0] if places else place
    return Problem(f"is not valid YAML: {message}", file, line + 1, None, advice, column=column + 1)


def _no_token(it: _ParseError) -> Explanation:
    if it.char == "\t":
        return "a tab stands where the line is indented", "indent with spaces"
    return f"no value can begin with {it.char} in YAML", _QUOTE


def _alias(it: _ParseError) -> Explanation:
    line, column = it.last("*", "&")
    meaning = {"*": "an alias of a value that has an anchor", "&": "an anchor"}.get(
        char := it.text[column : column + 1]
    )
    return (f"what begins with {char} is {meaning} in YAML", _QUOTE, (line, column)) if meaning else (it.problem, None)


def _double_braces(it: _ParseError) -> Explanation | None:
    if "{{" not in it.text:
        return None
    place = (it.place[0], it.text.find("{{"))
    return "{{ without quotes is a mapping in YAML, and not a text", f'{_QUOTE}, as in "{{{{$.output.value}}}}"', place


def _unhashable(it: _ParseError) -> Explanation:
    return _double_braces(it) or ("a mapping or a list cannot be a key", "keys are texts; " + _QUOTE)


def _open_quote(it: _ParseError) -> Explanation:
    return "a quote is opened here and never closed", "close it", it.context or it.place


def _escape(it: _ParseError) -> Explanation:
    line, column = it.last("\\")
    message = f"\\{it.text[column + 1 : column + 2]} means nothing inside of double quotes"
    return message, "use single quotes, as for patterns: '\\d+', or write \\\\", (line, column)


def _missing_space(it: _ParseError, line: int) -> Explanation | None:
    key = _NO_SPACE.match(it.text_of(line))
    if key is None:
        return None
    return f"there is no space after `{key[1]}:`", f"write `{key[1]}: ` and the value", (line, key.end(1) + 1)


def _second_colon(it: _ParseError) -> Explanation:
    line = it.place[0]
    if explanation := _missing_space(it, line) or _missing_space(it, line - 1):
        return explanation
    if ": " in it.before.strip():
        return "a second ': ' in one line", _QUOTE + ", if it is one"
    return "the line is indented further than the lines above", "align it with its siblings"


def _no_colon(it: _ParseError) -> Explanation:
    start = it.context or it.place
    if explanation := _missing_space(it, start[0]):
        return explanation
    if re.match(r"\s*-\w", it.text_of(start[0])):
        return "there is no space after the dash", "write `- ` and the item", start
    advice = "indent it, if it goes on with the text above"
    return "this line is neither `name: value` nor an item `- value`", advice, start


def _flow(it: _ParseError) -> Explanation:
    if it.char == "{" and it.before.endswith("$"):
        advice = 'put it in quotes, as in {url: "${AGENT_URL}"}'
        return "${NAME} inside of { } or [ ] needs quotes", advice, (it.place[0], it.place[1] - 1)
    if explanation := _double_braces(it):
        return explanation
    opened = f" that was opened in line {it.context[0] + 1}" if it.context else ""
    bracket = "[ ]" if "]" in it.problem else "{ }"
    advice = "close it; a text inside with , : { } [ ] or # needs quotes"
    return f"a comma or the end of the {bracket}{opened} is missing", advice


def _no_key(it: _ParseError) -> Explanation:
    if explanation := _double_braces(it):
        return explanation
    if not it.before.strip():
        return _ALIGN
    if re.search(r"[\"'\]}]\s*$", it.before):
        advice = "put all of it in quotes; inside of '…' a quote is written '', inside of \"…\" \\\""
        return "the text goes on after a closing quote or bracket", advice
    return "a key is expected here", _QUOTE


_EXPLAINED: list[tuple[str, Callable[[_ParseError], Explanation]]] = [
    ("cannot start any token", _no_token),
    ("tab character", lambda _: ("a tab stands where the line is indented", "indent with spaces")),
    ("undefined alias", _alias),
    ("expected alphabetic or numeric character", _alias),
    ("unhashable key", _unhashable),
    ("unexpected end of stream", _open_quote),
    ("unexpected document separator", _open_quote),
    ("unknown escape character", _escape),
    ("mapping values are not allowed", _second_colon),
    ("could not find expected ':'", _no_colon),
    ("expected ',' or", _flow),
    ("unexpected ':'", _flow),
    ("expected key", _no_key),
    ("expected <block end>", _no_key),
    ("'-' indicator", lambda _: _ALIGN),
    ("another document", lambda _: ("a second document begins here", "a file holds one; take the line --- out")),
    ("duplicate key", lambda it: (it.problem.partition(" with value")[0], None)),
    ("constructor for the tag", lambda _: ("what begins with ! is a tag, and this one is not known", _QUOTE)),
    ("unknown directive", lambda _: ("a line that begins with % is a directive in YAML", _QUOTE)),
    ("expected node content", lambda it: (f"no value can begin with {it.char}", _QUOTE)),
    ("comment or line break", lambda _: ("the text after | or > begins in the next line", _QUOTE)),
]
"""Parts of the parser's messages, and their explanations; the first that fits counts."""
