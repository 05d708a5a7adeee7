from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from fepflow.errors import NotFoundError
from fepflow.store.leases import new_owner
from fepflow.store.store import Store

GONE = "elsewhere/1/x"
"""A process that cannot be looked at from here."""


def test_a_shard_has_one_executor_at_a_time(store: Store, make_run):
    make_run()
    assert store.leases.acquire_shard("run-1", 0, "a", 60)
    assert not store.leases.acquire_shard("run-1", 0, "b", 60)
    assert store.leases.acquire_shard("run-1", 0, "a", 60), "its own"
    assert store.leases.acquire_shard("run-1", 1, "b", 60), "another shard"
    assert store.leases.renew_shard("run-1", 0, "a", 60)
    assert not store.leases.renew_shard("run-1", 0, "b", 60)


def test_a_shard_that_is_given_back_is_free(store: Store, make_run):
    make_run()
    store.leases.acquire_shard("run-1", 0, "a", 60)
    store.leases.release_shard("run-1", 0, "b")
    assert store.leases.shard_holder("run-1", 0) == ("a", True), "only its holder gives it back"
    store.leases.release_shard("run-1", 0, "a")
    assert store.leases.shard_holder("run-1", 0) is None
    assert store.leases.acquire_shard("run-1", 0, "b", 60)


def test_a_shard_whose_lease_has_ended_is_lost_and_free(store: Store, make_run):
    make_run()
    assert store.leases.shard_holder("run-1", 0) is None
    store.leases.acquire_shard("run-1", 0, GONE, 60)
    assert store.leases.shard_holder("run-1", 0) == (GONE, True)
    store.leases.acquire_shard("run-1", 0, GONE, -1)
    assert store.leases.shard_holder("run-1", 0) == (GONE, False)
    assert store.leases.acquire_shard("run-1", 0, "b", 60)
    assert not store.leases.renew_shard("run-1", 0, GONE, 60)


def test_a_dead_process_of_this_machine_holds_no_lease(store: Store, make_run):
    make_run()
    host, _, token = new_owner().split("/")
    ended = f"{host}/{2**22 + 1}/{token}"
    store.leases.acquire_shard("run-1", 0, ended, 60)
    assert store.leases.shard_holder("run-1", 0) == (ended, False)
    assert store.leases.acquire_shard("run-1", 0, "b", 60)


def test_many_want_one_shard_and_one_gets_it(store: Store, make_run):
    make_run()
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda number: store.leases.acquire_shard("run-1", 0, f"o{number}", 60), range(16)))
    assert got.count(True) == 1


def test_a_shard_of_an_unknown_run_is_refused(store: Store):
    with pytest.raises(NotFoundError):
        store.leases.acquire_shard("run-1", 0, "a", 60)
