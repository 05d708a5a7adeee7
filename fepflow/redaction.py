"""Secrets taken out of whatever leaves somebody we ask (an agent may well echo its own credentials)."""

from __future__ import annotations

import base64
import html
import json
import re
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

MASK = "***"


def redact(text: str, secrets: frozenset[str]) -> str:
    """`text` with each secret replaced by `***`, also where it stands JSON-escaped, URL-encoded, HTML-escaped or
    in base64."""
    return _pattern(secrets).sub(MASK, text) if secrets else text


def redact_json(value: Any, secrets: frozenset[str]) -> Any:
    """A JSON value with each secret in its strings and keys replaced by `***`; unchanged parts are shared."""
    if not secrets:
        return value
    if isinstance(value, str):
        return redact(value, secrets)
    if isinstance(value, dict):
        return {redact(key, secrets): redact_json(item, secrets) for key, item in value.items()}
    if isinstance(value, list):
        return [redact_json(item, secrets) for item in value]
    return value


def excerpt(text: str, secrets: frozenset[str], limit: int = 200) -> str:
    """The beginning of `text` for an error message: redacted, on one line, escaped, `limit` characters long."""
    # Redacted before the cut: half a secret would not be found.
    line = " ".join(redact(text, secrets).split())
    shown = line if len(line) <= limit else line[:limit] + "..."
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in shown)


@lru_cache(maxsize=16)
def _pattern(secrets: frozenset[str]) -> re.Pattern[str]:
    forms = {form for secret in secrets for form in _forms(secret)}
    # Longest first: a secret that contains another one must not leave its rest behind.
    return re.compile("|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True)))


def _forms(secret: str) -> set[str]:
    raw = secret.encode("utf-8", "surrogatepass")
    return {
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        quote(raw),
        quote(raw, safe=""),
        quote_plus(raw),
        html.escape(secret),
        base64.b64encode(raw).decode("ascii"),
        base64.urlsafe_b64encode(raw).decode("ascii").rstrip("="),
    } - {""}
