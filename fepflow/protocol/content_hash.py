"""Content hashes, the same for the same content on every machine, and cached responses of models, known by them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import orjson

from fepflow.protocol.model import utc_now


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


# --- cached responses of models --------------------------------------------------------------------------------------


Kind = Literal["judge", "embedding"]
"""Kinds of requests to models, each named as the section of a suite with the defaults of such checks."""


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """A valid response of a model, with the usage of its requests; None for unreported values.

    `text` is the unchanged response, or a vector in the form of `fepflow.calls.models.embeddings`. `model` is the name
    in the request, `response_model` the name in the response; `mode` is the output mode of a judge.
    """

    kind: Kind
    model: str
    response_model: str
    mode: str | None
    text: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    dropped_params: tuple[str, ...] = ()
    responded_at: datetime = field(default_factory=utc_now)
