"""Bearer tokens: only what the issuer has signed, for us, and for now."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from fepflow.access.credentials import TokenVerifier
from fepflow.errors import AuthenticationError, UserError
from tests.fepflow.access.conftest import AUDIENCE, ISSUER, SECRET, MakeSettings, claims, token

RSA = rsa.generate_private_key(65537, 2048)
KEYS = {"RS256": RSA, "ES256": ec.generate_private_key(ec.SECP256R1()), "EdDSA": ed25519.Ed25519PrivateKey.generate()}


def pem(key: Any) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def part(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed_by_hand(header: Any, payload: Any, key: bytes) -> str:
    """With HMAC, whatever the library would say to that key."""
    signed = f"{part(header)}.{part(payload)}"
    return f"{signed}.{part(hmac.digest(key, signed.encode(), hashlib.sha256))}"


@pytest.fixture
def verifier(jwt_settings: MakeSettings) -> TokenVerifier:
    made = TokenVerifier.of(jwt_settings())
    assert made is not None
    return made


def test_a_good_token_names_its_subject_and_scopes(verifier: TokenVerifier) -> None:
    assert verifier.verify(token()) == ("ci", frozenset({"read", "evaluate"}))
    assert verifier.verify(token(scope=None, scopes=["admin", "openid", 3])) == ("ci", frozenset({"admin"}))
    assert verifier.verify(token(scope=None)) == ("ci", frozenset())
    assert verifier.verify(token(scope="reader readevaluate ADMIN")) == ("ci", frozenset())
    assert verifier.verify(token(aud=["other", AUDIENCE], iat=int(time.time()) + 5)) == (
        "ci",
        frozenset({"read", "evaluate"}),
    )


@pytest.mark.parametrize("algorithm", KEYS)
def test_tokens_by_public_keys(algorithm: str, jwt_settings: MakeSettings, tmp_path: Path) -> None:
    (tmp_path / "public.pem").write_bytes(pem(KEYS[algorithm]))
    verifier = TokenVerifier.of(jwt_settings(jwt_key_file=tmp_path / "public.pem", jwt_algorithm=algorithm))
    assert verifier is not None
    assert verifier.verify(token(KEYS[algorithm], algorithm))[0] == "ci"

    public = pem(KEYS[algorithm])
    others = [
        signed_by_hand({"alg": "HS256", "typ": "JWT"}, claims(), public),  # the public key as a secret
        signed_by_hand({"alg": algorithm}, claims(), public),
        token(SECRET),
        *(token(key, name) for name, key in KEYS.items() if name != algorithm),
        token(None, "none"),
    ]
    for other in others:
        with pytest.raises(AuthenticationError):
            verifier.verify(other)


BAD: dict[str, tuple[str, str]] = {
    "expired": (token(exp=int(time.time()) - 1), "has expired"),
    "future": (token(nbf=int(time.time()) + 86_400), "not valid yet"),
    "audience": (token(aud="others"), "another audience"),
    "audiences": (token(aud=["a", "b"]), "another audience"),
    "issuer": (token(iss="https://evil.example.org"), "another issuer"),
    "issuer begins alike": (token(iss=ISSUER[:-1]), "another issuer"),
    "issuers": (signed_by_hand({"alg": "HS256"}, claims(iss=[ISSUER]), SECRET.encode()), "The token"),
    **{f"no {name}": (token(**{name: None}), "lacks one of the claims") for name in ("exp", "aud", "iss")},
    "no sub": (token(sub=None), "lacks one of the claims"),
    "sub empty": (token(sub=""), "sub"),
    "sub is long": (token(sub="x" * 201), "sub"),
    "sub has controls": (token(sub="a\nb"), "sub"),
    "sub is a number": (signed_by_hand({"alg": "HS256"}, claims(sub=1), SECRET.encode()), "The token"),
    "exp is text": (signed_by_hand({"alg": "HS256"}, claims(exp="tomorrow"), SECRET.encode()), "The token"),
    "exp is infinite": (signed_by_hand({"alg": "HS256"}, claims(exp=float("inf")), SECRET.encode()), "The token"),
    "exp is NaN": (signed_by_hand({"alg": "HS256"}, claims(exp=float("nan")), SECRET.encode()), "The token"),
    "exp is true": (signed_by_hand({"alg": "HS256"}, claims(exp=True), SECRET.encode()), "The token"),
    "scope is an object": (token(scope={"read": 1}), "scopes are neither"),
    "none": (token(None, "none"), "The token"),
    "None": (f"{part({'alg': 'None'})}.{part(claims())}.", "The token"),
    "none, signed": (signed_by_hand({"alg": "none"}, claims(), SECRET.encode()), "The token"),
    "no alg": (signed_by_hand({}, claims(), SECRET.encode()), "The token"),
    "alg is a list": (signed_by_hand({"alg": ["HS256"]}, claims(), SECRET.encode()), "The token"),
    "HS512": (token(algorithm="HS512"), "The token"),
    "unknown crit": (signed_by_hand({"alg": "HS256", "crit": ["x"], "x": 1}, claims(), SECRET.encode()), "The token"),
    "other secret": (token(SECRET[::-1]), "signature"),
    "cut": (token()[:-1], "The token"),
    "no signature": (token().rpartition(".")[0] + ".", "The token"),
    "claims are a list": (signed_by_hand({"alg": "HS256"}, [claims()], SECRET.encode()), "The token"),
    "claims are deep": (signed_by_hand({"alg": "HS256"}, b"[" * 2_000, SECRET.encode()), "The token"),
    "header is deep": (f"{part(b'[' * 5_000)}.e30.e30", "The token"),
    "empty": ("", "The token"),
    "dots": ("..", "The token"),
    "not ASCII": ("é.é.é", "The token"),
    "surrogate": ("\ud83d.a.b", "The token"),
    "NUL": ("\x00", "The token"),
    "large": ("x" * 1_000_000, "8,192 characters"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_token_is_refused_and_not_quoted(case: str, verifier: TokenVerifier) -> None:
    text, reason = BAD[case]
    with pytest.raises(AuthenticationError, match=reason) as caught:
        verifier.verify(text)
    message = str(caught.value)
    assert all(each not in message for each in text.split(".") if len(each) > 3)
    assert caught.value.__cause__ is None
    assert "evil" not in message


def test_a_header_that_brings_its_own_key_is_not_heard(verifier: TokenVerifier) -> None:
    own = {"jwk": {"kty": "oct", "k": part(b"evil" * 10)}, "jku": "http://127.0.0.1:1/", "kid": "../../dev/null"}
    with pytest.raises(AuthenticationError):
        verifier.verify(token("evil" * 10, headers=own))
    assert verifier.verify(token(headers=own))[0] == "ci"


DAY = 86_400


@pytest.mark.parametrize(
    ("wrong", "because"),
    [
        ({"exp": DAY + 600}, "longer than 86,400 s"),
        ({"exp": 400 * DAY}, "longer than 86,400 s"),
        ({"exp": 10**11}, "longer than 86,400 s"),
        ({"exp": 60, "iat": -DAY - 600}, "longer than 86,400 s"),
        ({"exp": 10 * DAY, "iat": 9 * DAY}, "issued in the future"),
        ({"exp": 600, "iat": 300}, "issued in the future"),
        ({"exp": 600, "nbf": 300}, "not valid yet"),
    ],
)
def test_a_token_has_a_short_life_that_has_begun(verifier: TokenVerifier, wrong: dict[str, int], because: str) -> None:
    now = int(time.time())
    changes: dict[str, Any] = {name: now + seconds for name, seconds in wrong.items()}
    with pytest.raises(AuthenticationError, match=because):
        verifier.verify(token(**changes))


def test_how_long_tokens_live_is_the_operators_to_say(jwt_settings: MakeSettings) -> None:
    verifier = TokenVerifier.of(jwt_settings(jwt_max_lifetime="7d"))
    assert verifier is not None
    assert verifier.verify(token(exp=int(time.time()) + 7 * DAY))[0] == "ci"
    with pytest.raises(AuthenticationError, match="FEPFLOW_JWT_MAX_LIFETIME"):
        verifier.verify(token(exp=int(time.time()) + 7 * DAY + 600))


@pytest.mark.parametrize("iat", ["x", None, [], float("inf"), {}])
def test_a_token_whose_iat_is_no_time_is_refused(verifier: TokenVerifier, iat: Any) -> None:
    with pytest.raises(AuthenticationError, match="iat is not a time"):
        verifier.verify(signed_by_hand({"alg": "HS256"}, {**claims(), "iat": iat}, SECRET.encode()))


def test_without_settings_there_are_no_tokens(make_settings: MakeSettings) -> None:
    assert TokenVerifier.of(make_settings()) is None


@pytest.mark.parametrize("name", ["key_file", "algorithm", "issuer", "audience"])
def test_a_setting_that_is_missing_is_named_at_the_start(name: str, jwt_settings: MakeSettings) -> None:
    with pytest.raises(UserError, match=f"Bearer tokens need FEPFLOW_JWT_{name.upper()}, too"):
        TokenVerifier.of(jwt_settings(**{f"jwt_{name}": None}))


def test_an_empty_audience_is_none(jwt_settings: MakeSettings) -> None:
    with pytest.raises(UserError, match="FEPFLOW_JWT_AUDIENCE"):
        TokenVerifier.of(jwt_settings(jwt_audience=""))


def private(key: Any) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


FILES: dict[str, tuple[str, bytes | None, str]] = {
    "missing": ("HS256", None, "cannot be read: No such file"),
    "empty": ("HS256", b"\n", "a secret of 0 bytes"),
    "short": ("HS256", b"x" * 31, "a secret of 31 bytes, which can be guessed"),
    "public key as a secret": ("HS256", pem(RSA), "which is not a secret"),
    "no PEM": ("RS256", SECRET.encode(), "does not hold a public key"),
    "private": ("RS256", private(RSA), "does not hold a public key"),
    "small": ("RS256", pem(rsa.generate_private_key(65537, 1024)), "RS256 needs an RSA key of at least 2048 bits"),
    "other kind": ("RS256", pem(KEYS["ES256"]), "RS256 needs an RSA key"),
    "other curve": ("ES256", pem(ec.generate_private_key(ec.SECP384R1())), "P-256"),
    "another kind": ("EdDSA", pem(RSA), "Ed25519"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_key_that_cannot_be_used_is_a_sentence_at_the_start(
    case: str, jwt_settings: MakeSettings, tmp_path: Path
) -> None:
    algorithm, data, message = FILES[case]
    path = tmp_path / "key"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(UserError, match=message) as caught:
        TokenVerifier.of(jwt_settings(jwt_key_file=path, jwt_algorithm=algorithm))
    assert str(path) in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_folder_is_no_key_file(jwt_settings: MakeSettings, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Is a directory"):
        TokenVerifier.of(jwt_settings(jwt_key_file=tmp_path))


def test_a_token_that_is_read_without_its_signature_would_be_good() -> None:
    """So that the tests of bad ones do not refuse them for another reason."""
    assert jwt.decode(token(), SECRET, ["HS256"], audience=AUDIENCE, issuer=ISSUER)["sub"] == "ci"
