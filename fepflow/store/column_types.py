"""Columns that hold JSON values, and texts with whatever characters; see `fepflow.json.codec`."""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import Any, overload

from sqlalchemy import Dialect, Text
from sqlalchemy.types import TypeDecorator

from fepflow.json.codec import Encoded, decode, encode

MAX_INDEXED = 2_000
"""Letters of a text, escapes included, that an index takes; PostgreSQL's take 2,700."""
_KEPT = 100
SHORTEST_CUT = _KEPT + len(r"\u2026 ") + 64
"""Letters that a column has at least of a text that `indexable` has cut: its beginning, and a SHA-256."""

_PLAIN = re.compile(r"[ !#-\[\]-~]*")  # what JSON writes as it is


class JsonText(TypeDecorator[Any]):
    """A JSON value in a TEXT column. None is JSON's `null`; in a nullable column it is SQL's NULL."""

    impl = Text
    cache_ok = True

    def __init__(self, *, nullable: bool = False) -> None:
        self.nullable = nullable
        super().__init__()

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """As text, once."""
        if isinstance(value, Encoded):
            return str(value)
        return None if value is None and self.nullable else str(encode(value))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """As it was."""
        return None if value is None else decode(value)


class EscapedText(TypeDecorator[str]):
    """Text with JSON's escapes, so that names and messages may hold NUL characters and lone surrogates."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """With escapes."""
        if value is None or _PLAIN.fullmatch(value):
            return value
        return json.dumps(value)[1:-1]

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Without."""
        return value if value is None or "\\" not in value else str(json.loads(f'"{value}"'))


@overload
def indexable(text: str, limit: int = MAX_INDEXED) -> str: ...
@overload
def indexable(text: str | None, limit: int = MAX_INDEXED) -> str | None: ...
def indexable(text: str | None, limit: int = MAX_INDEXED) -> str | None:
    """A text as an index takes it: one of more letters, escapes included, is cut, and told from others by its SHA-256.

    The columns of an index share what it takes.
    """
    if text is None or len(encode(text)) <= limit:
        return text
    return f"{text[:_KEPT]}… {sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"
