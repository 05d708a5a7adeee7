"""Regular expressions with Python's syntax and `re.search` semantics that cannot stall a run.

Python's `re` backtracks: a nested quantifier can take years on a short text, and cannot be stopped. So patterns are
searched by the `regex` module, which keeps a time limit and can leave the interpreter to others meanwhile.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache, partial

import regex

from fepflow.errors import CheckArgumentsError, CheckTimeoutError
from fepflow.time_limit import IN_LOOP, NotInLoopError, within

MAX_PATTERN = 1_000
MAX_TEXT = 1_000_000
TIME_LIMIT = 1.0
"""Seconds; of computing, as `regex` measures it."""

_COMPILE_LIMIT = 0.5
"""Seconds that compiling may take: ranges without case, each character of which is looked up, take minutes."""

INLINE_LIMIT = 0.01
"""Seconds that a search may hold up the event loop. Most take microseconds; the others begin anew in a thread."""

MAX_PARTS = 20_000
"""Parts of a pattern whose repeats are written out, which `regex` does: about 500 bytes each."""

_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|(\()|(\))|\{(\d+)(?:,\d*)?\}|.", re.DOTALL)


def search(pattern: str, flags: int, text: str) -> bool:
    """Return whether the pattern is found.

    Raises CheckTimeoutError after a second (NotInLoopError in the event loop, sooner), and CheckArgumentsError for a
    text that is too long.
    """
    return _match(pattern, flags, text) is not None


def find_text(pattern: str, text: str) -> str | None:
    """Return what the pattern's first group matches, or all of the match if it has no groups; None without either.

    Raises as `search` does.
    """
    match = _match(pattern, 0, text)
    if match is None:
        return None
    part: str | None = match[1] if match.re.groups else match[0]
    return part


def _match(pattern: str, flags: int, text: str) -> regex.Match[str] | None:
    if len(text) > MAX_TEXT:
        raise CheckArgumentsError(f"regex searches texts of up to {MAX_TEXT:,} characters; this one has {len(text):,}")
    in_loop = IN_LOOP.get()
    try:
        # A search that is `concurrent` lets other threads run, which costs more than most searches take.
        limit = INLINE_LIMIT if in_loop else TIME_LIMIT
        return _compiled(pattern, flags).search(text, timeout=limit, concurrent=not in_loop)
    except TimeoutError:
        if in_loop:
            raise NotInLoopError from None
        raise CheckTimeoutError(f"the pattern took longer than {TIME_LIMIT:g} s on this text") from None
    except (regex.error, RecursionError) as error:
        raise CheckArgumentsError(f"the pattern cannot be searched under a time limit: {error}") from None


def place_of_match(pattern: str, flags: int, text: str) -> int | None:
    """Return the index of a match, or None if there is none within milliseconds."""
    try:
        match = _compiled(pattern, flags).search(text, timeout=INLINE_LIMIT)
    except (TimeoutError, ValueError, TypeError):
        return None
    return match.start() if match else None


def check_pattern(pattern: str, flags: int) -> None:
    """Raise ValueError for a pattern that Python refuses, with the place, or that takes too much time or memory."""
    try:
        _check(pattern, flags)
    except (TimeoutError, CheckTimeoutError):
        raise ValueError("the pattern is not a regular expression: it takes too long to be compiled") from None


@lru_cache(maxsize=1024)
def _check(pattern: str, flags: int) -> None:
    try:
        within(_COMPILE_LIMIT, partial(_compile, pattern, flags))
    except (re.error, OverflowError, RecursionError, ValueError) as error:
        location = f" at position {error.pos}" if isinstance(error, re.error) and error.pos is not None else ""
        reason = error.msg if isinstance(error, re.error) else str(error)
        raise ValueError(f"the pattern is not a regular expression: {reason}{location}") from None


def _compile(pattern: str, flags: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about later versions of Python
        re.compile(pattern, flags)
    if _parts(pattern) > MAX_PARTS:
        raise ValueError(f"its repeats come to more than {MAX_PARTS:,} parts")


def _parts(pattern: str) -> int:
    """Return the number of parts of a pattern after its counted repeats are written out."""
    open_groups, last = [0], 0
    for token in _PART.finditer(pattern):
        opens, closes, count = token.groups()
        if opens:
            open_groups.append(0)
        elif count:
            open_groups[-1] += last * max(int(count) - 1, 0)
            last *= max(int(count), 1)
        else:
            last = 1 + (open_groups.pop() if closes and len(open_groups) > 1 else 0)
            open_groups[-1] += last
    return sum(open_groups)


_TOKEN = re.compile(r"\\N\{[^}]*\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{(?!\d*,?\d*\})", re.DOTALL)
_IN_SET = re.compile(r"(\\.)|\[", re.DOTALL)


def _portable(pattern: str) -> str:
    """Return the pattern with escapes for the syntax that only `regex` has: sets in sets, `{` for inexact matches."""

    def escaped(match: re.Match[str]) -> str:
        token = match[0]
        if token.startswith("["):
            return "[" + _IN_SET.sub(lambda inner: inner[1] or "\\[", token[1:])
        return token if token.startswith("\\") else "\\{"

    return _TOKEN.sub(escaped, pattern)


@lru_cache(maxsize=128)
def _compiled(pattern: str, flags: int) -> regex.Pattern[str]:
    check_pattern(pattern, flags)
    # The module's bit for ASCII differs; Python's would switch on another syntax there.
    bits = (flags & ~re.ASCII) | regex.ASCII if flags & re.ASCII else flags
    return regex.compile(_portable(pattern), bits, cache_pattern=False)
