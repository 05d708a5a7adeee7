from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fepflow.protocol.content_hash import CachedResponse
from fepflow.protocol.model import utc_now
from fepflow.store.store import Store

NOW = utc_now()
LONG_AGO = NOW - timedelta(days=400)
ANSWER = CachedResponse(
    "judge", "openai/a", "a-2024", "json_schema", '{"passed": true}', 12, 5, 0.0000123, ("seed",), NOW
)
VECTOR = CachedResponse("embedding", "openai/e", "e-1", None, "AAAA", 3, 0, None, (), NOW - timedelta(days=2))


def key(number: int) -> str:
    return f"{number:064x}"


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"text": "a NUL \0, a lone surrogate \ud800, an accent é"},
        {"prompt_tokens": None, "completion_tokens": None, "cost_usd": None, "mode": None, "dropped_params": ()},
        {"cost_usd": 12345.678901},
        {"cost_usd": 0.0000000002},
    ],
)
def test_a_response_is_read_as_it_was_written(store: Store, change: dict[str, Any]) -> None:
    answer = replace(ANSWER, **change)
    store.results.cache_responses({key(1): answer})
    assert store.results.cached_responses([key(1), key(2)], LONG_AGO) == {key(1): answer}


def test_a_newer_response_replaces_an_older_one(store: Store) -> None:
    store.results.cache_responses({key(1): ANSWER, key(2): VECTOR})
    newer = replace(ANSWER, text="{}", cost_usd=None)
    store.results.cache_responses({key(1): newer})
    assert store.results.cached_responses([key(1), key(2)], LONG_AGO) == {key(1): newer, key(2): VECTOR}


def test_expired_responses_are_not_found(store: Store) -> None:
    store.results.cache_responses({key(1): ANSWER, key(2): VECTOR})
    assert store.results.cached_responses([key(1), key(2)], NOW - timedelta(days=1)) == {key(1): ANSWER}


@pytest.mark.battery
def test_many_responses_are_written_and_read_at_once(store: Store) -> None:
    many = {key(number): replace(ANSWER, text=str(number)) for number in range(1_200)}
    store.results.cache_responses(many)
    assert store.results.cached_responses(many, LONG_AGO) == many
    assert store.results.cached_responses([], LONG_AGO) == {}


def test_responses_are_deleted_by_model_and_by_age(store: Store) -> None:
    other = replace(ANSWER, model="openai/b", responded_at=NOW - timedelta(days=9))
    store.results.cache_responses(
        {key(1): ANSWER, key(2): VECTOR, key(3): other, key(4): replace(other, model="openai/a")}
    )

    assert store.results.delete_cached_responses("openai/a", NOW - timedelta(days=7)) == 1
    assert store.results.delete_cached_responses("nobody") == 0
    assert store.results.delete_cached_responses(before=NOW - timedelta(days=7)) == 1
    assert set(store.results.cached_responses([*map(key, range(5))], LONG_AGO)) == {key(1), key(2)}
    assert store.results.delete_cached_responses() == 2


def test_they_are_counted_by_kind_and_model(store: Store) -> None:
    assert store.results.cache_totals() == []
    old = replace(ANSWER, responded_at=NOW - timedelta(days=3), cost_usd=None)
    store.results.cache_responses({key(1): ANSWER, key(2): ANSWER, key(3): old, key(4): VECTOR})

    vectors, judges = store.results.cache_totals()

    assert (vectors.kind, vectors.model, vectors.answers, vectors.cost_usd, vectors.unpriced) == (
        *("embedding", "openai/e", 1),
        *(None, 1),
    )
    assert (judges.kind, judges.model, judges.answers, judges.unpriced) == ("judge", "openai/a", 3, 1)
    assert judges.cost_usd == pytest.approx(0.0000246)
    assert judges.characters >= 3 * len(ANSWER.text)
    assert (judges.oldest, judges.newest) == (old.responded_at, NOW)


@pytest.mark.battery
def test_concurrent_writers_of_the_same_responses_do_not_conflict(store: Store) -> None:
    def write(number: int) -> None:
        keys = range(40) if number % 2 else reversed(range(40))
        store.results.cache_responses({key(one): replace(ANSWER, text=f"{number}") for one in keys})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(24)))
    found = store.results.cached_responses([*map(key, range(40))], LONG_AGO)
    assert len(found) == 40
    assert len({answer.text for answer in found.values()}) == 1, "the last one's, whole"
