"""Column types: JSON values, texts with any characters, aware times."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, overload

from sqlalchemy import DateTime, Dialect, Text
from sqlalchemy.types import TypeDecorator

from fepflow.json.codec import Encoded, decode, encode

MAX_INDEXED = 2_000
"""Letters of a text, escapes included, that fit into an index; PostgreSQL's limit is 2,700."""
_KEPT = 100
SHORTEST_CUT = _KEPT + len(r"\u2026 ") + 64
"""The least number of letters in the column of a text that `indexable` has cut: its beginning, and a SHA-256."""

_PLAIN = re.compile(r"[ !#-\[\]-~]*")  # what JSON writes as it is


class JsonText(TypeDecorator[Any]):
    """A JSON value in a TEXT column, by `fepflow.json.codec`; None is JSON's `null`."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Encode the value, unless it is encoded already."""
        return str(value) if isinstance(value, Encoded) else str(encode(value))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """Decode the value."""
        return None if value is None else decode(value)


class OptionalJson(JsonText):
    """A JSON value in a nullable TEXT column; None is SQL's NULL."""

    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Encode the value; None stays."""
        return None if value is None else super().process_bind_param(value, dialect)


class EscapedText(TypeDecorator[str]):
    """Text with JSON's escapes, so that names and messages may hold NUL characters and lone surrogates."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Escape the text."""
        if value is None or _PLAIN.fullmatch(value):
            return value
        return json.dumps(value)[1:-1]

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Undo the escapes."""
        return value if value is None or "\\" not in value else str(json.loads(f'"{value}"'))


class UtcDateTime(TypeDecorator[datetime]):
    """An aware time, in UTC on both sides; SQLite has no time zones of its own."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert the time to UTC."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Give the time its zone."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


@overload
def indexable(text: str, limit: int = MAX_INDEXED) -> str: ...
@overload
def indexable(text: str | None, limit: int = MAX_INDEXED) -> str | None: ...
def indexable(text: str | None, limit: int = MAX_INDEXED) -> str | None:
    """Return a text that fits into an index: a longer one is cut, and a SHA-256 tells it from others.

    `limit`: letters, escapes included. The columns of an index share its limit.
    """
    if text is None or len(encode(text)) <= limit:
        return text
    return f"{text[:_KEPT]}… {sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"
