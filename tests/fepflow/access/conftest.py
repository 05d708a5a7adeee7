"""A store, settings and access of a test's own, and tokens that an issuer might make."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from fepflow.access.access import Access
from fepflow.settings import Settings
from fepflow.store.store import Store

SECRET = "a secret that nobody guesses, of more than sixty-four characters, for tests"
ISSUER, AUDIENCE = "https://issuer.example.org", "fepflow"
MakeSettings = Callable[..., Settings]


@pytest.fixture
def store(tmp_path: Path, new_store: Callable[[str], str]) -> Iterator[Store]:
    with Store.open(new_store(f"sqlite:///{tmp_path / 'home' / 'fepflow.db'}")) as opened:
        yield opened


@pytest.fixture
def make_settings(tmp_path: Path) -> MakeSettings:
    return lambda **fields: Settings.model_validate({"home": tmp_path / "home", **fields})


@pytest.fixture
def jwt_settings(tmp_path: Path, make_settings: MakeSettings) -> MakeSettings:
    """Settings for tokens that are signed with SECRET."""
    key = tmp_path / "secret"
    key.write_text(SECRET + "\n", encoding="ascii")
    fields = {"jwt_key_file": key, "jwt_algorithm": "HS256", "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    return lambda **others: make_settings(**{**fields, **others})


@pytest.fixture
async def access(store: Store, make_settings: MakeSettings) -> AsyncIterator[Access]:
    async with Access(store, make_settings(), may_be_open=True) as opened:
        yield opened


def claims(**changes: Any) -> dict[str, Any]:
    """Those of a good token; None takes one away."""
    good = {"sub": "ci", "iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 86_400, "scope": "read evaluate"}
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


def token(key: Any = SECRET, algorithm: str = "HS256", headers: dict[str, Any] | None = None, **changes: Any) -> str:
    return jwt.encode(claims(**changes), key, algorithm, headers)
