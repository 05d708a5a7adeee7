from datetime import timedelta

import pytest

from fepflow.errors import InfrastructureError, NotFoundError
from fepflow.store.records import ApiKey
from fepflow.store.store import Store


def key(key_id: str, **fields) -> ApiKey:
    return ApiKey(id=key_id, name="nightly é\x00\ud83d", secret_hash="ab" * 32, scopes=["evaluate", "read"], **fields)


def test_a_key_comes_back_as_it_was_and_its_hash_is_not_in_its_repr(store: Store):
    stored = key("a" * 12, expires_at=store.now() + timedelta(days=1))
    store.access.add_key(stored)

    found, now = store.access.find_key(stored.id)

    assert found == stored
    assert abs(now - store.now()) < timedelta(minutes=1)
    assert store.access.find_key("b" * 12)[0] is None
    assert stored.secret_hash not in repr(found)


def test_the_same_id_twice_is_refused(store: Store):
    store.access.add_key(key("a" * 12))
    with pytest.raises(InfrastructureError):
        store.access.add_key(key("a" * 12))
    assert len(store.access.all_keys()) == 1


def test_a_revoked_key_stays_and_keeps_its_first_time(store: Store):
    store.access.add_key(key("a" * 12))

    first = store.access.revoke_key("a" * 12)

    assert first.state_at(store.now()) == "revoked"
    assert store.access.revoke_key("a" * 12) == first
    assert store.access.all_keys() == [first]
    with pytest.raises(NotFoundError, match="fepflow keys list"):
        store.access.revoke_key("b" * 12)


def test_states_of_keys_and_whether_there_is_an_active_one(store: Store):
    assert not store.access.has_keys(active=False)
    now = store.now()
    ended = key("a" * 12, expires_at=now)
    store.access.add_key(ended)
    assert (ended.state_at(now - timedelta(seconds=1)), ended.state_at(now)) == ("active", "expired")
    assert (store.access.has_keys(active=False), store.access.has_keys(active=True)) == (True, False)

    store.access.add_key(key("b" * 12))
    assert store.access.has_keys(active=True)
    store.access.revoke_key("b" * 12)
    assert not store.access.has_keys(active=True)
    store.access.add_key(key("c" * 12, expires_at=store.now() + timedelta(days=1)))
    assert store.access.has_keys(active=True)
