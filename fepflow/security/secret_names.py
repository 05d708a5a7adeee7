"""Recognizes names of secrets: of variables, headers, parameters of an address, members of an object."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote, urlsplit

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
