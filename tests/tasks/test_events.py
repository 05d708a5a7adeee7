"""The payload of the events, and the resource that they are about; that they arrive is the end-to-end tests' affair."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fepflow.analysis.drift import Point, Series
from fepflow.store.records import Cause, RunRecord
from fepflow.store.store import Store
from fepflow.tasks.events import Happening, drift_payload, payload_of, resource_id
from fepflow.text import slug
from fepflow.verdict.verdict import Comparison, MetricVerdict, Outcome, Verdict


@pytest.mark.parametrize(
    ("name", "part"),
    [("Refund Bot (v2)", "refund-bot-v2"), ("a/b.c", "a-b-c"), ("日本語", "77710aed"), ("Zürich", "z-rich-")],
)
def test_a_name_as_a_part_of_a_resource_id(name: str, part: str) -> None:
    assert slug(name).startswith(part)
    assert resource_id(name) == f"fepflow.suite.{slug(name)}"


def test_names_that_differ_in_other_alphabets_get_different_slugs() -> None:
    assert len({slug(name) for name in ("日本語", "中文", "!", "Zürich", "Zarich", "Z rich")}) == 6


def test_the_payload_has_what_an_automation_needs_and_is_small(store: Store) -> None:
    store.runs.create(RunRecord(id="a" * 32, name="refunds", suite={}, repeats=1), [])
    numbers = {"check": "c", "value": 0.5, "stderr": 0.1, "low": 0.4, "high": 0.6, "confidence": 0.95, "method": "t"}
    counts = {"n_expected": 9, "n_completed": 8, "n_error": 1, "n_skipped": 0}
    metrics = [MetricVerdict.model_validate({"id": f"{n:0100}", **numbers, **counts}) for n in range(1_000)]
    verdict = Verdict(outcome="fail", gate="g", reasons=["because\n" * 1_000] * 1_000, metrics=metrics)
    then = Comparison(run_id="b" * 32, outcome="pass", worsened=True, metrics=[])
    payload = payload_of(store.runs.get("a" * 32), verdict, then)
    assert len(json.dumps(payload)) < 50_000
    metric = payload["metrics"][0]
    assert (metric["value"], metric["low"], metric["high"], metric["n"], metric["impact"]) == (0.5, 0.4, 0.6, 8, None)
    assert payload["baseline"] == {"run_id": "b" * 32, "outcome": "pass"}
    assert payload["worsened"] is True
    assert payload["reasons"][0].startswith("because because")
    assert payload_of(store.runs.get("a" * 32), verdict, None)["baseline"] is None


@pytest.mark.parametrize(
    ("before", "outcome", "change"),
    [
        (None, "fail", "failed"),
        ("pass", "fail", "failed"),
        ("fail", "fail", "still failing"),
        ("fail", "pass", "recovered"),
        ("pass", "pass", "none"),
        (None, "pass", "none"),
        ("fail", "inconclusive", "none"),
    ],
)
def test_an_event_says_what_its_outcome_changes(before: Outcome | None, outcome: Outcome, change: str) -> None:
    assert Happening(before).change(outcome) == change


def test_an_outcome_is_compared_with_the_last_pass_or_fail_of_the_same_cause(store: Store) -> None:
    def ended(run_id: str, outcome: Outcome, cause: Cause = "schedule", **fields: Any) -> RunRecord:
        run = RunRecord(id=run_id, name="refunds", suite={}, repeats=1, cause=cause, **fields)
        store.runs.add_completed(run, [], [], [], outcome=outcome, metrics=None, verdict=None)
        return store.runs.get(run_id)

    failed = ended("a" * 32, "fail")
    ended("b" * 32, "pass", "command")
    ended("c" * 32, "inconclusive")
    ended("d" * 32, "pass", rescored_from="a" * 32)
    now = ended("e" * 32, "pass")
    before = store.runs.decided_before(now)
    assert before is not None
    assert before.id == failed.id


def test_the_payload_of_drift_names_the_metrics_and_says_why(store: Store) -> None:
    store.runs.create(RunRecord(id="a" * 32, name="refunds", suite={}, repeats=1), [])
    run = store.runs.get("a" * 32)
    points = [Point(run.id, run.created_at, "pass", 0.84, 0.7, 0.9, 6.9)]
    drifted = [Series(f"{n:0100}", points, None, 0.92, "gate") for n in range(1_000)]
    payload = drift_payload(run, Verdict(outcome="inconclusive", gate="g", reasons=[], metrics=[]), drifted)
    assert len(json.dumps(payload)) < 50_000
    assert (payload["run_id"], payload["suite"], payload["outcome"]) == (run.id, "refunds", "inconclusive")
    assert payload["metrics"][0] == {"id": "0" * 100, "value": 0.84, "rate": 0.92, "agreed_by": "gate"}
    assert (len(payload["metrics"]), len(payload["reasons"])) == (100, 10)
