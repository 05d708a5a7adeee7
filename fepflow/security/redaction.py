"""Secrets taken out of whatever leaves a target, a model or a check (an agent may well echo its own credentials).

A secret is found in every encoding that texts of the web use, also in several at once (`fepflow.security.escapes`), in
base64 at whatever offset, and in hex. Searching is linear in the text. What was encoded otherwise (reversed,
encrypted, cut in two) cannot be found: docs/security.md says so.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from time import monotonic
from typing import Any, TypeVar

from fepflow.errors import FepflowError
from fepflow.security.escapes import to_bytes, unescaped, unescaped_with_offsets
from fepflow.security.secret_names import is_secret_name, secrets_in_address

E = TypeVar("E", bound=FepflowError)

MASK = "***"

SHORTEST = 4
"""Characters: what is shorter is found everywhere, and no secret."""

_SHORTEST_IN_ENVIRONMENT = 8
"""Of a variable that is only named like a secret: `AUTH_MODE=none` is none."""

_WORKING_DIRECTORY = "PWD"
"""The variable in which shells have it; elsewhere `pwd` is a password."""

_SHORTEST_FOLDED = 8
"""From so many characters on, a secret is found in lower case and upper case, too."""

_ROUNDS = 3
"""Escapes of escapes that are seen through, such as percent-encoded JSON; percent signs of percent signs are one."""

_WINDOW = 65_536
"""Characters of a text of which only the beginning is shown that are searched at least."""

_URL = re.compile(r"://(?:[^\s/?#'\"<>]{1,2000}@)?([^\s?'\"<>]{0,2000})(\?[^\s'\"<>)\]]+)?")

_remembered: set[str] = set()


def remember(secrets: Iterable[str]) -> None:
    """Have no error of this process show these; called wherever a secret is read."""
    _remembered.update(secret for secret in secrets if len(secret) >= SHORTEST)


def known_secrets(env: Mapping[str, str] | None = None) -> frozenset[str]:
    """What no error may show: what was remembered, and what the environment calls a secret."""
    if env is not None:
        return frozenset(_remembered) | secrets_among(env)
    # Reading all variables takes longer than checking an output; they hardly change while a process lasts.
    return frozenset(_remembered) | _secrets_of_process(int(monotonic()), len(os.environ))


@lru_cache(maxsize=1)
def _secrets_of_process(_: int, __: int) -> frozenset[str]:
    return secrets_among(os.environ)


def secrets_among(env: Mapping[str, str]) -> frozenset[str]:
    """Return the values of variables that are named like a secret, and the secrets in addresses."""
    found: set[str] = set()
    for name, value in env.items():
        if len(value) >= _SHORTEST_IN_ENVIRONMENT and is_secret_name(name) and name != _WORKING_DIRECTORY:
            found.add(value)
        if "://" in value:
            found |= secrets_in_address(value)
    return frozenset(found)


def redact(text: str, secrets: frozenset[str]) -> str:
    """`text` with each secret replaced by `***`, in whatever encoding it stands there."""
    return _redactor(secrets).redact(text) if secrets else text


def redact_json(value: Any, secrets: frozenset[str]) -> Any:
    """A JSON value with each secret in its strings and keys replaced by `***`; unchanged parts are shared."""
    return _in_json(value, _redactor(secrets)) if secrets else value


def holds_secret(text: str, secrets: frozenset[str]) -> bool:
    """Whether `redact` would change the text, or a part of it that is decoded once: the quick look before much work."""
    return bool(secrets) and _redactor(secrets).finds(text, _ROUNDS + 1)


def excerpt(text: str, secrets: frozenset[str], limit: int = 200) -> str:
    """The beginning of `text` for an error message: redacted, on one line, escaped, `limit` characters long.

    All that is known is taken out, see `known_secrets`, and `secrets`.
    """
    # Redacted before the cut: half a secret would not be found.
    secrets = secrets | known_secrets()
    longest = max(map(len, secrets), default=0)
    window = max(_WINDOW, 100 * longest, 2 * limit)
    shown = redact(text[:window], secrets)
    if len(text) > window:
        shown = shown[: -12 * longest or None]  # what was cut off there may have been a secret, escaped
    line = " ".join(shown.split())
    shown = line if len(line) <= limit else line[:limit] + "..."
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in shown)


def without_secrets(error: E) -> E:
    """The error, its message redacted: what every error of a target and of a model passes."""
    error.args = (redact(str(error), known_secrets()), *error.args[1:])
    return error


def words_of(error: BaseException, limit: int = 500) -> str:
    """What an exception of foreign code says, as it may be shown: of addresses without password and query."""
    try:
        said = str(error)
    except Exception:  # the message is their code, too
        return "it has no message"
    return excerpt(_without_addresses(said), frozenset(), limit)


def hide_addresses_in_logs(logger: str) -> None:
    """Have no record of a foreign logger show a secret, nor an address with its password and query."""
    logging.getLogger(logger).addFilter(_hide_addresses)  # the same filter is added once only


def _hide_addresses(record: logging.LogRecord) -> bool:
    record.msg, record.args = _without_addresses(record.getMessage()), None
    return True


def _without_addresses(said: str) -> str:
    # Secrets first: what is cut off an address may be half of one.
    said = redact(said[: 2 * _WINDOW], known_secrets())[:_WINDOW]
    return _URL.sub(lambda match: f"://{match[1]}" + (f"?{MASK}" if match[2] else ""), said)


class _Redactor:
    """The forms of some secrets, as bytes: those to be found as they are, and those in lower case."""

    def __init__(self, secrets: frozenset[str]) -> None:
        exact: set[bytes] = set()
        folded: set[bytes] = set()
        for secret in secrets:
            (folded if len(secret) >= _SHORTEST_FOLDED else exact).update(_forms(secret))
        self._exact = sorted(exact, key=len, reverse=True)
        self._folded = sorted({form.lower() for form in folded}, key=len, reverse=True)

    def redact(self, text: str) -> str:
        if not self.finds(text, _ROUNDS):
            return text
        raw = to_bytes(text)
        parts: list[bytes] = []
        end = 0
        for start, stop in _merged(self._spans(raw)):
            parts += [raw[end:start], MASK.encode()]
            end = stop
        return b"".join([*parts, raw[end:]]).decode("utf-8", "surrogatepass")

    def finds(self, text: str, rounds: int) -> bool:
        data = to_bytes(text)
        for _ in range(rounds):
            if self._is_in(data):
                return True
            decoded = unescaped(data)
            if decoded == data:
                return False
            data = decoded
        return self._is_in(data)

    def _is_in(self, data: bytes) -> bool:
        if any(form in data for form in self._exact):
            return True
        lower = data.lower() if self._folded else b""
        return any(form in lower for form in self._folded)

    def _spans(self, raw: bytes) -> Iterator[tuple[int, int]]:
        """The positions of secrets in the text, also in escaped form."""
        data, offsets = raw, array("q", range(len(raw) + 1))
        for _ in range(_ROUNDS + 1):
            for start, end in self._found(data):
                yield offsets[start], offsets[end]
            data, offsets, changed = unescaped_with_offsets(data, offsets)
            if not changed:
                return

    def _found(self, data: bytes) -> Iterator[tuple[int, int]]:
        for text, forms in ((data, self._exact), (data.lower(), self._folded)):
            for form in forms:
                start = text.find(form)
                while start >= 0:
                    yield start, start + len(form)
                    start = text.find(form, start + len(form))


@lru_cache(maxsize=16)
def _redactor(secrets: frozenset[str]) -> _Redactor:
    return _Redactor(secrets)


def _in_json(value: Any, redactor: _Redactor) -> Any:
    if isinstance(value, str):
        return redactor.redact(value)
    if isinstance(value, dict):
        return {redactor.redact(key): _in_json(item, redactor) for key, item in value.items()}
    if isinstance(value, list):
        return [_in_json(item, redactor) for item in value]
    return value


def _forms(secret: str) -> set[bytes]:
    """How a secret reads: as it is, as it is after decoding (it may look escaped itself), in base64 and in hex."""
    raw = to_bytes(secret)
    forms = {raw, raw.replace(b" ", b"+"), binascii.hexlify(raw), binascii.hexlify(raw).upper()}
    decoded = raw
    for _ in range(_ROUNDS):
        decoded = unescaped(decoded)
        forms.add(decoded)
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        forms |= {encode(raw), encode(raw).rstrip(b"=")}
        for before in (0, 1, 2):  # bytes of what stands before it; the characters that hold no other byte's bits
            whole = encode(bytes(before) + raw)
            own = whole[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
            forms |= {own} if len(own) >= 6 else set()
    return {form for form in forms if len(form) >= SHORTEST}


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans in their order, those that overlap as one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged
