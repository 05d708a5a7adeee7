"""What is PostgreSQL's own: deadlocks, servers that are away, values that it refuses, an order of text of its own."""

import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import pytest
from sqlalchemy import make_url, text

from fepflow.errors import InfrastructureError, MissingExtraError
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output
from fepflow.store.records import NewCheckResult, NewOutput
from fepflow.store.store import Store


@pytest.fixture
def url(postgresql_url: str) -> str:
    return postgresql_url


def check(case_index: int, name: str) -> NewCheckResult:
    result = CheckResult(check_type="c", status="completed", results={}, evaluated_at=utc_now())
    return NewCheckResult(case_index, 0, name, "a" * 64, result, None)


def rename(run_id: str):
    return text("UPDATE run SET name = name || '.' WHERE id = :id").bindparams(id=run_id)


def test_of_two_transactions_that_deadlock_both_succeed(store: Store, make_run):
    runs = [make_run("run-1", name=""), make_run("run-2", name="")]
    attempts = []
    both_hold_one = threading.Barrier(2)

    def work_in(order):
        def work(connection):
            attempts.append(order)
            connection.execute(rename(order[0]))
            if attempts.count(order) == 1:
                both_hold_one.wait(30)
            connection.execute(rename(order[1]))

        return work

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(store._database.write, [work_in(runs), work_in(runs[::-1])]))

    assert len(attempts) >= 3
    assert [run.name for run in store.runs.newest()] == ["..", ".."]


@pytest.mark.parametrize(("wait_seconds", "written"), [(0.0, False), (20.0, True)])
def test_a_write_is_retried_within_wait_seconds_after_a_lost_connection(
    url: str, store: Store, make_run, wait_seconds: float, written: bool
):
    make_run("run-1", name="before")
    seen = []

    def work(connection):
        seen.append(connection)
        if len(seen) == 1:
            pid = connection.scalar(text("SELECT pg_backend_pid()"))
            store._database.write_once(lambda other: other.execute(text(f"SELECT pg_terminate_backend({pid})")))
        connection.execute(rename("run-1"))

    with Store.open(url, wait_seconds) as cut:
        with nullcontext() if written else pytest.raises(InfrastructureError, match="shutting down or starting"):
            cut._database.write(work)
        assert cut.runs.get("run-1").name == ("before." if written else "before"), (
            "the next request has a connection anew"
        )


def test_of_two_transactions_that_cannot_be_put_in_an_order_both_succeed(store: Store, make_run):
    make_run("run-1", name="")
    attempts = []
    both_have_read = threading.Barrier(2)

    def work(number):
        def count(connection):
            connection.execute(text("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"))
            connection.execute(text("SELECT name FROM run")).all()
            attempts.append(number)
            if attempts.count(number) == 1:
                both_have_read.wait(30)
            connection.execute(rename("run-1"))

        return count

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(store._database.write, [work(1), work(2)]))

    assert len(attempts) >= 3
    assert store.runs.get("run-1").name == ".."


def test_batches_of_the_same_rows_in_any_order_do_not_deadlock(url, store: Store, make_run):
    runs = [make_run(f"run-{number}", cases=100) for number in range(5)]
    all_there = threading.Barrier(4)

    def write_all(number: int) -> None:
        with Store.open(url) as mine:
            for run in runs:
                case_indices = random.sample(range(100), 100)
                checks = [check(case_index, name) for case_index in case_indices for name in ("b", "a")]
                all_there.wait(30)
                mine.results.write(
                    run, [NewOutput(case_index, 0, "a" * 64, Output(value=1)) for case_index in case_indices], checks
                )

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write_all, range(4)))

    assert [(store.results.progress(run).outputs, store.results.progress(run).checks) for run in runs] == [
        (100, 200)
    ] * 5
    with store._database.reading() as connection:
        found = text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        assert connection.scalar(found) == 0


def test_a_reader_sees_one_state_and_does_not_wait_for_a_writer(url, store: Store, make_run):
    make_run()
    with Store.open(url) as other, store._database.reading() as connection:
        before = connection.scalar(text("SELECT count(*) FROM output"))
        other.results.write("run-1", [NewOutput(0, 0, "a" * 64, Output(value=1))], [])
        after = connection.scalar(text("SELECT count(*) FROM output"))

    assert (before, after) == (0, 0)
    assert store.results.progress("run-1").outputs == 1


def test_reading_writes_nothing(store: Store, make_run):
    make_run()

    with pytest.raises(InfrastructureError, match="read-only transaction"), store._database.reading() as connection:
        connection.execute(rename("run-1"))


@pytest.mark.parametrize("address", ["me:hunter2@127.0.0.1:1/evals", "me@127.0.0.1:1/evals?password=hunter2"])
def test_an_unreachable_server_is_named_without_the_password(address):
    with pytest.raises(
        InfrastructureError,
        match=r"postgresql://127\.0\.0\.1:1/evals cannot be reached \(.*refused.*\): check that the server is up and",
    ) as caught:
        Store.open(f"postgresql://{address}")

    assert "hunter2" not in f"{caught.value} {caught.value.__cause__}"
    assert "\n" not in str(caught.value)


def test_a_server_that_does_not_answer_is_given_up_on(url):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(InfrastructureError, match=r"cannot be reached .*timeout"):
            Store.open(f"postgresql://me@127.0.0.1:{port}/evals?connect_timeout=2")


def test_a_database_that_is_not_there_is_named(url):
    missing = make_url(url).set(database="nowhere").render_as_string(hide_password=False)

    with pytest.raises(InfrastructureError, match=r'/nowhere .*database "nowhere" does not exist'):
        Store.open(missing)


def test_a_connection_that_the_server_ended_is_replaced(url, store: Store, make_run):
    make_run()
    end_others = text(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid()"
    )
    with Store.open(url) as other:
        other._database.write(lambda connection: connection.execute(end_others).all())

    assert store.runs.get("run-1").n_cases == 3


def test_a_connection_that_the_server_ends_under_way_is_an_infrastructure_error_and_stores_nothing(
    url, store: Store, make_run
):
    make_run()

    def work(connection):
        connection.execute(rename("run-1"))
        pid = connection.scalar(text("SELECT pg_backend_pid()"))
        with Store.open(url) as other:
            other._database.write(lambda c: c.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid}))
        connection.execute(rename("run-1"))

    with pytest.raises(InfrastructureError, match=r"is shutting down or starting|cannot be reached"):
        store._database.write(work)

    assert store.runs.get("run-1").name == "refunds"


def test_without_the_driver_the_error_says_what_to_install(url, monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(
        MissingExtraError, match=r"needs a driver, which is not installed here: pip install \"fepflow\[p"
    ):
        Store.open(url)


def test_no_detail_of_a_row_is_in_an_error(store: Store, make_run):
    make_run(cases=1)
    broken = text("INSERT INTO run_case VALUES ('run-1', 5, 'a customer''s letter', NULL)")

    with pytest.raises(InfrastructureError, match="data") as caught:
        store._database.write(lambda connection: connection.execute(broken))

    assert "letter" not in str(caught.value)
