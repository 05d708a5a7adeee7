"""Explanations of YAML errors, with advice about the common mistakes of people who write suites."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ruamel.yaml.error import MarkedYAMLError, YAMLError

from fepflow.errors import Problem
from fepflow.text import shortened

FLOW_COLON = "found unexpected ':'"
"""Message of the C parser about `{model: local:letters}`."""

FLOW_END = "did not find expected ',' or"
"""Beginning of its message about `{input: Who is it?}`, and about every bracket that is not closed."""

_SHOWN = 60
_QUOTE = "put the text in quotes"
_NO_SPACE = re.compile(r"^\s*(?:- +)?([A-Za-z_][\w-]*):(?![\s/])\S")
_ALIGN = ("the line is not aligned with its siblings", "indent siblings alike")

Place = tuple[int, int]
"""A line and a column, from 0."""

Explanation = tuple[str, str | None] | tuple[str, str | None, Place]
"""A message and advice, and a place that is not the one where the parser stopped."""


@dataclass(frozen=True)
class _ParseError:
    """The place where the parser stopped, and the beginning of what it was reading."""

    problem: str
    lines: list[str]
    place: Place
    context: Place | None

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

    def last(self, *chars: str) -> Place:
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
