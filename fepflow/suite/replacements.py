"""Replaced values of a suite in one run: `fepflow run --set target.http.url=http://localhost:8000`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fepflow.documents.loader import Document, parse_document
from fepflow.errors import DocumentPath, InputError, Problem, UserError, dotted


@dataclass(frozen=True)
class Replacement:
    """A value, and its place in the suite: names, and positions in lists."""

    path: DocumentPath
    value: Any

    @property
    def option(self) -> str:
        """The option without its value, which may be a secret."""
        return f"--set {'.'.join(map(str, self.path))}"


def parse_replacement(text: str) -> Replacement:
    """Read `target.http.url=VALUE`; the value is YAML, as in the suite. Raises UserError for another form."""
    path, equals, value = text.partition("=")
    names = re.sub(r"\[(\d+)\]", r".\1", path.strip()).split(".")
    steps = [int(step) if step.isdecimal() else step for step in names]
    if not equals or not all(step != "" for step in steps):
        raise UserError("--set reads like target.http.url=http://localhost:8000: names with dots, = and a value.")
    try:
        return Replacement(tuple(steps), parse_document(value, "--set").data)
    except InputError:
        return Replacement(tuple(steps), value)  # such as a text with a colon, which is no YAML


def with_replacements(document: Document, replacements: Sequence[Replacement]) -> Document:
    """Return the document with these values. Raises InputError if it has no such place."""
    data = document.data
    for replacement in replacements:
        data = _replaced(data, replacement.path, replacement)
    return replace(document, data=data) if replacements else document


def _replaced(value: Any, path: DocumentPath, replacement: Replacement) -> Any:
    if not path:
        return replacement.value
    step, rest = path[0], path[1:]
    if value is None or isinstance(value, dict):
        value = value or {}
        name = str(step)
        return {**value, name: _replaced(value.get(name), rest, replacement)}
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return [_replaced(item, rest, replacement) if index == step else item for index, item in enumerate(value)]
    place = dotted(replacement.path[: len(replacement.path) - len(path)]) or "the suite"
    if isinstance(value, list):
        advice = f"give a position from 0 to {len(value) - 1}" if value else "replace the list as a whole"
        raise InputError(
            Problem(f"{place} is a list of {len(value)} and has no {step}", replacement.option, None, advice=advice)
        )
    advice = f"replace {place} as a whole: --set '{place}={{...}}'"
    raise InputError(Problem(f"{place} is one value and has no {step} inside", replacement.option, None, advice=advice))


def at_their_option(problems: Iterable[Problem], replacements: Sequence[Replacement]) -> Iterator[Problem]:
    """Yield the problems. Problems of a replaced value name its option instead of a line of the file."""
    for problem in problems:
        path = problem.path or ""
        places = ((replacement.option, dotted(replacement.path)) for replacement in replacements)
        options = (option for option, place in places if path == place or path.startswith((f"{place}.", f"{place}[")))
        option = next(options, None)
        yield problem if option is None else replace(problem, file=option, line=None)
