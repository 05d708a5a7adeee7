"""Runs that are in the store, for commands that compare them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckError, CheckResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.store.records import NewCheckResult, NewOutput, RunRecord
from fepflow.store.store import Store

SUITE: dict[str, Any] = {
    "name": "refunds",
    "target": {"recorded": {"path": "x.jsonl"}},
    "test_cases": [],
    "checks": [{"type": "contains", "id": "says_so", "arguments": {"text": "$.output.value", "phrases": "yes"}}],
}

Ran = Callable[..., RunRecord]


@pytest.fixture
def ran(store: Store) -> Ran:
    """Stores a completed run, whose check passed as given: True, False, None for an error; a list of them is repeats.
    `score` gives a score for each, `inputs` the cases' inputs."""

    def make(
        passed: Sequence[Any],
        inputs: Sequence[Any] = (),
        outputs: Sequence[Any] = (),
        score: Callable[[int], float] = lambda _: 0.5,
        ended: bool = True,
        **sections: Any,
    ) -> RunRecord:
        number = len(store.runs.newest())
        run_id, suite = f"{number:08x}{'feedbeef' * 3}", {**SUITE, **sections}
        repeated = [each if isinstance(each, list) else [each] for each in passed]
        cases = [TestCase(id=f"c{n}", input=inputs[n] if inputs else n) for n in range(len(passed))]
        most = len(repeated[0]) if repeated else 1
        store.runs.create(RunRecord(id=run_id, name=suite["name"], suite=suite, repeats=most, suite_hash="s"), cases)
        store.runs.note_target(run_id, "t")
        store.leases.acquire(run_id, "me", 30)
        rows, checks = [], []
        for index, repeats in enumerate(repeated):
            for repeat, verdict in enumerate(repeats):
                value = outputs[index] if outputs else f"{run_id[:8]} says {verdict}"
                rows.append(NewOutput(index, repeat, "a" * 64, Output(value=value)))
                late: dict[str, Any] = {"error": CheckError(type="timeout_error", message="late")}
                late = late if verdict is None else {}
                result = CheckResult(
                    check_type="contains",
                    status="error" if verdict is None else "completed",
                    results={} if verdict is None else {"passed": verdict, "response": {"score": score(index)}},
                    evaluated_at=utc_now(),
                    resolved_arguments={"text": {"value": value}, "phrases": {"value": "yes"}},
                    metadata={"check_id": "says_so"},
                    **late,
                )
                checks.append(NewCheckResult(index, repeat, "says_so", "b" * 64, result, verdict))
        store.results.write(run_id, rows, checks)
        if ended:
            verdict = {"gate": "Every check must pass.", "reasons": [], "warnings": []}
            store.leases.finish(run_id, "me", "completed", outcome="fail", verdict=verdict, metrics=[])
        return store.runs.get(run_id)

    return make
