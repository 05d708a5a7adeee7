"""What the JSONPath libraries are held to: paths and documents come from strangers, and a filter can take for ever.

The engines look at the clock wherever they go on to a next node, filter or pattern, and stop after TIME_LIMIT.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import islice
from typing import Any, Protocol

from jsonpath_rfc9535.exceptions import JSONPathError as LibraryError

from fepflow.errors import CheckTimeoutError, JSONPathError
from fepflow.json.limits import is_small
from fepflow.jsonpath.syntax import outside_quotes

TIME_LIMIT = 0.5
"""Seconds that one path may look for nodes in one document."""

MAX_NODES = 10_000
"""Nodes that a path may find."""

MAX_DEPTH = 1_000
"""Levels of a document that `..` descends."""

MAX_PATTERN = 1_000
"""Characters of a regular expression."""

MAX_SUBJECT = 1_000_000
"""Characters of a text that is searched or built."""

_QUICK_VISITS = 2_000
"""Nodes that a path may come by and still be quick: about 10 ms at worst."""

_FUNCTION = re.compile(r"`|\b(?:match|search)\s*\(")

_deadline: ContextVar[float] = ContextVar("jsonpath_deadline")


class LimitError(Exception):
    """A size that is over its limit; the text says which."""


def remaining() -> float:
    """Seconds left for the path that is being looked up; TimeoutError when there are none."""
    remaining = _deadline.get() - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    return remaining


@contextmanager
def _limits(expression: str) -> Iterator[None]:
    """Start the clock, and turn whatever a library raises into an error of ours."""
    token = _deadline.set(time.monotonic() + TIME_LIMIT)
    try:
        yield
    except TimeoutError as error:
        raise CheckTimeoutError(
            f"{expression!r} did not finish within {TIME_LIMIT} s; make its filters or '..' simpler"
        ) from error
    except JSONPathError:
        raise
    except (LimitError, LibraryError) as error:
        raise JSONPathError(f"{expression!r} was given up: {error.args[0]}", expression) from error
    except RecursionError as error:
        raise JSONPathError(
            f"{expression!r} was given up: the path or the document nests too deep", expression
        ) from error
    except Exception as error:  # the libraries raise anything; the text may quote the document, its type does not
        raise JSONPathError(
            f"{expression!r} does not work on this document ({type(error).__name__})", expression
        ) from error
    finally:
        _deadline.reset(token)


class QueryPath:
    """What the engines have in common: limits, and the rule for one, several and no nodes."""

    def __init__(self, expression: str) -> None:
        self.expression = expression
        self._quick_nodes = _quick_nodes(expression)

    def is_quick(self, document: Any) -> bool:
        """See fepflow.jsonpath.path.Path.is_quick."""
        return self._quick_nodes > 0 and is_small(document, self._quick_nodes)

    def find(self, document: Any) -> list[Any]:
        """See fepflow.jsonpath.path.Path.find."""
        with _limits(self.expression):
            return self._find(document)

    def resolve(self, document: Any) -> Any:
        """See fepflow.jsonpath.path.Path.resolve."""
        with _limits(self.expression):
            values = self._find(document)
            if values:
                return values[0] if len(values) == 1 else values
            end = ""
            with suppress(TimeoutError):  # there is an answer already; only its explanation takes too long
                end = self._end(document)
            raise JSONPathError(f"{self.expression!r} found nothing{end}", self.expression)

    def _find(self, document: Any) -> list[Any]:
        values = list(islice(self._values(document), MAX_NODES + 1))
        if len(values) > MAX_NODES:
            raise LimitError(f"it finds more than {MAX_NODES:,} values")
        return values

    def _values(self, document: Any) -> Iterable[Any]:
        raise NotImplementedError

    def _end(self, document: Any) -> str:
        """The last words of the message about finding nothing: after which part of the path, where known."""
        return ""


def _quick_nodes(expression: str) -> int:
    """The size of a document in which a path is quick; 0 if it depends on the texts in it, too.

    At worst each `..`, filter, and `$` inside a filter has a path look at the whole document again.
    """
    skeleton = outside_quotes(expression)
    if _FUNCTION.search(skeleton):
        return 0
    looks = skeleton.count("..") + skeleton.count("?") + skeleton.count("$") - 1
    return int(_QUICK_VISITS ** (1 / max(looks, 1)))


def invalid(expression: str, reason: str, position: int | None = None) -> JSONPathError:
    """The error of an expression that is no path, with the place of the error where known."""
    message = f"{expression!r} is not a valid JSONPath: {reason}"
    if position is not None:
        rest = expression[position : position + 20]
        message += f", at position {position}" + (f", {rest!r}" if rest else ", the end")
        if rest and rest[0] in "-@/+:;&#%" and expression[position - 1] not in "[(":
            message += "; a name with such a character is written ['like-this']"
    return JSONPathError(message, expression, position)


class SearchPattern(Protocol):
    """A function of `regex` that looks for a pattern within a time limit."""

    def __call__(self, pattern: str, string: str, *, timeout: float, concurrent: bool) -> Any:
        """The match, or None; raises TimeoutError after `timeout` seconds."""


def watched_pattern(method: SearchPattern, pattern: str, text: str) -> Any:
    """Look for a pattern in what time is left."""
    if len(text) > MAX_SUBJECT:
        raise LimitError(f"a regular expression meets a text of over {MAX_SUBJECT:,} characters")
    # `concurrent` lets other threads run meanwhile; without it a pattern holds up the whole process.
    return method(pattern, text, timeout=remaining(), concurrent=True)
