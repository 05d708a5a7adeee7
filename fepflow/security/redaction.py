"""Secrets taken out of whatever leaves a target, a model or a check (an agent may well echo its own credentials).

A secret is found as it is, percent-encoded, with JSON's escapes, and in base64 at whatever offset. Searching is linear
in the text. What was encoded otherwise (twice, reversed, encrypted, cut in two) is not found: docs/security.md says so.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import re
from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, unquote_plus, urlsplit

from fepflow.errors import FepflowError

E = TypeVar("E", bound=FepflowError)
T = TypeVar("T")

MASK = "***"

SHORTEST = 4
"""Characters of the shortest secret: a shorter text would be found everywhere."""

_SHORTEST_IN_ENVIRONMENT = 8
"""Shortest secret in a variable that is only named like a secret: `AUTH_MODE=none` does not count."""

_WORKING_DIRECTORY = "PWD"
"""The variable in which shells have it; elsewhere `pwd` is a password."""

_SHORTEST_FOLDED = 8
"""Length from which on a secret is found in lower case and upper case, too."""

_SHORTEST_BASE64 = 6

_JSON_ESCAPES = re.compile(r"""(?:\\u[0-9A-Fa-f]{4}|\\["\\/bfnrt])+""")

_WINDOW = 65_536
"""Characters of a text of which only the beginning is shown that are searched at least."""

_URL = re.compile(r"://(?:[^\s/?#'\"<>]{1,2000}@)?([^\s?'\"<>]{0,2000})(\?[^\s'\"<>)\]]+)?")

_remembered: set[str] = set()


def remember(secrets: Iterable[str]) -> None:
    """Remember secrets that no error of this process may show; called wherever a secret is read."""
    _remembered.update(secret for secret in secrets if len(secret) >= SHORTEST)


def known_secrets(env: Mapping[str, str] | None = None) -> frozenset[str]:
    """Return the secrets that no error may show: those remembered, and those in the environment."""
    if env is not None:
        return frozenset(_remembered) | secrets_among(env)
    # Reading all variables takes longer than checking an output; they hardly change while a process lasts.
    return frozenset(_remembered) | _secrets_of_process(int(monotonic()), len(os.environ))


@lru_cache(maxsize=1)
def _secrets_of_process(_: int, __: int) -> frozenset[str]:
    return secrets_among(os.environ)


def secrets_among(env: Mapping[str, str]) -> frozenset[str]:
    """Return the values of variables that are named like a secret, and the secrets in addresses."""
    secrets: set[str] = set()
    for name, value in env.items():
        if len(value) >= _SHORTEST_IN_ENVIRONMENT and is_secret_name(name) and name != _WORKING_DIRECTORY:
            secrets.add(value)
        if "://" in value:
            secrets |= secrets_in_address(value)
    return frozenset(secrets)


def redact(text: str, secrets: frozenset[str]) -> str:
    """Return `text` with each secret replaced by `***`, in whatever form it stands there."""
    return _redactor(secrets).redact(text) if secrets else text


def redact_json(value: T, secrets: frozenset[str]) -> T:
    """Return a JSON value with each secret in its strings and keys replaced by `***`; unchanged parts are shared."""
    redacted: T = _in_json(value, _redactor(secrets)) if secrets else value
    return redacted


def holds_secret(text: str, secrets: frozenset[str]) -> bool:
    """Return whether the text, or a part of it that is decoded once as JSON, may hold a secret: the quick look."""
    # Escapes of JSON may hide one that is encoded otherwise.
    return bool(secrets) and ("\\" in text or _redactor(secrets).finds(text))


def excerpt(text: str, secrets: frozenset[str], limit: int = 200) -> str:
    """Return the beginning of `text` for an error message: redacted, on one line, escaped, `limit` characters long.

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
    """Return the error with its message redacted: every error of a target and of a model passes here."""
    error.args = (redact(str(error), known_secrets()), *error.args[1:])
    return error


def words_of(error: BaseException, limit: int = 500) -> str:
    """Return the message of an exception of foreign code without secrets, its addresses without password and query."""
    try:
        message = str(error)
    except Exception:  # the message is their code, too
        return "it has no message"
    return excerpt(_without_addresses(message), frozenset(), limit)


def hide_addresses_in_logs(logger: str) -> None:
    """Redact the records of a foreign logger: no secret, and no address with its password and query."""
    logging.getLogger(logger).addFilter(_hide_addresses)  # the same filter is added once only


def _hide_addresses(record: logging.LogRecord) -> bool:
    record.msg, record.args = _without_addresses(record.getMessage()), None
    return True


def _without_addresses(message: str) -> str:
    # Secrets first: what is cut off an address may be half of one.
    message = redact(message[: 2 * _WINDOW], known_secrets())[:_WINDOW]
    return _URL.sub(lambda match: f"://{match[1]}" + (f"?{MASK}" if match[2] else ""), message)


class _Redactor:
    """Finds some secrets in texts: quickly whether there are any, and then where they stand."""

    def __init__(self, secrets: frozenset[str]) -> None:
        self._secrets = secrets
        self._exact = {secret for secret in secrets if len(secret) < _SHORTEST_FOLDED}
        self._exact.update(form for secret in secrets for form in _base64_forms(secret))
        self._folded = {secret.lower() for secret in secrets if len(secret) >= _SHORTEST_FOLDED}

    def redact(self, text: str) -> str:
        if not self.finds(text):
            return text
        parts: list[str] = []
        end = 0
        for start, stop in _merged(match.span() for pattern in self._patterns for match in pattern.finditer(text)):
            parts += [text[end:start], MASK]
            end = stop
        return "".join([*parts, text[end:]])

    def finds(self, text: str) -> bool:
        texts = [text]
        if "%" in text or "+" in text:
            texts.append(unquote_plus(text))
        if "\\" in text:
            texts.append(_JSON_ESCAPES.sub(lambda match: str(json.loads(f'"{match[0]}"')), text))
        return any(map(self._is_in, texts))

    def _is_in(self, text: str) -> bool:
        lower = text.lower() if self._folded else ""
        return any(form in text for form in self._exact) or any(form in lower for form in self._folded)

    @cached_property
    def _patterns(self) -> list[re.Pattern[str]]:
        patterns = [
            re.compile("".join(map(_any_form, secret)), re.IGNORECASE if len(secret) >= _SHORTEST_FOLDED else 0)
            for secret in self._secrets
        ]
        encoded = {form for secret in self._secrets for form in _base64_forms(secret)}
        longest_first = sorted(encoded, key=len, reverse=True)
        return [*patterns, re.compile("|".join(map(re.escape, longest_first)))] if encoded else patterns


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


def _any_form(char: str) -> str:
    """Return a pattern of a character as it is, percent-encoded, and with JSON's escapes."""
    utf8, utf16 = char.encode("utf-8", "surrogatepass"), char.encode("utf-16-be", "surrogatepass")
    percent = "".join(f"%{byte:02x}" for byte in utf8)
    units = "".join(rf"\\u{utf16[start : start + 2].hex()}" for start in range(0, len(utf16), 2))
    forms = {re.escape(char), f"(?i:{percent}|{units})", re.escape(json.dumps(char)[1:-1])}
    forms |= {"/": {r"\\/"}, " ": {r"\+"}}.get(char, set())
    return f"(?:{'|'.join(sorted(forms, key=len, reverse=True))})"


def _base64_forms(secret: str) -> set[str]:
    """Return how a secret reads in base64, also inside of a longer text."""
    raw = secret.encode("utf-8", "surrogatepass")
    forms = set()
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in (0, 1, 2):  # bytes of what stands before it; the characters that hold no other byte's bits
            whole = encode(bytes(before) + raw)
            forms.add(whole[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6].decode("ascii"))
        forms |= {encode(raw).decode("ascii"), encode(raw).decode("ascii").rstrip("=")}
    return {form for form in forms if len(form) >= _SHORTEST_BASE64}


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans in their order, those that overlap as one."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


# --- names of secrets: of variables, headers, parameters of an address, members of an object -------------------------


# Such a word anywhere in a name; `author` and `max_tokens` are none.
_ANYWHERE = re.compile(
    r"auth(?!or(?!i))|(?<!max)(?<!max[-_ ])tokens?|secret|passw|passphrase|credential|cookie|api[-_]?key|bearer"
    r"|connection[-_]?string",
    re.IGNORECASE,
)
_WORDS = frozenset(
    {"pass", "pwd", "pw", "pin", "jwt", "pat", "sas", "sig", "signature", "otp", "dsn", "sessionid", "sid"}
)
_LAST_WORDS = frozenset({"key", "keys"})
_OF_QUERIES = frozenset({"code", "s", "state", "ticket", "hash", "hmac", "access", "k"})
_NO_SECRETS = frozenset({"key_id", "public_key", "keyword", "key_name"})
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def is_secret_name(name: str) -> bool:
    """Return whether a name is that of a secret: `DB_PASS`, `x-api-key`, `GH_PAT`."""
    words = [word.lower() for word in _WORD.findall(name[:200])]
    return (
        bool(_ANYWHERE.search(name))
        or not _WORDS.isdisjoint(words)
        or bool(words and words[-1] in _LAST_WORDS and "_".join(words) not in _NO_SECRETS)
    )


def is_secret_parameter(name: str) -> bool:
    """Return whether a parameter of an address is named like a secret; `code` and `state` are credentials, too."""
    return is_secret_name(name) or name.lower() in _OF_QUERIES


def secrets_in_address(address: str) -> frozenset[str]:
    """Return the credentials in an address: its password, also one with an unescaped @, and parameters of its query.

    Each as it is written and as it is meant; nothing shorter than four characters.
    """
    secrets: set[str] = set()
    before, _, query = address.partition("?")
    userinfo = before.partition("://")[2].rpartition("@")[0]
    user, colon, password = userinfo.partition(":")
    if colon:
        secrets |= {password, unquote(password), userinfo, f"{unquote(user)}:{unquote(password)}"}
    elif userinfo:
        secrets |= {userinfo, unquote(userinfo)} if len(userinfo) >= 16 else set()  # a token, and no name
    query = query.partition("#")[0]
    secrets |= {value for name, value in parse_qsl(query) if is_secret_parameter(name)}
    return frozenset(value for value in secrets if len(value) >= 4)


def holds_secret_parts(address: str) -> bool:
    """Return whether an address has a password, or a parameter that is named like a secret."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return bool(parts.password) or any(is_secret_parameter(name) and value for name, value in parse_qsl(parts.query))
