"""Totals for metrics: they equal what the store was given, once, and never become smaller."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from fepflow.protocol.results import CheckError, CheckResult, ErrorType
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store import totals
from fepflow.store.records import NewCheckResult, NewOutput, RunRecord
from fepflow.store.result_rows import insert_results
from fepflow.store.store import Store

HASH = "a" * 64
TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def call(case_index: int, **metadata: object) -> NewOutput:
    value = None if "error" in metadata else "yes"
    return NewOutput(case_index, 0, HASH, Output(value=value, metadata={"attempts": 1, "latency_ms": 200, **metadata}))


def check(
    case_index: int, passed: bool | None, error: ErrorType | None = None, cached: bool | None = None, **metadata: Any
) -> NewCheckResult:
    of_model = {} if cached is None else {"metadata": {"model": "m", "cached": cached}}
    result = CheckResult(
        check_type="contains",
        status="error" if error else "completed",
        results={} if error else {"passed": passed, **of_model},
        evaluated_at=TIME,
        metadata={"check_id": "contains\0", **metadata},
        error=CheckError(type=error, message="why") if error else None,
    )
    return NewCheckResult(case_index, 0, "contains\0", HASH, result, passed)


def read(store: Store, suite: str = "s") -> dict[str, float]:
    """The totals of a suite, and of all together."""
    return {
        f"{total.metric} {total.label}".strip(): round(total.value, 6)
        for total in store.totals.read()
        if total.suite in ("", suite) and total.metric not in (totals.LAST_VERDICT, totals.WRITE_SECONDS)
    }


def begin(store: Store, run_id: str, name: str = "s", **fields: Any) -> None:
    store.runs.create(
        RunRecord(id=run_id, name=name, suite={}, repeats=1, **fields), [TestCase(id=str(n), input=n) for n in range(6)]
    )
    store.leases.acquire(run_id, "me", 60)


def test_what_a_run_does_counts_once_whatever_is_written_again_resumed_or_deleted(store: Store) -> None:
    begin(store, "run-1")
    timeout = {"type": "timeout_error", "kind": "timeout", "message": "slow", "recoverable": True}
    usage = {"requests": 3, "answers": 2, "tokens": 70, "usd": 0.25}
    outputs = [call(0, tokens=10, usd=0.5), call(1, attempts=3, tokens=-5, usd=1e300), call(2, error=timeout)]
    checks = [
        check(0, True, cached=True),
        check(1, False, cached=False, spent=usage),
        check(2, None, ErrorType.TIMEOUT_ERROR),
    ]
    store.results.write("run-1", outputs, checks)
    first = {
        "calls answered": 2, "calls failed": 1, "call_errors timeout": 1, "retries": 2,
        "call_seconds 0.25": 3, "call_seconds sum": 0.6,
        "checks passed": 1, "checks failed": 1, "checks error": 1, "check_errors timeout_error": 1,
        "lookups models hit": 1, "lookups models miss": 1, "model_requests": 3,
        "tokens target": 10, "tokens models": 70, "usd target": 0.5, "usd models": 0.25,
    }  # fmt: skip
    assert read(store) == first
    store.results.write("run-1", [*outputs, call(3)], [*checks, check(3, None)])
    second = {**first, "calls answered": 3, "checks unjudged": 1, "call_seconds 0.25": 4, "call_seconds sum": 0.8}
    assert read(store) == second, "what was there already is not counted again"

    store.leases.finish("run-1", "me", "interrupted", error="its process is gone")
    assert store.results.delete_errors("run-1") == 2
    store.leases.acquire("run-1", "you", 60)
    store.results.write("run-1", [call(2)], [check(2, True)])
    store.leases.finish("run-1", "you", "completed", outcome="pass", metrics=[], verdict={})
    third = {**second, "runs interrupted": 1, "runs pass": 1, "calls answered": 4, "checks passed": 2}
    third |= {"call_seconds 0.25": 5, "call_seconds sum": 1.0}
    assert read(store) == third
    progress = store.results.progress("run-1")
    assert (progress.outputs, progress.passed, progress.failed, progress.failed_outputs) == (4, 2, 1, 0)
    assert third["calls answered"] == progress.outputs, "the failed call was made, and deleted for the second try"

    store.retention.delete_run("run-1")
    assert read(store) == third, "deleting runs makes no counter go backwards"


def test_outputs_of_files_and_earlier_runs_are_no_calls_and_imported_runs_count_nothing(store: Store) -> None:
    begin(store, "run-1", options={"reuse_outputs": True})
    store.results.write("run-1", [call(0, reused_from="run-0"), call(1)], [])
    store.results.write("run-1", [call(2)], [], are_calls=False)
    store.results.write("run-1", [], [], write_seconds=[0.003])
    begin(store, "run-2", cause="import")
    store.results.write("run-2", [call(0)], [check(0, True)])
    store.leases.finish("run-2", "me", "completed", outcome="fail", metrics=[], verdict={})
    assert read(store) == {
        "calls reused": 1, "calls answered": 1, "calls recorded": 1, "lookups outputs hit": 1,
        "lookups outputs miss": 1, "call_seconds 0.25": 1, "call_seconds sum": 0.2,
    }  # fmt: skip


def test_a_commit_that_is_tried_again_as_nobody_heard_of_it_counts_nothing_twice(store: Store) -> None:
    begin(store, "run-1")
    insert = insert_results("run-1", [call(0)], [check(0, True)], are_calls=True)
    store._database.write(insert)
    before = read(store)
    store._database.write(insert)
    assert read(store) == before


def test_suites_have_few_labels_whatever_callers_name_them(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals, "MAX_SUITES", 2)
    for number, name in enumerate(("one", "two", "three", "four", "one")):
        begin(store, f"run-{number}", name)
        store.leases.finish(f"run-{number}", "me", "failed", error="no")
    begin(store, "run-9", "named by a caller", cause="network")
    store.runs.request_cancel("run-9")
    store.leases.finish("run-9", "me", "cancelled")
    runs = {(total.suite, total.label): total.value for total in store.totals.read()}
    assert runs == {
        ("one", "error"): 2, ("two", "error"): 1, (totals.OTHER_SUITES, "error"): 2,
        (totals.REQUESTED_SUITES, "cancelled"): 1,
    }  # fmt: skip


def test_a_total_that_has_no_room_left_keeps_no_results_out(store: Store) -> None:
    begin(store, "run-1")
    for dollars in (1e30, 1e9):
        store._database.write(partial(totals._add, suite="s", increments={("usd", "target"): dollars}))
    store.results.write("run-1", [call(0, usd=1e8), call(1, usd=1e8)], [])
    assert len(store.results.outputs("run-1")) == 2
    assert read(store)["usd target"] == pytest.approx((2**63 - 1) / 10**9)


def test_runs_that_write_at_once_lose_no_count_and_do_not_deadlock(store: Store) -> None:
    runs = [f"run-{number}" for number in range(4)]
    for run in runs:
        begin(store, run, run[:4])

    def work(run: str) -> None:
        for case_index in range(6):
            store.results.write(run, [call(case_index)], [check(case_index, case_index % 2 == 0)])
        store.leases.finish(run, "me", "completed", outcome="pass", metrics=[], verdict={})

    threads = [threading.Thread(target=work, args=[run]) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert read(store, "run-") == {
        "calls answered": 24, "checks passed": 12, "checks failed": 12, "runs pass": 4,
        "call_seconds 0.25": 24, "call_seconds sum": 4.8,
    }  # fmt: skip


def test_runs_without_an_end_are_counted_with_the_age_of_the_oldest(store: Store) -> None:
    begin(store, "run-1")
    store.runs.create(RunRecord(id="run-2", name="s", suite={}, repeats=1), [TestCase(id="a", input=1)])
    waiting = store.totals.waiting_runs()
    assert waiting.by_status == {"pending": 1, "running": 1}
    assert waiting.undispatched == 0
    assert 0 <= waiting.oldest_age < 60
