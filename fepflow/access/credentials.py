"""API keys, created and revoked by the command line, and bearer tokens of one issuer.

A key reads `fep_ID_SECRET`: the public id finds it; of the secret, 256 random bits, the SHA-256 is known.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from fepflow.access.caller import SCOPES, Scope
from fepflow.documents.files import open_regular
from fepflow.errors import AuthenticationError, UserError
from fepflow.security.redaction import remember
from fepflow.settings import JwtAlgorithm, Settings
from fepflow.store.records import ApiKey
from fepflow.store.store import Store
from fepflow.text import printable

MAX_NAME = 100


def create_key(store: Store, name: str, scopes: Sequence[Scope], lifetime: float | None) -> tuple[ApiKey, str]:
    """Create a key that is valid for a number of seconds, or until it is revoked. Returns its record, and the key
    itself.

    The key itself is not stored anywhere. Raises UserError.
    """
    if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise UserError(
            f"A key's name is printable text of at most {MAX_NAME} characters: it says what the key is for."
        )
    now = store.now()
    key_id, text, secret_hash = new_api_key()
    key = ApiKey(
        id=key_id,
        name=name,
        secret_hash=secret_hash,
        scopes=sorted(set(scopes)),
        expires_at=_expiry(now, lifetime),
        created_at=now,
    )
    store.access.add_key(key)
    return key, text


def _expiry(now: datetime, lifetime: float | None) -> datetime | None:
    if lifetime is None:
        return None
    if lifetime <= 0:
        raise UserError("--expires is a duration, for example 12h or 30d.")
    try:
        return now + timedelta(seconds=lifetime)
    except OverflowError:
        raise UserError("--expires is too long: leave it out for a key that does not expire.") from None


def revoke_key(store: Store, key_id: str) -> ApiKey:
    """Revoke a key for good. Raises NotFoundError without the given text, which may be a whole key."""
    return store.access.revoke_key(key_id if re.fullmatch(ID, key_id) else "")


PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey

MAX_TOKEN = 8_192
"""Characters of a token."""

MAX_SUBJECT = 200
"""Characters of a token's subject."""

CLOCKS_DIFFER = 60
"""Seconds by which the issuer's clock may be ahead of ours."""

_MAX_KEY_FILE = 100_000
_SHORTEST_SECRET = 32  # bytes: what SHA-256 has (RFC 7518, 3.2)
_SHORTEST_RSA = 2_048  # bits (RFC 7518, 3.3)

_REASONS: tuple[tuple[type[Exception], str], ...] = (
    (jwt.ExpiredSignatureError, "has expired"),
    (jwt.ImmatureSignatureError, "is not valid yet"),
    (jwt.InvalidAudienceError, "is for another audience"),
    (jwt.InvalidIssuerError, "is of another issuer"),
    (jwt.InvalidAlgorithmError, "is not signed with the algorithm that is asked for"),
    (jwt.InvalidSignatureError, "has a signature that is not its issuer's"),
    (jwt.MissingRequiredClaimError, "lacks one of the claims exp, aud, iss and sub"),
)


@dataclass(frozen=True, slots=True)
class TokenVerifier:
    """A verifier of tokens. It never takes the algorithm, key, issuer or audience from a token.

    No token is valid for longer than `lifetime` seconds, because tokens cannot be revoked.
    """

    key: bytes | PublicKey = field(repr=False)
    algorithm: JwtAlgorithm
    issuer: str
    audience: str
    lifetime: float

    @classmethod
    def of(cls, settings: Settings) -> Self | None:
        """Return the verifier that the settings describe, None without settings. Raises UserError for unusable ones."""
        given = {
            "FEPFLOW_JWT_KEY_FILE": settings.jwt_key_file,
            "FEPFLOW_JWT_ALGORITHM": settings.jwt_algorithm,
            "FEPFLOW_JWT_ISSUER": settings.jwt_issuer,
            "FEPFLOW_JWT_AUDIENCE": settings.jwt_audience,
        }
        if all(value is None for value in given.values()):
            return None
        if missing := [name for name, value in given.items() if not value]:
            raise UserError(f"Bearer tokens need {', '.join(missing)}, too: set all of {', '.join(given)}, or none.")
        path, algorithm = settings.jwt_key_file, settings.jwt_algorithm
        assert path is not None
        assert algorithm is not None
        key = _key_in(path, algorithm)
        names = settings.jwt_issuer or "", settings.jwt_audience or ""
        return cls(key, algorithm, *names, settings.jwt_max_lifetime)

    def verify(self, token: str) -> tuple[str, frozenset[Scope]]:
        """Return the subject of a token, and its known scopes. Raises AuthenticationError."""
        claims = self._claims(token)
        self._require_short_life(claims)
        subject = claims.get("sub")
        if not isinstance(subject, str) or not (0 < len(subject) <= MAX_SUBJECT) or not subject.isprintable():
            raise AuthenticationError("The token's subject (sub) is not a text that can name a caller.")
        return subject, _scopes_of(claims)

    def _claims(self, token: str) -> dict[str, Any]:
        if len(token) > MAX_TOKEN:
            raise AuthenticationError(f"The token has more than {MAX_TOKEN:,} characters.")
        try:
            return jwt.decode(
                token,
                self.key,
                algorithms=[self.algorithm],
                audience=self.audience,
                issuer=self.issuer,
                # When it was issued is looked at below: the issuer's clock may be ahead by a little.
                options={"require": ["exp", "aud", "iss", "sub"], "verify_iat": False},
            )
        except Exception as error:  # whatever a text does to the library, the token is not valid
            reason = next((words for kind, words in _REASONS if isinstance(error, kind)), "cannot be read")
            raise AuthenticationError(f"The token {reason}.") from None  # the cause may quote it

    def _require_short_life(self, claims: Mapping[str, Any]) -> None:
        """Refuse a token that was issued in the future, or is valid for too long. Raises AuthenticationError."""
        now, expires_at = time.time(), _number(claims["exp"], "exp")
        issued_at = _number(claims["iat"], "iat") if "iat" in claims else now
        if issued_at > now + CLOCKS_DIFFER:
            raise AuthenticationError("The token was issued in the future (iat).")
        if expires_at - min(issued_at, now) > self.lifetime + CLOCKS_DIFFER:
            raise AuthenticationError(
                f"The token is valid for longer than {self.lifetime:,.0f} s (exp): have one issued with a shorter "
                "life, or set FEPFLOW_JWT_MAX_LIFETIME."
            )


def _number(claim: Any, name: str) -> float:
    try:
        return float(int(claim))  # as PyJWT reads it
    except (OverflowError, TypeError, ValueError):
        raise AuthenticationError(f"The token's {name} is not a time.") from None


def _scopes_of(claims: Mapping[str, Any]) -> frozenset[Scope]:
    """Return the known scopes in `scope`, a text with spaces, or else in `scopes`, a list."""
    claim = claims["scope"] if "scope" in claims else claims.get("scopes", [])
    words = claim.split(" ") if isinstance(claim, str) else claim
    if not isinstance(words, list):
        raise AuthenticationError("The token's scopes are neither a text with spaces (scope) nor a list (scopes).")
    return frozenset(scope for scope in SCOPES if scope in words)


def _key_in(path: Path, algorithm: JwtAlgorithm) -> bytes | PublicKey:
    place = f"{path} (FEPFLOW_JWT_KEY_FILE)"
    try:
        with open_regular(path) as file:
            data = file.read(_MAX_KEY_FILE)
    except OSError as error:
        raise UserError(f"{place} cannot be read: {error.strerror}.") from None
    return _secret(data, place) if algorithm == "HS256" else _public_key(data, algorithm, place)


def _secret(data: bytes, place: str) -> bytes:
    if b"-----BEGIN" in data:
        raise UserError(f"{place} holds a PEM key, which is not a secret: HS256 needs random bytes.")
    secret = data.rstrip(b"\r\n")
    if len(secret) < _SHORTEST_SECRET:
        raise UserError(
            f"{place} holds a secret of {len(secret)} bytes, which can be guessed: HS256 needs at least "
            f"{_SHORTEST_SECRET} random ones; `openssl rand -base64 48` makes some."
        )
    remember([secret.decode("utf-8", "replace")])
    return secret


_KINDS: dict[str, tuple[type[PublicKey], str]] = {
    "RS256": (RSAPublicKey, f"an RSA key of at least {_SHORTEST_RSA} bits"),
    "ES256": (EllipticCurvePublicKey, "a key on the curve P-256"),
    "EdDSA": (Ed25519PublicKey, "an Ed25519 key"),
}


def _public_key(data: bytes, algorithm: JwtAlgorithm, place: str) -> PublicKey:
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise UserError(f"{place} does not hold a public key in PEM (-----BEGIN PUBLIC KEY-----).") from None
    kind, words = _KINDS[algorithm]
    is_weak = isinstance(key, RSAPublicKey) and key.key_size < _SHORTEST_RSA
    is_other_curve = isinstance(key, EllipticCurvePublicKey) and not isinstance(key.curve, SECP256R1)
    if not isinstance(key, kind) or is_weak or is_other_curve:
        raise UserError(f"{place} holds another key: {algorithm} needs {words}.")
    return key


# --- the text of keys ------------------------------------------------------------------------------------------------


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
