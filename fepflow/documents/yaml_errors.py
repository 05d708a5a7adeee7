"""Explains errors of the YAML parser and says what to do: the common traps of people who write suites."""

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
_BRACES = 'put the text in quotes, as in "{{$.output.value}}"'
_NO_SPACE = re.compile(r"^\s*(?:- +)?([A-Za-z_][\w-]*):(?![\s/])\S")


@dataclass(frozen=True)
class _ParseError:
    """The place where the parser stopped, and the beginning of what it was reading; lines and columns from 0."""

    file: str
    problem: str
    lines: list[str]
    line: int
    column: int
    context: tuple[int, int] | None

    @property
    def text(self) -> str:
        """The line where it stopped."""
        return self.text_of(self.line)

    @property
    def char(self) -> str:
        """The character where it stopped."""
        return self.text[self.column : self.column + 1]

    def text_of(self, line: int) -> str:
        return self.lines[line] if 0 <= line < len(self.lines) else ""

    def explained(self, message: str, advice: str | None = None, at: tuple[int, int] | None = None) -> Problem:
        line, column = at or (self.line, self.column)
        return Problem(f"is not valid YAML: {message}", self.file, line + 1, None, advice, column=column + 1)


def shown(text: str) -> str:
    """Return the beginning of a text, in quotes, in one line."""
    return repr(shortened(text, _SHOWN))


def problem_of(error: YAMLError, text: str, file: str) -> Problem:
    """Return the parser's error as a Problem with line, column and advice; no value of the text is in it."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if not isinstance(error, MarkedYAMLError) or mark is None:
        return Problem(f"is not valid YAML: {str(error).splitlines()[0]}", file, advice=_advice_without_location(error))
    problem = str(error.problem or error.context).strip().splitlines()[0]
    context = error.context_mark
    parse_error = _ParseError(
        file,
        problem,
        re.split(r"\r\n|\r|\n", text),
        mark.line,
        mark.column,
        (context.line, context.column) if context else None,
    )
    explanations = (explain(parse_error) for part, explain in _EXPLAINED if part in problem)
    return next(explanations, parse_error.explained(problem))


def _advice_without_location(error: YAMLError) -> str | None:
    return "save it as plain text" if "control characters" in str(error) else None


def _no_token(parse_error: _ParseError) -> Problem:
    if parse_error.char == "\t":
        return _tab(parse_error)
    return parse_error.explained(f"no value can begin with {parse_error.char} in YAML", _QUOTE)


def _tab(parse_error: _ParseError) -> Problem:
    return parse_error.explained("a tab stands where the line is indented", "indent with spaces")


def _alias(parse_error: _ParseError) -> Problem:
    column = max(
        parse_error.text.rfind("*", 0, parse_error.column + 1),
        parse_error.text.rfind("&", 0, parse_error.column + 1),
        0,
    )
    char = parse_error.text[column : column + 1]
    if char not in ("*", "&"):
        return parse_error.explained(parse_error.problem)
    meaning = "an alias of a value that has an anchor" if char == "*" else "an anchor"
    return parse_error.explained(f"what begins with {char} is {meaning} in YAML", _QUOTE, (parse_error.line, column))


def _unhashable(parse_error: _ParseError) -> Problem:
    if "{{" in parse_error.text:
        return _double_braces(parse_error)
    return parse_error.explained("a mapping or a list cannot be a key", "keys are texts; " + _QUOTE)


def _double_braces(parse_error: _ParseError) -> Problem:
    column = parse_error.text.find("{{")
    return parse_error.explained(
        "{{ without quotes is a mapping in YAML, and not a text", _BRACES, (parse_error.line, column)
    )


def _open_quote(parse_error: _ParseError) -> Problem:
    return parse_error.explained("a quote is opened here and never closed", "close it", parse_error.context)


def _escape(parse_error: _ParseError) -> Problem:
    column = parse_error.text.rfind("\\", 0, parse_error.column + 1)
    char = parse_error.text[column + 1 : column + 2]
    advice = "use single quotes, as for patterns: '\\d+', or write \\\\"
    return parse_error.explained(
        f"\\{char} means nothing inside of double quotes", advice, (parse_error.line, max(column, 0))
    )


def _second_colon(parse_error: _ParseError) -> Problem:
    for line in (parse_error.line, parse_error.line - 1):
        if (explained := _missing_space(parse_error, line)) is not None:
            return explained
    if ": " in parse_error.text[: parse_error.column].strip():
        return parse_error.explained("a second ': ' in one line", _QUOTE + ", if it is one")
    return parse_error.explained("the line is indented further than the lines above", "align it with its siblings")


def _missing_space(parse_error: _ParseError, line: int) -> Problem | None:
    key = _NO_SPACE.match(parse_error.text_of(line))
    if not key:
        return None
    location = (line, key.end(1) + 1)
    return parse_error.explained(f"there is no space after `{key[1]}:`", f"write `{key[1]}: ` and the value", location)


def _no_colon(parse_error: _ParseError) -> Problem:
    start = parse_error.context or (parse_error.line, parse_error.column)
    explained = _missing_space(parse_error, start[0])
    if explained is not None:
        return explained
    text = parse_error.text_of(start[0])
    if re.match(r"\s*-\w", text):
        return parse_error.explained("there is no space after the dash", "write `- ` and the item", start)
    if re.match(r"\s*[\w-]+ :\S", text):
        return parse_error.explained("there is no space after the colon", "write `name: value`", start)
    advice = "indent it, if it goes on with the text above"
    return parse_error.explained("this line is neither `name: value` nor an item `- value`", advice, start)


def _flow(parse_error: _ParseError) -> Problem:
    before = parse_error.text[: parse_error.column]
    if parse_error.char == "{" and before.endswith("$"):
        advice = 'put it in quotes, as in {url: "${AGENT_URL}"}'
        return parse_error.explained(
            "${NAME} inside of { } or [ ] needs quotes", advice, (parse_error.line, parse_error.column - 1)
        )
    if "{{" in parse_error.text:
        return _double_braces(parse_error)
    opened = f" that was opened in line {parse_error.context[0] + 1}" if parse_error.context else ""
    bracket = "[ ]" if "]" in parse_error.problem else "{ }"
    advice = "close it; a text inside with , : { } [ ] or # needs quotes"
    return parse_error.explained(f"a comma or the end of the {bracket}{opened} is missing", advice)


def _no_key(parse_error: _ParseError) -> Problem:
    before = parse_error.text[: parse_error.column]
    if "{{" in parse_error.text:
        return _double_braces(parse_error)
    if not before.strip():
        return parse_error.explained("the line is not aligned with its siblings", "indent siblings alike")
    if re.search(r"[\"'\]}]\s*$", before):
        advice = "put all of it in quotes; inside of '…' a quote is written '', inside of \"…\" \\\""
        return parse_error.explained("the text goes on after a closing quote or bracket", advice)
    return parse_error.explained("a key is expected here", _QUOTE)


_EXPLAINED: list[tuple[str, Callable[[_ParseError], Problem]]] = [
    ("cannot start any token", _no_token),
    ("tab character", _tab),
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
    (
        "'-' indicator",
        lambda it: it.explained("the line is not aligned with its siblings", "indent all items of a list alike"),
    ),
    (
        "another document",
        lambda it: it.explained("a second document begins here", "a file holds one; take the line --- out"),
    ),
    ("duplicate key", lambda it: it.explained(it.problem.partition(" with value")[0])),
    (
        "constructor for the tag",
        lambda it: it.explained("what begins with ! is a tag, and this one is not known", _QUOTE),
    ),
    ("unknown directive", lambda it: it.explained("a line that begins with % is a directive in YAML", _QUOTE)),
    ("expected node content", lambda it: it.explained(f"no value can begin with {it.char}", _QUOTE)),
    ("comment or line break", lambda it: it.explained("the text after | or > begins in the next line", _QUOTE)),
]
