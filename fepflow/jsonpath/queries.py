"""Paths that may find several nodes; `fepflow.jsonpath.path` loads this file when a path needs it.

RFC 9535 by jsonpath-rfc9535, and jsonpath-ng's functions in backticks by jsonpath-ng. A filter on a hostile answer can
take for ever, so everything but a plain wildcard on a small document has a time limit.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import iregexp_check
import jsonpath_rfc9535 as rfc
import regex
from jsonpath_rfc9535.exceptions import JSONPathError as LibraryError
from jsonpath_rfc9535.filter_expressions import ComparisonExpression, Expression, FilterContext
from jsonpath_rfc9535.function_extensions import Match, Search
from jsonpath_rfc9535.parse import Parser
from jsonpath_rfc9535.selectors import IndexSelector, NameSelector
from jsonpath_rfc9535.tokens import TokenStream

from fepflow.errors import CheckTimeoutError, JSONPathError
from fepflow.json.values import is_small
from fepflow.jsonpath.path import QUOTED, SingularPath, leading_keys, outside_quotes
from fepflow.time_limit import IN_LOOP, NotInLoopError, within

T = TypeVar("T")

TIME_LIMIT = 0.5
"""Seconds that one path may look for nodes in one document."""

MAX_NODES = 10_000
"""Nodes that a path may find."""

MAX_DEPTH = 200
"""Levels of a document that `..` descends; JSON from elsewhere has a hundred at most."""

MAX_PATTERN = 1_000
"""Characters of a regular expression."""

MAX_SUBJECT = 1_000_000
"""Characters of a text that is searched or built."""

_QUICK_NODES = 2_000
_SLOW = re.compile(r"[?,(`]|\.\.")
"""Parts of a path by which it may visit a node more than once."""


class _LimitError(Exception):
    """A size is over its limit; the text tells which."""


class QueryPath:
    """A path with limits on time and size."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._is_quick = not _SLOW.search(outside_quotes(expression))

    def find(self, document: Any) -> list[Any]:
        """See fepflow.jsonpath.path.Path."""
        return self._limited(document, self._find)

    def resolve(self, document: Any) -> Any:
        """See fepflow.jsonpath.path.Path."""
        values = self.find(document)
        if values:
            return values[0] if len(values) == 1 else values
        # Looks at the path up to its first wildcard or filter, which says most of what is wrong.
        SingularPath(self.expression, leading_keys(self.expression)).resolve(document)
        raise JSONPathError(f"{self.expression!r} found nothing", self.expression)

    def _limited(self, document: Any, work: Callable[[Any], T]) -> T:
        """Do the work within the time limit, and turn errors of the libraries into our own."""
        try:
            if self._is_quick and is_small(document, _QUICK_NODES):
                return work(document)
            if IN_LOOP.get():
                raise NotInLoopError
            return within(TIME_LIMIT, partial(work, document))
        except (TimeoutError, CheckTimeoutError) as error:
            raise CheckTimeoutError(
                f"{self.expression!r} did not finish within {TIME_LIMIT} s; make its filters or '..' simpler"
            ) from error
        except (_LimitError, LibraryError) as error:
            why = f"was given up: {error.args[0]}"
        except RecursionError:
            why = "was given up: the path or the document nests too deep"
        except NotInLoopError:
            raise
        except Exception as error:  # the libraries raise anything; the text may quote the document, its type does not
            why = f"does not work on this document ({type(error).__name__})"
        raise JSONPathError(f"{self.expression!r} {why}", self.expression)

    def _find(self, document: Any) -> list[Any]:
        values = list(islice(self._values(document), MAX_NODES + 1))
        if len(values) > MAX_NODES:
            raise _LimitError(f"it finds more than {MAX_NODES:,} values")
        return values

    def _values(self, document: Any) -> Iterable[Any]:
        raise NotImplementedError

    def _invalid(self, reason: str, position: int | None = None) -> JSONPathError:
        """Return the error of an expression that is not a path, with the place if it is known."""
        message = f"{self.expression!r} is not a valid JSONPath: {reason}"
        if position is not None:
            rest = self.expression[position : position + 20]
            message += f", at position {position}" + (f", {rest!r}" if rest else ", the end")
            if rest and rest[0] in "-@/+:;&#%" and self.expression[position - 1] not in "[(":
                message += "; a name with such a character is written ['like-this']"
        return JSONPathError(message, self.expression, position)


class Rfc9535Path(QueryPath):
    """A path of RFC 9535."""

    def __init__(self, expression: str) -> None:
        super().__init__(expression)
        try:
            self._query = _ENVIRONMENT.compile(_NAME_BEYOND_ASCII.sub(_in_brackets, expression))
        except LibraryError as error:
            position = error.token.index if error.token and error.token.index >= 0 else None
            raise self._invalid(str(error.args[0]), position) from error
        except RecursionError as error:
            raise self._invalid("it nests too deep") from error
        except Exception as error:  # odd input breaks the library's parser in places (IndexError, OverflowError)
            raise self._invalid(f"it cannot be read ({type(error).__name__})") from error

    def singular_keys(self) -> tuple[str | int, ...] | None:
        """Return the names and indices of a path to at most one node; None when it may find several."""
        if not self._query.singular_query():
            return None
        selectors = [segment.selectors[0] for segment in self._query.segments]
        return tuple(
            selector.name if isinstance(selector, NameSelector) else selector.index
            for selector in selectors
            if isinstance(selector, NameSelector | IndexSelector)
        )

    def locations(self, document: Any, most: int) -> list[tuple[str | int, ...]]:
        """Return where the first `most` nodes are: the names and indices from the top of the document."""
        return [node.location for node in islice(self._query.finditer(document), most)]

    def _values(self, document: Any) -> Iterable[Any]:
        return (node.value for node in self._query.finditer(document))


_NAME_BEYOND_ASCII = re.compile(QUOTED.pattern + r"|(\.\.?)([A-Za-z0-9_]*[^\x00-\x7f][A-Za-z0-9_\x80-\U0010ffff]*)")


def _in_brackets(match: re.Match[str]) -> str:
    """Return a name in brackets. For the library (1.0.1), a shorthand ends at most letters beyond U+10FF."""
    dots, name = match[1], match[2]
    if name is None or name[0].isdigit():
        return match[0]
    return f"{dots if dots == '..' else ''}['{name}']"


class _Operand(Expression):
    """An operand of a comparison. For the library (1.0.1), 1 equals true inside arrays and objects."""

    def __init__(self, operand: Expression) -> None:
        super().__init__(operand.token)
        self._operand = operand

    def evaluate(self, context: FilterContext) -> object:
        value = self._operand.evaluate(context)
        if isinstance(value, rfc.JSONPathNodeList):
            if len(value) != 1:
                return value
            value = value[0].value
        return _without_booleans(value) if isinstance(value, list | dict) else value


def _without_booleans(value: Any) -> Any:
    """Return a value for comparisons in which booleans equal only themselves."""
    if isinstance(value, dict):
        return {name: _without_booleans(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_booleans(item) for item in value]
    return (bool, value) if isinstance(value, bool) else value


class _Parser(Parser):
    def parse_infix_expression(self, stream: TokenStream, left: Expression) -> Expression:
        expression = super().parse_infix_expression(stream, left)
        if isinstance(expression, ComparisonExpression):
            expression.left, expression.right = _Operand(expression.left), _Operand(expression.right)
        return expression


def _fits(method: Callable[..., Any], pattern: str, text: object, flags: int = 0) -> bool:
    """Return whether a pattern fits a text; False for any other value."""
    if not isinstance(text, str):
        return False
    if len(text) > MAX_SUBJECT:
        raise _LimitError(f"a regular expression meets a text of over {MAX_SUBJECT:,} characters")
    # `concurrent` lets other threads run meanwhile; without it a pattern holds up the whole process.
    return method(pattern, text, flags=flags, timeout=TIME_LIMIT, concurrent=True) is not None


def _fits_iregexp(method: Callable[..., Any], pattern: object, text: object) -> bool:
    """Return whether an I-Regexp fits a text; False for other values (RFC 9535 2.4.6 and 2.4.7, RFC 9485)."""
    if not isinstance(pattern, str):
        return False
    if len(pattern) > MAX_PATTERN:
        raise _LimitError(f"a regular expression has over {MAX_PATTERN:,} characters")
    if not iregexp_check.check(pattern):
        return False
    pattern = _DOT.sub(lambda match: r"[^\r\n]" if match[0] == "." else match[0], pattern)
    return _fits(method, pattern, text, int(regex.VERSION1))


_DOT = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\.", re.DOTALL)


class _Match(Match):
    def __call__(self, string: object, pattern: object) -> bool:
        return _fits_iregexp(regex.fullmatch, pattern, string)


class _Search(Search):
    def __call__(self, string: object, pattern: object) -> bool:
        return _fits_iregexp(regex.search, pattern, string)


class _Environment(rfc.JSONPathEnvironment):
    parser_class = _Parser
    max_recursion_depth = MAX_DEPTH

    def setup_function_extensions(self) -> None:
        super().setup_function_extensions()
        self.function_extensions |= {"match": _Match(), "search": _Search()}


_ENVIRONMENT = _Environment()


class ExtendedPath(QueryPath):
    """A path with jsonpath-ng's functions in backticks."""

    def __init__(self, expression: str) -> None:
        super().__init__(expression)
        from jsonpath_ng.ext.parser import parse

        try:
            self._query = parse(expression)
            _guard(self._query)
        except RecursionError as error:
            raise self._invalid("it nests too deep") from error
        except Exception as error:  # the library has its own errors, AttributeError and re.error for a bad expression
            raise self._invalid(str(error) or type(error).__name__) from error

    def _values(self, document: Any) -> Iterable[Any]:
        nodes: Any = self._query.find(document)
        # Some functions answer with the bare node where there is nothing for them to do.
        return [node.value for node in (nodes if isinstance(nodes, list) else [nodes])]


def _guard(query: Any) -> None:
    """Set limits for the parts of a path that search, substitute or calculate in one call of C."""
    from jsonpath_ng import JSONPath
    from jsonpath_ng.ext.arithmetic import Operation
    from jsonpath_ng.ext.filter import Expression as Condition
    from jsonpath_ng.ext.string import Sub

    attributes = vars(query)
    for value in list(attributes.values()):
        for item in value if isinstance(value, list) else [value]:
            part = item[0] if isinstance(item, tuple) and item else item
            if isinstance(part, JSONPath):
                _guard(part)
    if isinstance(query, Sub):
        attributes["regex"] = _TimedPattern(query.expr)
    elif isinstance(query, Operation):
        attributes["op"] = partial(_calculate, query.op)
    elif isinstance(query, Condition) and query.op == "=~":
        attributes["find"] = partial(_find_matching, query)


def _find_matching(condition: Any, datum: Any) -> list[Any]:
    return [node for node in condition.target.find(datum) if _fits(regex.search, str(condition.value), node.value)]


class _TimedPattern:
    """The pattern of `sub`, under a time limit."""

    def __init__(self, pattern: str) -> None:
        self._pattern = regex.compile(pattern)

    def sub(self, replacement: str, text: str) -> str:
        if len(text) * max(len(replacement), 1) > 10 * MAX_SUBJECT:
            raise _LimitError("the text that `sub` would write is too long")
        return str(self._pattern.sub(replacement, text, timeout=TIME_LIMIT, concurrent=True))


def _calculate(calculate: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Calculate, and refuse to repeat texts by `*` or to join long ones by `+`."""
    sizes = [len(operand) for operand in (left, right) if isinstance(operand, str | list)]
    if sizes and calculate is operator.mul:
        raise _LimitError("'*' multiplies numbers only")
    if sum(sizes) > MAX_SUBJECT:
        raise _LimitError(f"a text of over {MAX_SUBJECT:,} characters would be built")
    return calculate(left, right)
