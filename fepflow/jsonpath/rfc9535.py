"""Paths of RFC 9535, evaluated by jsonpath-rfc9535; `fepflow.jsonpath.path` loads this file when a path needs it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import iregexp_check
import jsonpath_rfc9535 as rfc
import regex
from jsonpath_rfc9535.exceptions import JSONPathError as LibraryError
from jsonpath_rfc9535.exceptions import JSONPathRecursionError, JSONPathSyntaxError
from jsonpath_rfc9535.filter_expressions import (
    ComparisonExpression,
    Expression,
    FilterContext,
    FilterExpression,
    _compare,
)
from jsonpath_rfc9535.function_extensions import Match, Search
from jsonpath_rfc9535.function_extensions._pattern import map_re
from jsonpath_rfc9535.lex import RE_PROPERTY, Lexer
from jsonpath_rfc9535.parse import Parser
from jsonpath_rfc9535.segments import JSONPathChildSegment, JSONPathRecursiveDescentSegment, JSONPathSegment
from jsonpath_rfc9535.selectors import FilterSelector, IndexSelector, NameSelector
from jsonpath_rfc9535.tokens import Token, TokenStream, TokenType

from fepflow.json.equality import json_equal
from fepflow.jsonpath.limits import (
    MAX_DEPTH,
    MAX_PATTERN,
    LimitError,
    QueryPath,
    SearchPattern,
    invalid,
    remaining,
    watched_pattern,
)

_NAME = re.compile(r"[A-Za-z_\u0080-\ud7ff\ue000-\U0010ffff][0-9A-Za-z_\u0080-\ud7ff\ue000-\U0010ffff]*")


class _Lexer(Lexer):
    """The library's own pattern for names (1.0.1) ends at most letters over U+10FF, as in `$..日本`."""

    __slots__ = ()

    def accept_match(self, pattern: Any) -> bool:
        return super().accept_match(_NAME if pattern is RE_PROPERTY else pattern)


def _watched(nodes: Iterable[rfc.JSONPathNode]) -> Iterator[rfc.JSONPathNode]:
    for node in nodes:
        remaining()
        yield node


class _Child(JSONPathChildSegment):
    __slots__ = ()

    def resolve(self, nodes: Iterable[rfc.JSONPathNode]) -> Iterable[rfc.JSONPathNode]:
        return _watched(super().resolve(nodes))


class _Descent(JSONPathRecursiveDescentSegment):
    __slots__ = ()

    def resolve(self, nodes: Iterable[rfc.JSONPathNode]) -> Iterable[rfc.JSONPathNode]:
        return _watched(super().resolve(nodes))

    def _visit(self, node: rfc.JSONPathNode, depth: int = 1) -> Iterable[rfc.JSONPathNode]:
        """Depth first and in order, as the library's, without its recursion."""
        stack = [node]
        while stack:
            remaining()
            node = stack.pop()
            if len(node.location) >= MAX_DEPTH:
                raise JSONPathRecursionError(f"the document nests over {MAX_DEPTH:,} levels deep", token=self.token)
            yield node
            value = node.value
            members: Iterable[tuple[Any, Any]] = ()
            if isinstance(value, dict):
                members = value.items()
            elif isinstance(value, list):
                members = enumerate(value)
            children = [node.new_child(child, key, node) for key, child in members if isinstance(child, dict | list)]
            stack.extend(reversed(children))


class _Filter(FilterExpression):
    __slots__ = ()

    def evaluate(self, context: FilterContext) -> bool:
        remaining()
        return super().evaluate(context)


class _Comparison(ComparisonExpression):
    """The library's own (1.0.1) takes 1 and true for equal inside of arrays and objects."""

    __slots__ = ()

    def evaluate(self, context: FilterContext) -> bool:
        left, right = _only_value(self.left.evaluate(context)), _only_value(self.right.evaluate(context))
        result = _compare(left, self.operator, right)
        differs_for_python = result is (self.operator == "!=")
        if differs_for_python or not isinstance(left, dict | list) or isinstance(left, rfc.JSONPathNodeList):
            return result
        return result if json_equal(left, right) else not result


def _only_value(found: object) -> object:
    """The value of a single node; anything else as it is."""
    return found[0].value if isinstance(found, rfc.JSONPathNodeList) and len(found) == 1 else found


class _Parser(Parser):
    """Builds the watched kinds of segments and filters, and our comparisons."""

    def parse_query(self, stream: TokenStream, *, in_filter: bool = False) -> Iterable[JSONPathSegment]:
        for segment in super().parse_query(stream, in_filter=in_filter):
            kind = _Descent if isinstance(segment, JSONPathRecursiveDescentSegment) else _Child
            yield kind(env=segment.env, token=segment.token, selectors=segment.selectors)

    def parse_infix_expression(self, stream: TokenStream, left: Expression) -> Expression:
        expression = super().parse_infix_expression(stream, left)
        if isinstance(expression, ComparisonExpression):
            return _Comparison(expression.token, expression.left, expression.operator, expression.right)
        return expression

    def parse_filter_selector(self, stream: TokenStream) -> FilterSelector:
        selector = super().parse_filter_selector(stream)
        selector.expression = _Filter(selector.expression.token, selector.expression.expression)
        return selector


def _matches(method: SearchPattern, text: object, pattern: object) -> bool:
    """RFC 9535 2.4.6 and 2.4.7: false, and no error, for what is no text or no I-Regexp."""
    if not isinstance(text, str) or not isinstance(pattern, str):
        return False
    if len(pattern) > MAX_PATTERN:
        raise LimitError(f"a regular expression has over {MAX_PATTERN:,} characters")
    return bool(iregexp_check.check(pattern) and watched_pattern(method, map_re(pattern), text))


class _Match(Match):
    def __call__(self, string: object, pattern: object) -> bool:
        return _matches(regex.fullmatch, string, pattern)


class _Search(Search):
    def __call__(self, string: object, pattern: object) -> bool:
        return _matches(partial(regex.search, flags=regex.VERSION1), string, pattern)


class _Environment(rfc.JSONPathEnvironment):
    parser_class = _Parser

    def setup_function_extensions(self) -> None:
        super().setup_function_extensions()
        self.function_extensions["match"] = _Match()
        self.function_extensions["search"] = _Search()

    def compile(self, query: str) -> rfc.JSONPathQuery:
        lexer = _Lexer(query)
        lexer.run()
        last = lexer.tokens[-1]
        if last.type_ is TokenType.ERROR:
            raise JSONPathSyntaxError(last.message, token=last)
        if lexer.bracket_stack:
            bracket, index = lexer.bracket_stack[-1]
            raise JSONPathSyntaxError(
                f"{bracket!r} is never closed", token=Token(TokenType.ERROR, bracket, index, query)
            )
        return rfc.JSONPathQuery(env=self, segments=tuple(self.parser.parse(TokenStream(lexer.tokens))))


_ENVIRONMENT = _Environment()


class Rfc9535Path(QueryPath):
    """A path of RFC 9535, evaluated by jsonpath-rfc9535."""

    def __init__(self, expression: str) -> None:
        super().__init__(expression)
        try:
            self._query = _ENVIRONMENT.compile(expression)
        except LibraryError as error:
            position = error.token.index if error.token and error.token.index >= 0 else None
            raise invalid(expression, str(error.args[0]), position) from error
        except RecursionError as error:
            raise invalid(expression, "it nests too deep") from error
        except Exception as error:  # odd input breaks the library's parser in places (IndexError, OverflowError)
            raise invalid(expression, f"it cannot be read ({type(error).__name__})") from error

    def singular_keys(self) -> tuple[str | int, ...] | None:
        """The names and indices of a path to at most one node; None when it may find several."""
        if not self._query.singular_query():
            return None
        selectors = [segment.selectors[0] for segment in self._query.segments]
        return tuple(
            selector.name if isinstance(selector, NameSelector) else selector.index
            for selector in selectors
            if isinstance(selector, NameSelector | IndexSelector)
        )

    def _values(self, document: Any) -> Iterable[Any]:
        return (node.value for node in self._query.finditer(document))

    def _end(self, document: Any) -> str:
        nodes = [rfc.JSONPathNode(value=document, location=(), parent=None, root=document)]
        starts = [self._before(segment.token.index) for segment in self._query.segments]
        for segment, start, end in zip(self._query.segments, starts, [*starts[1:], None], strict=True):
            found = list(segment.resolve(nodes))
            if not found:
                reached, missing = self.expression[:start], self.expression[start:end].strip()
                return f": {reached!r} has {len(nodes)} value{'' if len(nodes) == 1 else 's'}, none with {missing!r}"
            nodes = found
        return ""

    def _before(self, index: int) -> int:
        """Where the segment begins whose first token is at `index`: its dot does not belong to the token."""
        return len(self.expression[:index].rstrip(". \t\r\n"))
