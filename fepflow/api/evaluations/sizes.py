"""The size of what the checks of a request look at, known before any of them runs.

A request of 1 MB can have 100,000 checks that each look at the same megabyte, and repeat it in their results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from fepflow.checks.core.argument_paths import texts_in
from fepflow.errors import InputError, Problem
from fepflow.json.values import SMALL_CHARACTERS
from fepflow.jsonpath.path import Key, descend, is_path, leading_keys
from fepflow.jsonpath.template import placeholders
from fepflow.protocol.check import AnyCheck, to_check
from fepflow.protocol.test_case import Output, TestCase, evaluation_context

MAX_RESOLVED = 500_000_000
"""Characters that the checks of one request look at together."""

MAX_REPEATED = 32_000_000
"""Characters of arguments that their results repeat together; a large argument is left out of them."""

_LEFT_OUT = 200
"""Characters of a large argument in a result: its hash, and the path that leads to it."""

_OF_NODE = 4
"""Characters that a value has beside its text: quotes, commas, brackets."""

Argument = tuple[int, Sequence[str]]
"""An argument as declared: the size of what is literal in it, and its paths."""

Checked = tuple[TestCase, Output, Sequence[AnyCheck], Sequence[AnyCheck]]
"""A test case, its output, its own checks and those that all test cases share."""


def require_bounded(checked: Iterable[Checked]) -> None:
    """Raise InputError, with the sum, for checks that look at too much together, or repeat too much in results.

    What a query finds is estimated from the part of the document that it searches.
    """
    shared_sizes: list[tuple[int, list[Argument]]] | None = None
    resolved = repeated = 0
    for case, output, own, shared in checked:
        if shared_sizes is None:
            shared_sizes = [_measured(check) for check in shared]
        sizes = _Sizes(case, output)
        for names, arguments in [*map(_measured, own), *shared_sizes]:
            repeated += names
            for literal, paths in arguments:
                looked_at = [sizes.at(path) for path in paths]
                resolved += literal + sum(size for size, _ in looked_at)
                size = literal + sum(size * repeats for size, repeats in looked_at)
                repeated += size if size <= SMALL_CHARACTERS else _LEFT_OUT
    if resolved > MAX_RESOLVED:
        raise _too_much(f"the checks look at {resolved:,} characters together", MAX_RESOLVED)
    if repeated > MAX_REPEATED:
        raise _too_much(f"the results of the checks repeat {repeated:,} characters of arguments", MAX_REPEATED)


def _too_much(message: str, limit: int) -> InputError:
    advice = f"{limit:,} are taken at most: send fewer checks, fewer test cases or smaller values at a time"
    return InputError(Problem(message, path="checks", advice=advice))


def _measured(check: AnyCheck) -> tuple[int, list[Argument]]:
    """Return the size of a check's names, which each of its results repeats, and its arguments."""
    declared = to_check(check)
    names = 2 * len(declared.type) + len(declared.id or "") + len(declared.version or "")
    found: list[Argument] = []
    for name, value in declared.arguments.items():
        texts = [text for _, text in texts_in(value, ())]
        paths = [path for text in texts for path in ([text] if is_path(text) else placeholders(text))]
        found.append((len(name) + _size(value), paths))
    return names, found


class _Sizes:
    """The sizes of the parts of one evaluation context; they are measured when the first one is asked for."""

    def __init__(self, case: TestCase, output: Output) -> None:
        self._case, self._output = case, output
        self._context: dict[str, Any] | None = None
        self._known: dict[int, tuple[int, int]] = {}
        self._at: dict[str, tuple[int, int]] = {}

    def at(self, path: str) -> tuple[int, int]:
        """Return the size of the part of the document that a path looks at, and how often it may find that."""
        found = self._at.get(path)
        if found is None:
            found = self._at[path] = self._find(path)
        return found

    def _find(self, path: str) -> tuple[int, int]:
        if self._context is None:
            self._context = evaluation_context(self._case, self._output)
            _measure(self._context, self._known)
        keys, descents = _way(path)
        reached, value = descend(self._context, keys)
        if reached < len(keys):
            return 0, 1
        size, depth = self._known.get(id(value)) or (_size(value), 1)
        return size, depth**descents


@lru_cache(maxsize=4096)
def _way(path: str) -> tuple[tuple[Key, ...], int]:
    """Return the keys with which a path begins, and how often it descends: what is found may then hold itself."""
    return leading_keys(path), min(path.count(".."), 3)


def _size(value: Any) -> int:
    known: dict[int, tuple[int, int]] = {}
    return _measure(value, known)[0]


def _measure(value: Any, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """Return size and depth of a JSON value; `known` gets those of each object and array in it, by their ids.

    Without recursion: a value may be as deep as the parser takes it.
    """
    if not isinstance(value, dict | list):
        return _of_scalar(value), 1
    stack: list[tuple[Any, Iterator[Any], int, int]] = [(value, _items(value), _own(value), 1)]
    while True:
        container, items, size, depth = stack.pop()
        for item in items:
            if isinstance(item, dict | list):
                stack.append((container, items, size, depth))
                stack.append((item, _items(item), _own(item), 1))
                break
            size += _of_scalar(item)
        else:
            known[id(container)] = size, depth
            if not stack:
                return size, depth
            outer, rest, outer_size, outer_depth = stack.pop()
            stack.append((outer, rest, outer_size + size, max(outer_depth, depth + 1)))


def _items(container: Any) -> Iterator[Any]:
    return iter(container.values() if isinstance(container, dict) else container)


def _own(container: Any) -> int:
    return _OF_NODE + (sum(map(len, container)) if isinstance(container, dict) else 0)


def _of_scalar(value: Any) -> int:
    if isinstance(value, str):
        return len(value) + _OF_NODE
    if isinstance(value, int):
        return value.bit_length() // 3 + _OF_NODE
    return 20
