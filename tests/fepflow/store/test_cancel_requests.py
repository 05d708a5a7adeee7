import pytest

from fepflow.errors import NotFoundError, UserError
from fepflow.store.leases import new_owner
from fepflow.store.store import Store

ELSEWHERE = "another-host/1/token"


def test_a_running_run_is_flagged_and_runs_until_its_executor_polls(store: Store, make_run):
    make_run()
    store.leases.acquire("run-1", new_owner(), 60)
    assert store.runs.cancel_requested("run-1") is False

    record = store.runs.request_cancel("run-1")

    assert (record.status, store.runs.cancel_requested("run-1")) == ("running", True)
    assert store.runs.request_cancel("run-1").cancel_requested_at == record.cancel_requested_at, (
        "a second wish is the first"
    )


def test_a_pending_run_is_cancelled_at_once(store: Store, make_run):
    make_run()

    record = store.runs.request_cancel("run-1")

    assert (record.status, record.error, record.lease_owner) == ("cancelled", "cancelled before it began", None)
    assert record.completed_at is not None
    assert store.runs.cancel_requested("run-1"), "who is about to begin learns it"


def test_cancelling_an_ended_run_is_refused_and_changes_nothing(store: Store, make_run):
    make_run()
    store.leases.acquire("run-1", "me", 60)
    store.leases.finish("run-1", "me", "completed", outcome="pass")
    before = store.runs.get("run-1")

    with pytest.raises(UserError, match="Run run-1 is over, it is completed: there is nothing to cancel"):
        store.runs.request_cancel("run-1")

    assert store.runs.get("run-1") == before


def test_cancelling_an_unknown_run_is_not_found(store: Store):
    with pytest.raises(NotFoundError):
        store.runs.request_cancel("nothing")
    assert store.runs.cancel_requested("nothing") is False


def test_the_flag_is_taken_back_only_from_a_run_that_is_over(store: Store, make_run):
    make_run()
    store.leases.acquire("run-1", "me", 60)
    store.runs.request_cancel("run-1")

    store.runs.withdraw_cancel("run-1")
    assert store.runs.cancel_requested("run-1"), "its executor has not stopped yet"

    store.leases.finish("run-1", "me", "cancelled")
    store.runs.withdraw_cancel("run-1")
    assert not store.runs.cancel_requested("run-1")


def test_a_dead_executor_with_a_cancel_request_leaves_a_cancelled_run(store: Store, make_run):
    for name in ("asked", "not-asked"):
        make_run(name)
        store.leases.acquire(name, ELSEWHERE, 0)
    store.runs.request_cancel("asked")

    assert store.leases.reap() == ["asked", "not-asked"]

    assert (store.runs.get("asked").status, store.runs.get("not-asked").status) == ("cancelled", "interrupted")
    assert store.runs.mark_cancelled("not-asked") is True
    assert store.runs.get("not-asked").status == "cancelled"
    assert store.runs.mark_cancelled("not-asked") is False
