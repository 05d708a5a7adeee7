import math
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import cache

import pytest

from fepflow.errors import NotFoundError, RunBusyError
from fepflow.protocol import model
from fepflow.store import leases
from fepflow.store.database import now_of
from fepflow.store.leases import new_owner
from fepflow.store.store import Store

from .processes import sent_by
from .writers import name_owner

ELSEWHERE = "another-host/1/token"


@cache
def owner_that_has_ended() -> str:
    (owner,) = sent_by(name_owner)
    return str(owner)


def test_acquiring_makes_the_run_running_and_names_its_executor(store: Store, make_run):
    make_run()

    record = store.leases.acquire("run-1", "me", 60)

    assert record == store.runs.get("run-1")
    assert (record.status, record.lease_owner) == ("running", "me")
    assert record.started_at is not None
    assert 59 < (record.lease_until - record.started_at).total_seconds() < 61


def test_the_error_of_a_second_executor_names_the_lease_owner(store: Store, make_run):
    make_run()
    store.leases.acquire("run-1", ELSEWHERE, 60)

    with pytest.raises(RunBusyError, match=f"run-1 is being executed by {ELSEWHERE}, whose lease lasts until .* UTC"):
        store.leases.acquire("run-1", "me", 60)

    assert store.runs.get("run-1").lease_owner == ELSEWHERE


def test_of_many_executors_at_once_one_gets_the_run(store: Store, make_run):
    make_run()

    def acquire(number: int) -> bool:
        try:
            store.leases.acquire("run-1", f"host-{number}/1/x", 60)
        except RunBusyError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(acquire, range(16))) == 1


def test_the_holder_may_acquire_again_and_keeps_its_start(store: Store, make_run):
    make_run()
    first = store.leases.acquire("run-1", "me", 60)

    again = store.leases.acquire("run-1", "me", 90)

    assert again.started_at == first.started_at
    assert again.lease_until > first.lease_until


def test_a_lease_that_ended_is_taken_over_and_its_owner_learns_it(store: Store, make_run):
    make_run()
    store.leases.acquire("run-1", ELSEWHERE, 0)

    store.leases.acquire("run-1", "me", 60)

    assert store.leases.renew("run-1", ELSEWHERE, 60) is False
    with pytest.raises(RunBusyError, match=f"no longer executed by {ELSEWHERE}"):
        store.leases.finish("run-1", ELSEWHERE, "completed", outcome="pass")
    assert store.runs.get("run-1").status == "running"


def test_the_lease_of_a_process_of_this_machine_that_ended_counts_as_ended(store: Store, make_run):
    make_run()
    store.leases.acquire("run-1", owner_that_has_ended(), 60)

    assert store.leases.acquire("run-1", "me", 60).lease_owner == "me"


@pytest.mark.battery
def test_a_process_that_has_ended_counts_as_ended_though_its_parent_has_not_looked(store: Store, make_run):
    program = "from fepflow.store.leases import new_owner; print(new_owner(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        make_run()
        store.leases.acquire("run-1", process.stdout.readline().strip(), 60)
        assert store.leases.reap() == []
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        assert store.leases.reap() == ["run-1"]


@pytest.mark.parametrize(
    "owner",
    [
        new_owner(),
        ELSEWHERE,
        f"{socket.gethostname()}:00000000-4026531836/99999999/x",
        "",
        "x",
        f"{socket.gethostname()}/no/pid",
        f"{socket.gethostname()}/{10**30}/x",
    ],
    ids=["alive", "elsewhere", "another-of-this-name", "nobody", "no-machine", "no-process", "no-such-process"],
)
def test_an_owner_of_unknown_state_keeps_the_lease(store: Store, make_run, owner):
    make_run()
    store.leases.acquire("run-1", owner, 60)

    with pytest.raises(RunBusyError):
        store.leases.acquire("run-1", "me", 60)


def test_renewing_keeps_the_lease(store: Store, make_run):
    make_run()
    before = store.leases.acquire("run-1", "me", 1)

    assert store.leases.renew("run-1", "me", 60) is True

    assert store.runs.get("run-1").lease_until > before.lease_until


def test_only_the_executor_extends_a_run(store: Store, make_run):
    make_run()
    record = store.leases.acquire("run-1", "me", 60)
    extended = store.leases.extend_run("run-1", "me", n_cases=record.n_cases, repeats=3)
    assert (extended.repeats, extended.status) == (3, "running")
    with pytest.raises(RunBusyError, match="no longer executed by another"):
        store.leases.extend_run("run-1", "another", n_cases=record.n_cases, repeats=4)
    assert store.runs.get("run-1").repeats == 3


def test_finishing_records_the_end_and_gives_the_lease_back(store: Store, make_run):
    make_run()
    store.leases.acquire("run-1", "me", 60)

    store.leases.finish(
        "run-1", "me", "completed", outcome="fail", metrics={"acc": math.nan}, verdict=[1], stats={"calls": 3}
    )

    record = store.runs.get("run-1")
    assert (record.status, record.outcome, record.verdict, record.stats) == ("completed", "fail", [1], {"calls": 3})
    assert math.isnan(record.metrics["acc"])
    assert record.completed_at >= record.started_at
    assert (record.lease_owner, record.lease_until) == (None, None)
    with pytest.raises(RunBusyError):
        store.leases.finish("run-1", "me", "failed")


def test_resuming_an_ended_run_clears_its_outcome(store: Store, make_run):
    make_run()
    first = store.leases.acquire("run-1", "me", 60)
    store.leases.finish("run-1", "me", "failed", outcome="fail", metrics=1, verdict=2, error="disk \0 full")
    assert store.runs.get("run-1").error == "disk \0 full"

    record = store.leases.acquire("run-1", "you", 60)

    assert record.started_at == first.started_at
    assert [record.completed_at, record.outcome, record.metrics, record.verdict, record.error] == [None] * 5


def test_reaping_interrupts_the_runs_whose_executor_is_gone_and_no_others(store: Store, make_run):
    for name in ("pending", "alive", "elsewhere", "late", "dead", "done"):
        make_run(name)
    store.leases.acquire("alive", new_owner(), 60)
    store.leases.acquire("elsewhere", ELSEWHERE, 60)
    store.leases.acquire("late", ELSEWHERE, 0)
    store.leases.acquire("dead", owner_that_has_ended(), 60)
    store.leases.acquire("done", "me", 60)
    store.leases.finish("done", "me", "completed")

    assert store.leases.reap() == ["dead", "late"]
    assert store.leases.reap() == []

    statuses = {run.id: run.status for run in store.runs.newest()}
    assert statuses == {
        "pending": "pending",
        "alive": "running",
        "elsewhere": "running",
        "late": "interrupted",
        "dead": "interrupted",
        "done": "completed",
    }
    assert "fepflow run --resume late" in store.runs.get("late").error
    assert store.leases.renew("late", ELSEWHERE, 60) is False


@pytest.mark.battery
def test_reaping_interrupts_a_claimed_run_whose_process_ended_before_it_began(store: Store, make_run):
    for number, owner in enumerate([None, owner_that_has_ended(), ELSEWHERE, new_owner(), ELSEWHERE]):
        make_run(f"run-{number}")
        if owner is not None:
            store.leases.claim(f"run-{number}", owner, 0 if number in (3, 4) else 60)

    assert [store.leases.is_attended(f"run-{number}") for number in range(5)] == [False, False, True, True, False]
    assert store.leases.reap() == ["run-1", "run-4"]

    assert [store.runs.get(f"run-{number}").status for number in range(5)] == [
        "pending",  # it waits in a queue
        "interrupted",
        "pending",
        "pending",  # its process lives, and may be too busy to renew its claim
        "interrupted",
    ]
    assert "before it had begun: `fepflow run --resume run-1` goes on" in store.runs.get("run-1").error


def test_a_run_that_may_be_taken_over_waits_for_another_executor_a_few_times(store: Store, make_run):
    make_run("run-1", takeovers_left=1)
    store.leases.acquire("run-1", owner_that_has_ended(), 60)
    assert store.leases.reap() == ["run-1"]
    assert store.leases.reap() == [], "nobody has it, and it is not reaped again"
    waiting = store.runs.get("run-1")
    assert (waiting.status, waiting.takeovers, waiting.lease_owner) == ("pending", 1, None)
    assert "without finishing it: a worker takes it over" in waiting.error
    assert [run.id for run in store.requests.unbegun()] == ["run-1"]

    store.leases.acquire("run-1", ELSEWHERE, 0)
    assert not store.leases.hand_over("run-1", ELSEWHERE, "told to end"), "it was taken over as often as it may be"
    assert store.leases.reap() == ["run-1"]
    given_up = store.runs.get("run-1")
    assert (given_up.status, given_up.takeovers) == ("interrupted", 1)
    assert "after it had been taken over 1 time: `fepflow run --resume run-1` goes on" in given_up.error


def test_an_executor_hands_its_run_over_unless_it_is_to_be_cancelled(store: Store, make_run):
    for name in ("told-to-end", "cancelled", "killed"):
        make_run(name, takeovers_left=2)
        store.leases.acquire(name, "me" if name != "killed" else owner_that_has_ended(), 60)
    assert store.leases.hand_over("told-to-end", "me", "told to end")
    assert store.runs.get("told-to-end").error == "told to end"
    for name in ("cancelled", "killed"):
        store.runs.request_cancel(name)
    assert not store.leases.hand_over("cancelled", "me", "told to end")
    assert store.leases.reap() == ["killed"]
    assert (store.runs.get("killed").status, store.runs.get("killed").takeovers) == ("cancelled", 0)

    cancelled = store.runs.request_cancel("told-to-end")
    assert cancelled.status == "cancelled"
    assert cancelled.completed_at == cancelled.cancel_requested_at, "no executor ended it, and a retry cancels it again"


def test_a_claim_keeps_nobody_from_the_lease(store: Store, make_run):
    make_run()
    store.leases.claim("run-1", ELSEWHERE, 60)

    assert store.leases.acquire("run-1", "me", 60).lease_owner == "me"
    store.leases.claim("run-1", ELSEWHERE, 60)

    assert store.runs.get("run-1").lease_owner == "me"
    assert not store.leases.renew("run-1", ELSEWHERE, 60)


def test_the_lease_of_an_unknown_run_is_not_found(store: Store):
    with pytest.raises(NotFoundError):
        store.leases.acquire("nothing", "me", 60)
    assert store.leases.renew("nothing", "me", 60) is False


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_machine_whose_clock_is_wrong_neither_takes_a_live_run_nor_holds_a_dead_one(
    store: Store, make_run, monkeypatch, hours: int
):
    """Only the database's clock counts: `hours` off is whatever a process calls now."""
    make_run()
    wrong = timedelta(hours=hours)
    monkeypatch.setattr(leases, "utc_now", lambda: model.utc_now() + wrong)

    store.leases.acquire("run-1", ELSEWHERE, 30)
    assert store.leases.acquire_shard("run-1", 0, ELSEWHERE, 30)
    with pytest.raises(RunBusyError):
        store.leases.acquire("run-1", "me", 30)
    assert store.leases.reap() == []
    assert not store.leases.acquire_shard("run-1", 0, "me", 30)
    assert store.leases.shard_holder("run-1", 0) == (ELSEWHERE, True)

    assert store.leases.renew("run-1", ELSEWHERE, -1)
    assert store.leases.renew_shard("run-1", 0, ELSEWHERE, -1)
    assert store.leases.shard_holder("run-1", 0) == (ELSEWHERE, False)
    assert store.leases.acquire_shard("run-1", 0, "me", 30)
    assert store.leases.reap() == ["run-1"]
    assert store.leases.acquire("run-1", "me", 30).lease_owner == "me"

    for name, owner in (("told-to-end", ELSEWHERE), ("killed", owner_that_has_ended())):
        make_run(name, takeovers_left=1)
        store.leases.acquire(name, owner, 30)
    assert store.leases.hand_over("told-to-end", ELSEWHERE, "why")
    assert store.leases.reap() == ["killed"]
    for name in ("told-to-end", "killed"):
        assert abs(store.runs.get(name).completed_at - store.now()) < timedelta(minutes=5), "else it waits for hours"


def test_the_databases_clock_is_close_to_a_true_one(store: Store):
    with store._database.reading() as connection:
        assert abs(now_of(connection) - model.utc_now()) < timedelta(seconds=60)
