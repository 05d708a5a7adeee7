"""API keys, `fep_ID_SECRET`: the public id finds the key; of the secret, 256 random bits, the SHA-256 is known."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets

from fepflow.text import printable

ID = r"[0-9a-f]{12}"
_KEY = re.compile(rf"fep_({ID})_([A-Za-z0-9_-]{{43}})")
_CREDENTIAL = re.compile(rf"fep_({ID})_[A-Za-z0-9_-]+|eyJ[A-Za-z0-9_-]*\.[A-Za-z0-9_.-]+")
_NOBODYS_HASH = hashlib.sha256(b"").hexdigest()


def new_api_key() -> tuple[str, str, str]:
    """Return a new key: its id, the text that a program shows, and the hash of its secret."""
    key_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    return key_id, f"fep_{key_id}_{secret}", hash_of(secret)


def parse_api_key(text: str) -> tuple[str, str] | None:
    """Return id and secret of a key as a caller has written it; None for what cannot be one."""
    match = _KEY.fullmatch(text)
    return (match[1], match[2]) if match else None


def hash_of(secret: str) -> str:
    """Return the SHA-256 of a secret, in hex. No slow hash is needed: nobody guesses 256 bits."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def is_secret_of(secret: str, secret_hash: str | None) -> bool:
    """Return whether a secret has this hash, in the same time wherever they differ, also without a hash (None)."""
    expected = _NOBODYS_HASH if secret_hash is None else secret_hash
    same = hmac.compare_digest(hash_of(secret).encode(), expected.encode("utf-8", "surrogatepass"))
    return same and secret_hash is not None


def without_credentials(text: str) -> str:
    """Return text of a caller for a log: on one line, and keys and tokens in it cut to what is public."""
    masked = _CREDENTIAL.sub(lambda match: f"fep_{match[1]}_***" if match[1] else "***", text)
    return printable(masked)
