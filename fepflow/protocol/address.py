"""Content addresses: the same content has the same name, on every machine."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_json(value: Any) -> str:
    """`value` as JSON with sorted keys and no spaces, ASCII only.

    NUL characters and lone surrogates become escapes, so that any database can hold the text. What JSON cannot say
    (NaN, a Python object) is written as a string: an address must exist for every value.
    """
    return _ENCODER.encode(value)


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=repr)


def address_of(*parts: Any) -> str:
    """The SHA-256 of `parts` in canonical JSON, 64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(parts).encode("ascii")).hexdigest()
