"""Regular expressions that cannot stall a run.

Python's `re` backtracks: a nested quantifier can take years on a short text and cannot be stopped. Most patterns
cannot do that, and their structure shows it; they run in place, in microseconds. The others run in a thread, in
the `regex` module, which gives the interpreter away while it matches and keeps a time limit.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from math import log2
from typing import TYPE_CHECKING, Any

from fepflow.calls.thread_pool import SEARCHES
from fepflow.errors import CheckArgumentsError, CheckTimeoutError

if TYPE_CHECKING:
    import regex

_PARSER: Any = importlib.import_module("re._parser")
"""That of `re` itself: no public one gives a pattern's structure."""

MAX_PATTERN = 1_000
MAX_TEXT = 1_000_000
TIME_LIMIT = 1.0
"""Seconds; of computing, as `regex` measures it."""

TIMEOUT = 1.5
"""Seconds of the clock on the wall after which a search is given up: a busy machine makes seconds of computing long."""

_STEPS = 20_000_000
"""Backtracking steps that may run in place: about 0.1 s at worst."""

MAX_EXPANSION = 20_000
"""Parts of a pattern whose repeats are written out, which `regex` does: about 500 bytes each."""

MAX_RANGES = 2_500_000
"""Characters in a pattern's ranges: where case does not count, each is looked up as the pattern is compiled."""

_COMPILED = 32
"""Patterns of `regex` that are kept; each may have some megabytes."""

_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_REFERENCES = ("GROUPREF", "GROUPREF_EXISTS")

_MANY = 1_000_000

Choices = tuple[float, int]
"""In how many ways a part can match, at most: `(bits, degree)` stands for 2**bits * length**degree."""


def is_cheap(pattern: str, flags: int, length: int) -> bool:
    """Whether a search of a text of `length` characters is bound to be quick: few ways to match, from every start."""
    choices = _choices_of_pattern(pattern, flags)
    if choices is None:
        return False
    bits, degree = choices
    return bits + (degree + 1) * log2(max(length, 2)) <= log2(_STEPS)


@lru_cache(maxsize=1024)
def _choices_of_pattern(pattern: str, flags: int) -> Choices | None:
    """None where there is no bound: a choice inside an unbounded repeat, or a reference to what was matched."""
    try:
        with quietly():
            return _choices(_PARSER.parse(pattern, flags))
    except (_UnboundedError, RecursionError):
        return None


@contextmanager
def quietly() -> Iterator[None]:
    """Without Python's advice to its programmers about what a pattern may mean in some later version of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


class _UnboundedError(Exception):
    pass


def _choices(items: Any) -> Choices:
    """Of parts in a row: each choice of one goes with each of the others."""
    parts = [_choices_of(str(operation), argument) for operation, argument in items]
    return sum(bits for bits, _ in parts), sum(degree for _, degree in parts)


def _choices_of(operation: str, argument: Any) -> Choices:
    if operation in _REFERENCES:
        raise _UnboundedError
    if operation in _REPEATS:
        low, high, body = argument
        bits, degree = _choices(body)
        if high != _PARSER.MAXREPEAT:
            return bits * high + log2(high - low + 1), min(degree * high, _MANY)
        if bits or degree:
            raise _UnboundedError
        return 0.0, 1
    parts = [_choices(part) for part in _subpatterns(argument)]
    if operation == "BRANCH":
        return max(bits for bits, _ in parts) + log2(len(parts)), max(degree for _, degree in parts)
    return sum(bits for bits, _ in parts), sum(degree for _, degree in parts)


def _subpatterns(argument: Any) -> list[Any]:
    """The patterns inside a group, a branch or a lookaround."""
    if isinstance(argument, _PARSER.SubPattern):
        return [argument]
    if isinstance(argument, tuple | list):
        return [part for item in argument for part in _subpatterns(item)]
    return []


async def search_guarded(pattern: str, flags: int, text: str) -> bool:
    """Search within the time limit, off the event loop. Raises CheckTimeoutError; CheckArgumentsError if too long."""
    _refuse_long(text)
    return await SEARCHES.run(partial(_search, pattern, flags, text), TIMEOUT, "the search")


def search(pattern: str, flags: int, text: str, limit: float) -> bool:
    """Search within `limit` seconds, here and now. Raises CheckTimeoutError; CheckArgumentsError if too long."""
    if is_cheap(pattern, flags, len(text)):
        return compile_pattern(pattern, flags).search(text) is not None
    _refuse_long(text)
    return _search(pattern, flags, text, limit)


def _refuse_long(text: str) -> None:
    if len(text) > MAX_TEXT:
        raise CheckArgumentsError(f"regex searches texts of up to {MAX_TEXT:,} characters; this one has {len(text):,}")


def _refuse_bombs(items: Any) -> None:
    """Raises ValueError for a short pattern that takes much time or memory to compile."""
    expansion, ranges = _measure(items)
    if expansion > MAX_EXPANSION:
        raise ValueError(f"its repeats come to more than {MAX_EXPANSION:,} parts")
    if ranges > MAX_RANGES:
        raise ValueError(f"its ranges hold more than {MAX_RANGES:,} characters")


def _measure(items: Any) -> tuple[int, int]:
    """Parts when repeats are written out as often as they must match, and characters in ranges."""
    expansion = ranges = 0
    for operation, argument in items:
        name = str(operation)
        inner = [_measure(part) for part in _subpatterns(argument)]
        parts = 1 + sum(size for size, _ in inner)
        expansion += min(parts * max(argument[0], 1), _MANY) if name in _REPEATS else parts
        ranges += sum(width for _, width in inner)
        if name == "IN":
            ranges += sum(item[1][1] - item[1][0] for item in argument if str(item[0]) == "RANGE")
    return expansion, ranges


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str, flags: int) -> re.Pattern[str]:
    """Compile once; raises ValueError with the place of the error, or for a bomb."""
    try:
        with quietly():
            _refuse_bombs(_PARSER.parse(pattern, flags))
            return re.compile(pattern, flags)
    except (re.error, OverflowError, RecursionError, ValueError) as error:
        location = f" at position {error.pos}" if isinstance(error, re.error) and error.pos is not None else ""
        reason = error.msg if isinstance(error, re.error) else str(error)
        raise ValueError(f"the pattern is not a regular expression: {reason}{location}") from None


_TOKEN = re.compile(r"\\N\{[^}]*\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{(?!\d*,?\d*\})", re.DOTALL)
_IN_SET = re.compile(r"(\\.)|\[", re.DOTALL)


def _portable(pattern: str) -> str:
    """The pattern with escapes where `regex` knows more than `re` does: sets in sets, and `{` for inexact matches."""

    def escaped(match: re.Match[str]) -> str:
        token = match[0]
        if token.startswith("["):
            return "[" + _IN_SET.sub(lambda inner: inner[1] or "\\[", token[1:])
        return token if token.startswith("\\") else "\\{"

    return _TOKEN.sub(escaped, pattern)


def _search(pattern: str, flags: int, text: str, limit: float = TIME_LIMIT) -> bool:
    import regex  # only patterns that need the guard pay for its import

    try:
        return _compiled(pattern, flags).search(text, timeout=limit, concurrent=True) is not None
    except TimeoutError:
        raise CheckTimeoutError(f"the pattern took longer than {limit:.2g} s on this text") from None
    except (regex.error, RecursionError) as error:
        raise CheckArgumentsError(f"the pattern cannot be searched under a time limit: {error}") from None


@lru_cache(maxsize=_COMPILED)
def _compiled(pattern: str, flags: int) -> regex.Pattern[str]:
    import regex

    compile_pattern(pattern, flags)
    # The module's bit for ASCII differs; Python's would switch on another syntax there.
    bits = (flags & ~re.ASCII) | regex.ASCII if flags & re.ASCII else flags
    return regex.compile(_portable(pattern), bits, cache_pattern=False)
