"""What a YAML parser complains of, in words that say what to do: the traps into which people who write suites step."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from ruamel.yaml.error import MarkedYAMLError, YAMLError

from fepflow.errors import Problem

FLOW_COLON = "found unexpected ':'"
"""What the C parser says of `{model: local:letters}`."""

_SHOWN = 60
_QUOTE = "put the text in quotes"
_BRACES = 'put the text in quotes, as in "{{$.output.value}}"'
_NO_SPACE = re.compile(r"^\s*(?:- +)?([A-Za-z_][\w-]*):(?![\s/])\S")


@dataclass(frozen=True)
class _Mistake:
    """Where the parser stopped, and the place that it was still busy with; lines and columns from 0."""

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

    def told(self, message: str, advice: str | None = None, at: tuple[int, int] | None = None) -> _Told:
        return _Told(message, advice, *(at or (self.line, self.column)))


@dataclass(frozen=True)
class _Told:
    message: str
    advice: str | None
    line: int
    column: int


def shown(text: str) -> str:
    """The beginning of a text, in quotes, in one line."""
    return repr(text[:_SHOWN] + "…" if len(text) > _SHOWN else text)


def problem_of(error: YAMLError, text: str, file: str) -> Problem:
    """The parser's complaint, with line and column, in words that say what to do; no value of the text is in it."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if not isinstance(error, MarkedYAMLError) or mark is None:
        return Problem(f"is not valid YAML: {str(error).splitlines()[0]}", file, advice=_advice_without_place(error))
    problem = str(error.problem or error.context).strip().splitlines()[0]
    context = error.context_mark
    mistake = _Mistake(
        problem,
        re.split(r"\r\n|\r|\n", text),
        mark.line,
        mark.column,
        (context.line, context.column) if context else None,
    )
    told = next(
        (found for part, explain in _EXPLAINED if part in problem and (found := explain(mistake)) is not None),
        mistake.told(problem),
    )
    return Problem(f"is not valid YAML: {told.message}", file, told.line + 1, None, told.advice, column=told.column + 1)


def _advice_without_place(error: YAMLError) -> str | None:
    return "save it as plain text" if "control characters" in str(error) else None


def _no_token(mistake: _Mistake) -> _Told:
    if mistake.char == "\t":
        return _tab(mistake)
    return mistake.told(f"no value can begin with {mistake.char} in YAML", _QUOTE)


def _tab(mistake: _Mistake) -> _Told:
    return mistake.told("a tab stands where the line is indented", "indent with spaces")


def _alias(mistake: _Mistake) -> _Told:
    column = max(mistake.text.rfind("*", 0, mistake.column + 1), mistake.text.rfind("&", 0, mistake.column + 1), 0)
    char = mistake.text[column : column + 1]
    if char not in ("*", "&"):
        return mistake.told(mistake.problem)
    meaning = "an alias of a value that has an anchor" if char == "*" else "an anchor"
    return mistake.told(f"what begins with {char} is {meaning} in YAML", _QUOTE, (mistake.line, column))


def _unhashable(mistake: _Mistake) -> _Told:
    if "{{" in mistake.text:
        return _double_braces(mistake)
    return mistake.told("a mapping or a list cannot be a key", "keys are texts; " + _QUOTE)


def _double_braces(mistake: _Mistake) -> _Told:
    column = mistake.text.find("{{")
    return mistake.told("{{ without quotes is a mapping in YAML, and not a text", _BRACES, (mistake.line, column))


def _open_quote(mistake: _Mistake) -> _Told:
    return mistake.told("a quote is opened here and never closed", "close it", mistake.context)


def _escape(mistake: _Mistake) -> _Told:
    column = mistake.text.rfind("\\", 0, mistake.column + 1)
    char = mistake.text[column + 1 : column + 2]
    advice = "use single quotes, as for patterns: '\\d+', or write \\\\"
    return mistake.told(f"\\{char} means nothing inside of double quotes", advice, (mistake.line, max(column, 0)))


def _second_colon(mistake: _Mistake) -> _Told:
    for line in (mistake.line, mistake.line - 1):
        if (told := _missing_space(mistake, line)) is not None:
            return told
    if ": " in mistake.text[: mistake.column].strip():
        return mistake.told("a second ': ' in one line", _QUOTE + ", if it is one")
    return mistake.told("the line is indented further than the lines above", "align it with its siblings")


def _missing_space(mistake: _Mistake, line: int) -> _Told | None:
    found = _NO_SPACE.match(mistake.text_of(line))
    if not found:
        return None
    place = (line, found.end(1) + 1)
    return mistake.told(f"there is no space after `{found[1]}:`", f"write `{found[1]}: ` and the value", place)


def _no_colon(mistake: _Mistake) -> _Told:
    start = mistake.context or (mistake.line, mistake.column)
    told = _missing_space(mistake, start[0])
    if told is not None:
        return told
    text = mistake.text_of(start[0])
    if re.match(r"\s*-\w", text):
        return mistake.told("there is no space after the dash", "write `- ` and the item", start)
    if re.match(r"\s*[\w-]+ :\S", text):
        return mistake.told("there is no space after the colon", "write `name: value`", start)
    advice = "indent it, if it goes on with the text above"
    return mistake.told("this line is neither `name: value` nor an item `- value`", advice, start)


def _flow(mistake: _Mistake) -> _Told:
    before = mistake.text[: mistake.column]
    if mistake.char == "{" and before.endswith("$"):
        advice = 'put it in quotes, as in {url: "${AGENT_URL}"}'
        return mistake.told("${NAME} inside of { } or [ ] needs quotes", advice, (mistake.line, mistake.column - 1))
    if "{{" in mistake.text:
        return _double_braces(mistake)
    opened = f" that was opened in line {mistake.context[0] + 1}" if mistake.context else ""
    bracket = "[ ]" if "]" in mistake.problem else "{ }"
    advice = "close it; a text inside with , : { } [ ] or # needs quotes"
    return mistake.told(f"a comma or the end of the {bracket}{opened} is missing", advice)


def _no_key(mistake: _Mistake) -> _Told:
    before = mistake.text[: mistake.column]
    if "{{" in mistake.text:
        return _double_braces(mistake)
    if not before.strip():
        return mistake.told("the line is not aligned with its siblings", "indent siblings alike")
    if re.search(r"[\"'\]}]\s*$", before):
        advice = "put all of it in quotes; inside of '…' a quote is written '', inside of \"…\" \\\""
        return mistake.told("the text goes on after a closing quote or bracket", advice)
    return mistake.told("a key is expected here", _QUOTE)


_EXPLAINED: list[tuple[str, Callable[[_Mistake], _Told | None]]] = [
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
        lambda it: it.told("the line is not aligned with its siblings", "indent all items of a list alike"),
    ),
    (
        "another document",
        lambda it: it.told("a second document begins here", "a file holds one; take the line --- out"),
    ),
    ("duplicate key", lambda it: it.told(it.problem.partition(" with value")[0])),
    ("constructor for the tag", lambda it: it.told("what begins with ! is a tag, and this one is not known", _QUOTE)),
    ("unknown directive", lambda it: it.told("a line that begins with % is a directive in YAML", _QUOTE)),
    ("expected node content", lambda it: it.told(f"no value can begin with {it.char}", _QUOTE)),
    ("comment or line break", lambda it: it.told("the text after | or > begins in the next line", _QUOTE)),
]
