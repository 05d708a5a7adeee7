from __future__ import annotations

import pytest

from fepflow.protocol.test_case import TestCase
from fepflow.services import run_service
from fepflow.store.leases import new_owner
from fepflow.store.records import RunRecord
from fepflow.store.store import Store
from tests.fepflow.conftest import Cli


@pytest.fixture
def run_id(store: Store) -> str:
    store.runs.create(
        RunRecord(id="feedbeef01", name="refunds", suite={"name": "refunds"}, repeats=1), [TestCase(id="a", input="a")]
    )
    return "feedbeef01"


def test_a_pending_run_is_cancelled_at_once_and_only_once(cli: Cli, store: Store, run_id: str) -> None:
    done = cli("cancel", run_id[:5])
    assert done.stdout == "Run feedbeef is cancelled. Continue it: fepflow run --resume feedbeef\n"
    assert store.runs.get(run_id).status == "cancelled"

    again = cli("cancel", "latest")
    assert again.exit_code == 2
    assert "Run feedbeef01 is over, it is cancelled: there is nothing to cancel." in again.stderr


def test_an_executor_that_does_not_stop_is_named(
    cli: Cli, store: Store, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_service, "STOP_SECONDS", 0.2)
    owner = new_owner()
    store.leases.acquire(run_id, owner, 60)

    done = cli("cancel", run_id)

    assert done.stdout == f"Run feedbeef will stop; its executor, {owner}, has not confirmed it yet.\n"
    assert store.runs.cancel_requested(run_id)


def test_cancelling_an_unknown_run_is_an_error_with_advice(cli: Cli, store: Store) -> None:
    done = cli("cancel", "nothing")
    assert done.exit_code == 2
    assert "fepflow list" in done.stderr
