"""Content hashes: the same content has the same hash, on every machine."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import orjson


def canonical_json(value: Any) -> bytes:
    """Return `value` as JSON with sorted keys and no spaces.

    Values that JSON cannot express (NaN, a lone surrogate, a Python object) are written in Python's way, because every
    value needs a hash.
    """
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS, default=repr)
    except (TypeError, RecursionError):  # orjson.JSONEncodeError is a TypeError
        return _in_pythons_way(value)
    # NaN is null to orjson: a value with a null is written by `json`, which distinguishes them.
    return _in_pythons_way(value) if b"null" in text else text


def _in_pythons_way(value: Any) -> bytes:
    try:
        return _ENCODER.encode(value).encode("ascii")
    except (TypeError, ValueError, RecursionError):  # keys that cannot be sorted, a value that contains itself
        return repr(value).encode("ascii", "backslashreplace")


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=repr)


def content_hash(*parts: Any) -> str:
    """Return the SHA-256 of `parts` in canonical JSON, 64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(parts)).hexdigest()
