"""Paths with jsonpath-ng's functions in backticks; `fepflow.jsonpath.path` loads this file when a path needs it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import regex

from fepflow.jsonpath.limits import MAX_SUBJECT, LimitError, QueryPath, invalid, remaining, watched_pattern

if TYPE_CHECKING:
    from jsonpath_ng import JSONPath


class ExtendedPath(QueryPath):
    """A path with jsonpath-ng's functions in backticks, evaluated by jsonpath-ng."""

    def __init__(self, expression: str) -> None:
        super().__init__(expression)
        from jsonpath_ng.ext.parser import parse

        try:
            self._query = parse(expression)
            _watch(self._query)
        except RecursionError as error:
            raise invalid(expression, "it nests too deep") from error
        except Exception as error:  # the library has its own errors, AttributeError and re.error for a bad expression
            raise invalid(expression, str(error) or type(error).__name__) from error

    def _values(self, document: Any) -> Iterable[Any]:
        found: Any = self._query.find(document)
        # Some functions answer with the bare node where there is nothing for them to do.
        return [node.value for node in (found if isinstance(found, list) else [found])]


def _watch(query: JSONPath) -> None:
    """Let every part of a parsed path look at the clock, and keep patterns and arithmetic within limits."""
    from jsonpath_ng import JSONPath
    from jsonpath_ng.ext.arithmetic import Operation
    from jsonpath_ng.ext.filter import Expression
    from jsonpath_ng.ext.string import Sub

    attributes = vars(query)
    for value in list(attributes.values()):
        parts = value if isinstance(value, list) else [value]
        for part in parts:
            node = part[0] if isinstance(part, tuple) and part else part
            if isinstance(node, JSONPath):
                _watch(node)
    if isinstance(query, Sub):
        attributes["regex"] = SimpleNamespace(sub=partial(_substitute, regex.compile(query.expr)))
    elif isinstance(query, Operation):
        attributes["op"] = partial(_calculate, query.op)
    elif isinstance(query, Expression) and query.op == "=~":
        attributes["find"] = partial(_find_matching, query)
    attributes["find"] = partial(_find_in_time, query.find)


def _find_in_time(find: Callable[[Any], Any], datum: Any) -> Any:
    remaining()
    return find(datum)


def _find_matching(expression: Any, datum: Any) -> list[Any]:
    return [
        found
        for found in expression.target.find(datum)
        if isinstance(found.value, str) and watched_pattern(regex.search, str(expression.value), found.value)
    ]


def _substitute(pattern: regex.Pattern[str], replacement: str, text: str) -> str:
    if len(text) * max(len(replacement), 1) > 10 * MAX_SUBJECT:
        raise LimitError("the text that `sub` would write is too long")
    return str(pattern.sub(replacement, text, timeout=remaining(), concurrent=True))


def _calculate(calculate: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Arithmetic, where Python's `*` would repeat texts and `+` join long ones."""
    sizes = [len(operand) for operand in (left, right) if isinstance(operand, str | list)]
    if sizes and calculate is operator.mul:
        raise LimitError("'*' multiplies numbers only")
    if sum(sizes) > MAX_SUBJECT:
        raise LimitError(f"a text of over {MAX_SUBJECT:,} characters would be built")
    return calculate(left, right)
