"""Sessions of browsers end with their time, with their key, and when a key has begun very many."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from fepflow.errors import InfrastructureError
from fepflow.store.access import MAX_SESSIONS
from fepflow.store.records import ApiKey
from fepflow.store.store import Store

MINE, OTHER = "a" * 12, "b" * 12


@pytest.fixture
def keys(store: Store) -> None:
    for key_id in (MINE, OTHER):
        store.access.add_key(ApiKey(id=key_id, name="tests", secret_hash="ab" * 32, scopes=["read"]))


def hash_number(number: int) -> str:
    return f"{number:064x}"


@pytest.mark.usefixtures("keys")
def test_a_session_stands_for_its_key_until_it_is_ended(store: Store):
    store.access.add_session(hash_number(1), MINE, 60)
    store.access.add_session(hash_number(2), OTHER, 60)
    found = store.access.key_of_session(hash_number(1))
    assert found is not None
    assert found.id == MINE
    assert store.access.key_of_session(hash_number(3)) is None

    store.access.end_session(hash_number(1))
    store.access.end_session(hash_number(3))

    assert store.access.key_of_session(hash_number(1)) is None
    assert store.access.key_of_session(hash_number(2)) is not None


@pytest.mark.usefixtures("keys")
def test_a_session_is_over_after_its_time(store: Store):
    store.access.add_session(hash_number(1), MINE, 0.5)
    time.sleep(0.6)
    assert store.access.key_of_session(hash_number(1)) is None


@pytest.mark.usefixtures("keys")
def test_revoking_a_key_ends_its_sessions(store: Store):
    for number, key_id in enumerate((MINE, MINE, OTHER)):
        store.access.add_session(hash_number(number), key_id, 60)
    store.access.revoke_key(MINE)
    assert [store.access.key_of_session(hash_number(number)) is None for number in range(3)] == [True, True, False]


def test_a_key_that_expires_ends_its_sessions(store: Store):
    store.access.add_key(
        ApiKey(
            id=MINE,
            name="tests",
            secret_hash="ab" * 32,
            scopes=["read"],
            expires_at=store.now() + timedelta(seconds=0.5),
        )
    )
    store.access.add_session(hash_number(1), MINE, 60)
    time.sleep(0.6)
    assert store.access.key_of_session(hash_number(1)) is None


@pytest.mark.usefixtures("keys")
@pytest.mark.battery
def test_a_key_has_so_many_sessions_and_the_oldest_end(store: Store):
    store.access.add_session(hash_number(9_999), OTHER, 60)
    for number in range(MAX_SESSIONS + 2):
        store.access.add_session(hash_number(number), MINE, 60)
    alive = [store.access.key_of_session(hash_number(number)) is not None for number in range(MAX_SESSIONS + 2)]
    assert alive.count(True) == MAX_SESSIONS
    assert alive[-1]
    assert store.access.key_of_session(hash_number(9_999)) is not None


def test_there_is_no_session_without_a_key(store: Store):
    with pytest.raises(InfrastructureError):
        store.access.add_session(hash_number(1), MINE, 60)
