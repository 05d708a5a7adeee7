"""Each pattern of ours, on 10 or 100 kB of what is worst for it: whatever it meets may be somebody else's text."""

from __future__ import annotations

import ast
import importlib
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.test_floors import FILES, module_of

PARSER: Any = importlib.import_module("re._parser")

SIZE = 100_000
LIMIT = 0.25
"""Seconds of computing. A pattern that is linear takes a tenth of it, one that is quadratic takes many."""


METHODS = ("search", "match", "fullmatch", "findall", "finditer", "sub", "split")
SHORT = {
    "fepflow.checks.core.patterns._TOKEN": 1_000,
    "fepflow.checks.core.patterns._PART": 1_000,
    "fepflow.jsonpath.queries._DOT": 1_000,
    "fepflow.jsonpath.queries._NAME_BEYOND_ASCII": 1_000,
}
"""Patterns that meet short texts only: patterns and paths, of so many characters at most."""


@dataclass(frozen=True)
class Own:
    """A pattern, and the methods that are called of it."""

    pattern: re.Pattern[Any]
    methods: frozenset[str]

    def apply(self, text: str) -> None:
        subject = text.encode("latin-1", "replace") if isinstance(self.pattern.pattern, bytes) else text
        if self.methods & {"match"}:
            self.pattern.match(subject)
        if self.methods & {"fullmatch"}:
            self.pattern.fullmatch(subject)
        if not self.methods <= {"match", "fullmatch"}:
            for _ in self.pattern.finditer(subject):
                pass


def own_patterns() -> Iterator[tuple[str, Own]]:
    """All that are compiled in a module, and all literal ones that are handed to a function of `re`."""
    texts = {path: path.read_text(encoding="utf-8") for path in FILES}
    for path, source in texts.items():
        name = module_of(path)
        if "import re\n" not in source:
            continue
        tree = ast.parse(source)
        for assignment in tree.body:
            if isinstance(assignment, ast.Assign) and ast.unparse(assignment.value).startswith("re.compile("):
                label = ast.unparse(assignment.targets[0])
                files = [path] if label.startswith("_") else FILES
                used = {text for file in files for text in re.findall(rf"\b{label}\.(\w+)\(", texts[file])}
                yield f"{name}.{label}", Own(compiled(name, label, assignment.value), frozenset(used) & {*METHODS})
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
                of_re = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
                pattern = node.args[0] if node.args else None
                if of_re and isinstance(pattern, ast.Constant) and isinstance(pattern.value, str):
                    yield f"{name}:{node.lineno}", Own(re.compile(pattern.value), frozenset({node.func.attr}))


def compiled(module: str, label: str, expression: ast.expr) -> re.Pattern[Any]:
    """A pattern of a module, which is loaded only for what its expression does not tell: some modules take seconds."""
    try:
        pattern: re.Pattern[Any] = eval(ast.unparse(expression), {"re": re})
    except NameError:
        pattern = getattr(importlib.import_module(module), label)
    return pattern


@pytest.fixture(scope="module")
def patterns() -> dict[str, Own]:
    return dict(own_patterns())


def characters_of(items: Iterable[Any]) -> Iterator[str]:
    """A character for each that a pattern looks for."""
    for operation, argument in items:
        name = str(operation)
        if name == "LITERAL" or name == "NOT_LITERAL":
            yield chr(argument)
        elif name == "RANGE":
            yield chr(argument[0])
        elif name == "CATEGORY":
            yield {"CATEGORY_DIGIT": "1", "CATEGORY_WORD": "w", "CATEGORY_SPACE": "\n"}.get(str(argument), "-")
        elif name == "IN":
            yield from characters_of(argument)
        else:
            for part in argument if isinstance(argument, tuple | list) else (argument,):
                if isinstance(part, PARSER.SubPattern):
                    yield from characters_of(part)
                elif isinstance(part, list):
                    for one in part:
                        yield from characters_of(one)


def worst_texts(pattern: re.Pattern[Any], size: int) -> Iterator[str]:
    """Of that size: what it looks for, again and again, and never to its end, each beginning of it, each character."""
    wanted = list(characters_of(PARSER.parse(pattern.pattern, pattern.flags)))
    parts = ["".join(wanted[:length]) for length in range(1, min(len(wanted), 12) + 1)]
    parts += [*dict.fromkeys(wanted), "\n", " ", "a", "1", "```\n", "${A:-", "{{$.", "```json\n\n", '"', "\\"]
    for part in dict.fromkeys(parts):
        yield part * (size // len(part)) + "\0"
    for part in dict.fromkeys(wanted[:5]):
        yield "".join(wanted[:3]) + part * size + "\0"


@pytest.mark.parametrize("most", [10_000, pytest.param(SIZE, marks=pytest.mark.battery)])
def test_a_pattern_of_ours_is_linear(patterns: dict[str, Own], most: int, subtests: pytest.Subtests) -> None:
    for name, own in patterns.items():
        with subtests.test(name):
            for size in (1_000, most):  # one that is far from linear shows it early
                for text in worst_texts(own.pattern, min(size, SHORT.get(name, size))):
                    started = time.thread_time()
                    own.apply(text)
                    seconds = time.thread_time() - started
                    assert seconds < LIMIT * size / SIZE + 0.05, (seconds, size, text[:60])


def test_all_of_them_are_found(patterns: dict[str, Own]) -> None:
    names = {
        "fepflow.suite.env_vars._REFERENCE",
        "fepflow.jsonpath.path.PLACEHOLDER",
        "fepflow.jsonpath.path.QUOTED",
    }
    assert names <= patterns.keys()
    assert len(patterns) > 30
