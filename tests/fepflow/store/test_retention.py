from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fepflow.errors import NotFoundError, UserError
from fepflow.protocol.results import CheckError, CheckResult
from fepflow.protocol.test_case import ERASED, Output, TestCase
from fepflow.store import retention
from fepflow.store.maintenance import check_integrity
from fepflow.store.records import NewCheckResult, NewLabel, NewOutput, RunRecord, StoredReport
from fepflow.store.store import Store

NOW = datetime.now(UTC)


def check(case_index: int, check_id: str = "c", **fields: Any) -> NewCheckResult:
    """A stored result whose arguments and reason hold what was said."""
    result = CheckResult(
        **{
            "check_type": "contains",
            "status": "completed",
            "results": {
                "passed": True,
                "score": 0.5,
                "reason": "secret words",
                "response": {"passed": True, "why": "secret"},
            },
            "evaluated_at": NOW,
            "resolved_arguments": {"text": {"value": "secret words"}},
            "metadata": {"check_id": check_id, "spent": {"prompt_tokens": 3}, "prompt": "secret"},
            **fields,
        }
    )
    return NewCheckResult(case_index, 0, check_id, "hash", result, result.passed)


def add_run(store: Store, run_id: str, age_days: float = 0, name: str = "refunds", cases: int = 2) -> None:
    run = RunRecord(id=run_id, name=name, suite={}, repeats=1, created_at=NOW - timedelta(days=age_days))
    test_cases = [
        TestCase(id=f"case-{n}", input="secret question", expected="secret", metadata={"a": 1}) for n in range(cases)
    ]
    outputs = [NewOutput(n, 0, f"hash-{run_id}-{n}", Output(value="secret answer", id="o")) for n in range(cases)]
    checks = [check(n) for n in range(cases)]
    store.runs.add_completed(run, test_cases, outputs, checks, outcome="pass", metrics=[], verdict={"reasons": []})


def expired(store: Store, *args: Any, **options: Any) -> list[str]:
    return [run.id for run in store.retention.expired(*args, **options)]


def test_a_run_is_old_if_neither_its_age_nor_its_place_keeps_it(store: Store) -> None:
    for age in range(6):
        add_run(store, f"refunds-{age}", age)
    add_run(store, "other-9", 9, name="other")
    days = [NOW - timedelta(days=days) for days in (0.5, 2.5, 20)]
    assert expired(store, days[1], 0) == ["other-9", "refunds-5", "refunds-4", "refunds-3"]
    assert expired(store, days[1], 4) == ["refunds-5", "refunds-4"]
    assert expired(store, days[0], 1, "refunds") == ["refunds-5", "refunds-4", "refunds-3", "refunds-2", "refunds-1"]
    assert expired(store, None, 5) == ["refunds-5"]
    assert expired(store, days[2], 0) == []


def test_runs_that_are_used_stay(store: Store, make_run) -> None:
    make_run("pending")
    for run_id in ("base", "pooled", "labelled", "free"):
        add_run(store, run_id, 5)
    store.runs.set_baseline("refunds", "main", "base", ["pooled"])
    store.labels.add(NewLabel("labelled", 0, 0, "c", "passed", True, "", "ann"))
    future = NOW + timedelta(days=1)
    assert expired(store, future, 0) == ["free"]
    assert expired(store, future, 0, labelled=True) == ["free", "labelled"]
    for run_id, reason in (
        ("pending", "under way"),
        ("base", "baseline main"),
        ("pooled", "baseline main"),
        ("labelled", "1 label"),
    ):
        with pytest.raises(UserError, match=reason):
            store.retention.require_deletable(store.runs.get(run_id), labelled=False)
    for run_id in ("pending", "base"):  # used since somebody looked
        with pytest.raises(UserError, match="in use"):
            store.retention.delete_run(run_id)
    store.retention.require_deletable(store.runs.get("labelled"), labelled=True)


def test_a_deleted_run_leaves_nothing_and_others_as_they_were(store: Store, url: str, monkeypatch) -> None:
    monkeypatch.setattr(retention, "CASES_AT_ONCE", 2)
    add_run(store, "gone", cases=5)
    add_run(store, "left", cases=5)
    store.labels.add(NewLabel("gone", 0, 0, "c", "passed", True, "", "ann"))
    report_of_run = StoredReport(
        id="gone",
        source="refunds",
        report_id=None,
        model_name="m",
        model_source=None,
        evaluated_at=NOW,
        tasks=[],
        report={},
    )
    store.reports.set_run_reports([(store.runs.get("gone"), report_of_run)])
    store.retention.delete_run("gone")
    assert store.reports.newest_imported() == [], "one whose run is gone would be taken for an imported one"
    report = check_integrity(url)
    assert report.problems == []
    assert {name: rows for name, rows in report.rows.items() if rows and name != "metric_total"} == {
        "run": 1,
        "run_case": 5,
        "output": 5,
        "check_result": 5,
    }
    with pytest.raises(NotFoundError):
        store.retention.delete_run("gone")


def test_a_deletion_that_is_cut_off_shows_no_verdict_and_goes_on(store: Store, url: str, monkeypatch) -> None:
    monkeypatch.setattr(retention, "CASES_AT_ONCE", 2)
    add_run(store, "gone", cases=5)
    delete_cases, calls = retention._delete_cases, []

    def cut_off(*args: Any, **options: Any) -> None:
        calls.append(args)
        if len(calls) > 1:
            raise KeyboardInterrupt
        delete_cases(*args, **options)

    monkeypatch.setattr(retention, "_delete_cases", cut_off)
    with pytest.raises(KeyboardInterrupt):
        store.retention.delete_run("gone")
    run = store.runs.get("gone")
    assert (run.outcome, run.verdict, run.n_cases) == (None, None, 3)
    assert "not complete" in str(run.error)
    assert check_integrity(url).problems == []
    monkeypatch.setattr(retention, "_delete_cases", delete_cases)
    store.retention.delete_run("gone")
    assert store.runs.newest() == []


def test_an_erased_case_holds_nothing_of_what_was_said_and_counts_as_it_did(store: Store, url: str) -> None:
    add_run(store, "run-1")
    add_run(store, "run-2", cases=1)
    failed = check(1, "broken", status="error", results={}, error=CheckError(type="unknown_error", message="secret"))
    store.results.write("run-1", [], [failed])
    store.labels.add(NewLabel("run-1", 1, 0, "c", "passed", True, "secret note", "ann"))
    store.requests.add_test_cases([TestCase(id="case-1", input="secret")])
    before = store.results.check_totals("run-1")
    assert store.retention.erased_case("run-1") is None
    assert store.retention.erase_case("case-1") == 1
    assert (store.retention.erased_case("run-1"), store.retention.erased_case("run-2")) == ("case-1", None)
    assert store.results.check_totals("run-1") == before
    result = list(store.results.by_case("run-1"))[1]
    assert result.case.input is None
    assert ERASED in (result.case.metadata or {})
    assert (result.output.value, result.output.id) == (None, None)
    kept = {each.check_id: each.results for each in result.checks}
    assert kept == {"c": {"passed": True, "score": 0.5, "response": {"passed": True}}, "broken": {}}
    assert "secret" not in repr(result)
    assert store.labels.current("run-1")[0].note == ""
    assert store.requests.find_test_cases(["case-1"]) == {}
    assert "secret" in repr(next(iter(store.results.by_case("run-1"))))
    store.retention.erase_case("case-0")
    if url.startswith("sqlite"):  # neither in free pages nor in the log, while the store is open
        file = Path(url.removeprefix("sqlite:///"))
        content = b"".join(each.read_bytes() for each in file.parent.glob(f"{file.name}*"))
        assert [text for text in (b"secret question", b"secret answer", b"secret words") if text in content] == []
    assert check_integrity(url).problems == []
    with pytest.raises(NotFoundError):
        store.retention.erase_case("nobody")


def test_a_case_of_a_run_under_way_is_not_erased(store: Store, make_run) -> None:
    make_run("pending")
    with pytest.raises(UserError, match="under way"):
        store.retention.erase_case("case-1")


def test_a_sqlite_file_gives_its_pages_back(store: Store, url: str) -> None:
    on_sqlite = url.startswith("sqlite")
    add_run(store, "gone", cases=3_000 if on_sqlite else 3)
    store.retention.delete_run("gone")
    freed = store.retention.give_back_space()
    assert (freed > 500_000) == on_sqlite
    assert store.retention.give_back_space() == 0
