"""The verdict of a run of 100,000 cases with five metrics of five kinds, from a store that has all results."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import process_time

from benchmarks.measuring import Line
from fepflow.analysis.metrics import compute_verdict
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.records import NewCheckResult, NewOutput, NewRun
from fepflow.store.store import Store
from fepflow.suite.models import Suite

CASES, AT_ONCE = 100_000, 10_000
CHECKS = ("acc", "safe", "style")

SUITE = {
    "name": "large",
    "target": {"http": {"url": "http://127.0.0.1:9/"}},
    "test_cases": [],
    "checks": [{"type": "contains", "id": check, "arguments": {}} for check in CHECKS],
    "metrics": [
        {"id": "acc", "check": "acc"},
        {"id": "safe", "check": "safe", "aggregate": "error_rate"},
        {"id": "style", "check": "style", "value": "$.response.score", "range": [1, 5]},
        {"id": "good_style", "check": "style", "value": "$.response.score", "aggregate": "rate", "at_least": 4},
        {"id": "latency", "value": "$.output.metadata.latency_ms", "aggregate": "p95"},
    ],
    "gate": {"min": {"acc": 0.9, "style": 2.9, "good_style": 0.1}, "max": {"safe": 0.05, "latency": 2_000}},
}


def verdict() -> Iterator[Line]:
    """Five metrics over 300,000 results and 100,000 outputs, and the verdict on them."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "store.db")
        with Store.open(f"sqlite:///{path}") as store:
            fill(store)
            run = store.runs.get("large")
            began = process_time()
            outcome = compute_verdict(store, run, Suite.model_validate(SUITE)).outcome
            seconds = process_time() - began
        if outcome != "pass":
            raise SystemExit(f"the outcome is {outcome}: this measures something else")
        began = process_time()
        with closing(sqlite3.connect(path)) as connection:
            for table in ("run_case", "output", "check_result"):
                connection.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608  # names of ours
        bare = process_time() - began
    figure = f"{seconds:.1f} s of CPU, {seconds / bare:.1f} times"
    yield Line(f"verdict of {CASES:,} cases, 5 metrics", figure, against=f"sqlite3 alone, reading {bare:.1f} s")


def fill(store: Store) -> None:
    """Store a run `large` of 100,000 cases with all its outputs and the results of three checks."""
    chance, now = Random(0), utc_now()  # noqa: S311  # data of a benchmark
    store.runs.create(NewRun("large", "large", SUITE, None, 1), (TestCase(id=f"{n}", input=n) for n in range(CASES)))
    for start in range(0, CASES, AT_ONCE):
        outputs, checks = [], []
        for case in range(start, start + AT_ONCE):
            said = Output(value=f"answer {case}", metadata={"latency_ms": chance.lognormvariate(6, 0.5)})
            outputs.append(NewOutput(case, 0, "hash", said))
            for check in CHECKS:
                passed = chance.random() < 0.95
                found = {"passed": passed, "response": {"score": chance.randint(1, 5)}}
                result = CheckResult(check_type="contains", status="completed", results=found, evaluated_at=now)
                checks.append(NewCheckResult(case, 0, check, "hash", result, passed))
        store.results.write("large", outputs, checks)
