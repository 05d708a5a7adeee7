"""Metrics of every kind, from results in a store to the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest

from fepflow.analysis.metrics import compute_verdict
from fepflow.protocol.model import utc_now
from fepflow.protocol.results import CheckError, CheckResult
from fepflow.protocol.test_case import Output, TestCase
from fepflow.statistics.means import passes_needed
from fepflow.statistics.proportions import wilson_interval
from fepflow.store.records import NewCheckResult, NewOutput, RunRecord
from fepflow.store.store import Store
from fepflow.suite.models import Suite
from fepflow.verdict.verdict import MetricVerdict, Verdict

NUMBERS = count()

E = "error"
S = "skip"
NEVER = None
Cell = Any
"""Results of a check as JSON, True and False for a pass and a fail, "error", "skip", or None: it never came."""


def judged(store: Store, cases: Sequence[Any], **sections: Any) -> Verdict:
    """The verdict on the results of check `c`, one list a case with its repeats."""
    run_id, repeats = f"{next(NUMBERS):032x}", len(cases[0])
    store.runs.create(
        RunRecord(id=run_id, name="s", suite={}, repeats=repeats),
        [TestCase(id=str(n), input=n) for n in range(len(cases))],
    )
    rows = [
        _row(case_index, repeat, cell)
        for case_index, case in enumerate(cases)
        for repeat, cell in enumerate(case)
        if cell is not NEVER
    ]
    outputs = [NewOutput(row.case_index, row.repeat, "o", Output(value="x")) for row in rows]
    store.results.write(run_id, outputs, rows)
    return compute_verdict(store, store.runs.get(run_id), suite(**sections))


def sliced(store: Store, cells: Sequence[tuple[Any, Cell]], **sections: Any) -> Verdict:
    """The verdict on one result a case, whose topic stands before it."""
    run_id = f"{next(NUMBERS):032x}"
    cases = [
        TestCase(id=str(n), input=n, metadata=None if topic is None else {"topic": topic})
        for n, (topic, _) in enumerate(cells)
    ]
    store.runs.create(RunRecord(id=run_id, name="s", suite={}, repeats=1), cases)
    rows = [_row(n, 0, cell) for n, (_, cell) in enumerate(cells) if cell is not NEVER]
    store.results.write(run_id, [NewOutput(row.case_index, 0, "o", Output(value="x")) for row in rows], rows)
    return compute_verdict(store, store.runs.get(run_id), suite(**sections))


def suite(**sections: Any) -> Suite:
    checks = [{"type": "contains", "id": "c", "arguments": {}}]
    target = {"http": {"url": "http://127.0.0.1:9/"}}
    return Suite.model_validate({"name": "s", "target": target, "test_cases": [], "checks": checks, **sections})


def _row(case_index: int, repeat: int, cell: Cell) -> NewCheckResult:
    results = {"passed": cell} if isinstance(cell, bool) else cell if isinstance(cell, dict) else {}
    status = cell if cell in (E, S) else "completed"
    error = CheckError(type="unknown_error", message="away", recoverable=True) if status == E else None
    found = {"check_type": "contains", "status": status, "results": results, "evaluated_at": utc_now()}
    made = CheckResult.model_validate(found | ({"error": error} if error else {}))
    return NewCheckResult(case_index, repeat, "c", "a", made, results.get("passed"))


def metric(store: Store, cases: Sequence[Any], **of_metric: Any) -> MetricVerdict:
    (found,) = judged(store, cases, metrics=[{"id": "m", "check": "c", **of_metric}]).metrics
    return found


def figures(found: MetricVerdict) -> Any:
    """Value, expected, completed, errors, skipped."""
    return found.value, found.n_expected, found.n_completed, found.n_error, found.n_skipped


def test_a_majority_is_one_observation_a_case(store: Store) -> None:
    found = metric(store, [[True, True, False], [False, False, True], [True, True, True]], aggregate="majority")
    assert figures(found) == (pytest.approx(2 / 3), 3, 3, 0, 0)
    assert (found.low, found.high) == wilson_interval(2 / 3, 3)
    assert found.method == "wilson"


def test_repeats_that_are_missing_count_only_where_they_could_turn_the_case(store: Store) -> None:
    decided, open_, skipped, away = [True, True, E], [True, False, E], [True, S, False], [NEVER, NEVER, NEVER]
    found = metric(store, [decided, open_, skipped, away], aggregate="majority")
    assert figures(found) == (pytest.approx(1 / 3), 4, 1, 1, 1)
    assert (found.low, found.high) == (wilson_interval(0.25, 4)[0], wilson_interval(1.0, 4)[1])


def test_each_takes_the_share_of_each_case(store: Store) -> None:
    four, three = [True, True, True, True, False], [True, True, True, False, False]
    found = metric(store, [four, three, [True] * 5], aggregate="each@0.8")
    assert figures(found) == (pytest.approx(2 / 3), 3, 3, 0, 0)
    assert (found.low, found.high) == wilson_interval(2 / 3, 3)


def test_each_leaves_a_case_open_that_its_missing_repeats_decide(store: Store) -> None:
    sure, lost = [True, True, True, True, E], [True, True, True, E, False]
    lost_for_sure = [True, True, False, False, E]
    found = metric(store, [sure, lost, lost_for_sure, [NEVER] * 5], aggregate="each@0.8")
    assert figures(found) == (pytest.approx(1 / 3), 4, 2, 1, 0), (
        "a case is known once its missing repeats cannot change it"
    )
    assert (found.low, found.high) == (wilson_interval(0.25, 4)[0], wilson_interval(0.75, 4)[1])


def test_a_share_of_repeats_is_counted_as_it_is_written() -> None:
    assert [passes_needed(0.8, repeats) for repeats in (1, 2, 4, 5, 6, 10)] == [1, 2, 4, 4, 5, 8]
    assert passes_needed(0.07, 100) == 7, "in floats 0.07 of 100 are more than 7"
    assert passes_needed(0.29, 100) == 29


def test_the_worst_of_passes_and_of_scores(store: Store) -> None:
    assert figures(metric(store, [[True, True], [True, False]], aggregate="worst")) == (0.5, 2, 2, 0, 0)
    cases = [[{"score": 4}, {"score": 2}], [{"score": 5}, {"score": 3}], [{"score": 5}, E]]
    bounded = metric(store, cases, aggregate="worst", value="$.score", range=[1, 5])
    assert figures(bounded) == (pytest.approx(10 / 3), 3, 2, 1, 0)
    assert bounded.method == "bounded"
    unbounded = metric(store, cases, aggregate="worst", value="$.score")
    assert figures(unbounded) == (2.5, 3, 2, 1, 0)
    assert (unbounded.low, unbounded.high) == (None, None)


def test_pass_at_k_and_pass_hat_k(store: Store) -> None:
    cases = [[True] * passed + [False] * (5 - passed) for passed in (5, 5, 4, 3, 0)]
    hat = metric(store, cases, aggregate="pass^2")
    assert (hat.value, hat.low, hat.high) == pytest.approx((0.58, 0.24427, 0.85507), abs=5e-6)
    assert metric(store, cases, aggregate="pass@2").value == pytest.approx((1 + 1 + 1 + 0.9 + 0) / 5)
    partial = metric(store, [*cases[:4], [False, False, False, False, E]], aggregate="pass@5")
    assert figures(partial) == (1.0, 5, 4, 1, 0), "the last of five could yet pass"


def test_more_are_wanted_than_there_are_repeats(store: Store) -> None:
    metrics = [{"id": "m", "check": "c", "aggregate": "pass@3"}]
    verdict = judged(store, [[True, True]] * 40, metrics=metrics, gate={"min": {"m": 0.5}})
    assert verdict.outcome == "inconclusive"
    assert verdict.reasons == [
        "m: no value (n = 40) cannot be computed: pass@3 takes 3 repeats of each case, and the run has 2."
    ]


def test_median_and_percentiles_of_scores(store: Store) -> None:
    cases = [[{"score": score}] for score in range(101)]
    median = metric(store, cases, aggregate="median", value="$.score")
    assert (median.value, median.low, median.high, median.method) == (50, 40, 60, "order-statistics")
    p90 = metric(store, [*cases[:-1], [E]], aggregate="p90", value="$.score", range=[0, 100])
    assert (p90.value, p90.n_error, p90.high) == (89, 1, 96)


def test_rates(store: Store) -> None:
    cases = [[{"score": score, "polite": score > 3}] for score in (1, 2, 3, 4, 5)]
    assert metric(store, cases, aggregate="rate", value="$.score", at_least=3).value == 0.6
    assert metric(store, cases, aggregate="rate", value="$.score", at_least=2, at_most=4).value == 0.6
    polite = metric(store, cases, aggregate="rate", value="$.polite")
    assert (polite.value, polite.method) == (0.4, "wilson")
    verdict = judged(store, cases, metrics=[{"id": "m", "check": "c", "aggregate": "rate", "value": "$.score"}])
    assert verdict.metrics[0].n_error == 4, "numbers are neither yes nor no"
    assert "m: 4 values that are neither yes nor no, such as 5, count as errors" in verdict.warnings[0]


def test_an_error_rate_counts_errors_and_not_what_was_skipped(store: Store) -> None:
    cases = [[True], [False], [E], [{"odd": 1}], [S], [NEVER]]
    found = metric(store, cases, aggregate="error_rate")
    assert figures(found) == (0.25, 6, 4, 0, 1)
    assert (found.low, found.high) == (wilson_interval(1 / 6, 6)[0], wilson_interval(3 / 6, 6)[1])


def test_an_error_rate_within_its_maximum_does_not_judge_the_check(store: Store) -> None:
    metrics = [{"id": "errors", "check": "c", "aggregate": "error_rate"}]
    verdict = judged(store, [[False]] * 100, metrics=metrics, gate={"max": {"errors": 0.1}})
    assert (verdict.outcome, verdict.not_judged) == ("pass", ["c"])


LATENCY = {"id": "p95_latency", "aggregate": "p95", "value": "$.output.metadata.latency_ms"}


def called(store: Store, latencies: Sequence[float | None], **sections: Any) -> Verdict:
    """The verdict on outputs with these latencies; None is a call that failed."""
    run_id = f"{next(NUMBERS):032x}"
    store.runs.create(
        RunRecord(id=run_id, name="s", suite={}, repeats=1),
        [TestCase(id=str(n), input=n) for n in range(len(latencies))],
    )
    outputs = [
        NewOutput(n, 0, "o", Output(value=None, metadata={"error": {"message": "late"}}))
        if latency is None
        else NewOutput(n, 0, "o", Output(value={"sure": 0.5}, metadata={"latency_ms": latency, "usd": latency / 1e6}))
        for n, latency in enumerate(latencies)
    ]
    store.results.write(run_id, outputs, [])
    return compute_verdict(store, store.runs.get(run_id), suite(**sections))


@pytest.mark.parametrize(
    ("slow", "failed", "outcome"),
    [
        (3, 0, "pass"),
        (4, 0, "inconclusive"),
        (0, 3, "pass"),
        (0, 4, "inconclusive"),
        (30, 0, "fail"),
        (0, 60, "inconclusive"),
    ],
)
def test_a_latency_budget_is_a_gate(store: Store, slow: int, failed: int, outcome: str) -> None:
    latencies = [*[100.0] * (200 - slow - failed), *[3000.0] * slow, *[None] * failed]
    verdict = called(store, latencies, metrics=[LATENCY], gate={"max": {"p95_latency": 2000}})
    assert verdict.outcome == outcome
    (found,) = verdict.metrics
    assert (found.check, found.maximum, found.n_error) == (None, 2000, failed)


def test_a_budget_says_how_many_cases_it_takes(store: Store) -> None:
    verdict = called(store, [100.0 + n for n in range(50)], metrics=[LATENCY], gate={"max": {"p95_latency": 2000}})
    assert verdict.reasons == [
        "p95_latency: 147 (95 % interval from 143, n = 50) keeps to the maximum of 2000, but its interval ends above; "
        "it leans towards a pass, and about 72 test cases like these would settle it in 4 of 5 runs, if 147 is its "
        "true value."
    ]
    assert verdict.gate == "p95_latency must be at most 2000 (95 % intervals)."


def test_values_of_outputs_and_their_errors(store: Store) -> None:
    metrics = [
        {"id": "cost", "value": "$.output.metadata.usd"},
        {"id": "fast", "value": "$.output.metadata.latency_ms", "aggregate": "rate", "at_most": 150},
        {"id": "sure", "value": "$.output.value.sure", "range": [0, 1]},
        {"id": "failed_calls", "aggregate": "error_rate"},
    ]
    verdict = called(store, [100, 200, None, 100], metrics=metrics)
    assert {found.id: figures(found) for found in verdict.metrics} == {
        "cost": (pytest.approx(4e-4 / 3), 4, 3, 1, 0),
        "fast": (pytest.approx(2 / 3), 4, 3, 1, 0),
        "sure": (0.5, 4, 3, 1, 0),
        "failed_calls": (0.25, 4, 4, 0, 0),
    }


@pytest.mark.parametrize("aggregate", ["mean", "median", "p5", "worst", "rate"])
def test_hostile_scores_never_pass_by_default(store: Store, aggregate: str) -> None:
    of_metric: dict[str, Any] = {"id": "m", "check": "c", "aggregate": aggregate, "value": "$.score"}
    of_metric |= {"at_least": 0.5} if aggregate == "rate" else {}
    hostile: list[list[Any]] = [[1e308] * 3, [10**400], ["NaN"], [0.9], [0.9, 0.9], [None, {}, [1]]]
    for scores in hostile:
        verdict = judged(store, [[{"score": score}] for score in scores], metrics=[of_metric], gate={"min": {"m": 0.5}})
        assert verdict.outcome == "inconclusive", scores


def test_slices_are_those_of_the_cases_metadata(store: Store) -> None:
    cells = (
        [("billing", True)] * 30 + [("refunds", False)] * 25 + [("refunds", E)] * 5 + [(None, True)] * 3 + [(7, NEVER)]
    )
    verdict = sliced(store, cells, slices={"by": "topic", "min": 0.8})
    assert verdict.outcome == "fail"
    assert (
        "1 of 4 slices is below the minimum of 0.8: refunds 0 (95 % interval 0 to 0.3356, n = 25 of 30"
        in verdict.reasons[0]
    )
    assert [(each.slice, each.outcome, each.n_expected, each.n_completed, each.n_error) for each in verdict.slices] == [
        ("refunds", "fail", 30, 25, 5),
        ("(none)", "inconclusive", 3, 3, 0),
        ("7", "inconclusive", 1, 0, 0),
        ("billing", "pass", 30, 30, 0),
    ]
    assert verdict.metrics[0].n_expected == 64


def test_slices_add_up_to_the_whole_for_every_aggregate(store: Store) -> None:
    metrics = [
        {"id": "passed", "check": "c"},
        {"id": "errors", "check": "c", "aggregate": "error_rate"},
        {"id": "worst", "check": "c", "aggregate": "worst"},
    ]
    cells = [(topic, cell) for topic in "abc" for cell in (True, True, False, E, S, NEVER)]
    verdict = sliced(store, cells, metrics=metrics, slices={"by": "topic"})
    for found in verdict.metrics:
        parts = [each for each in verdict.slices if each.metric == found.id]
        assert len(parts) == 3
        for name in ("n_expected", "n_completed", "n_error", "n_skipped"):
            assert sum(getattr(part, name) for part in parts) == getattr(found, name)
    assert verdict.rules[0].check == "c", "slices without a minimum are no rule"


def test_a_minimum_is_for_shares_that_passed_or_for_the_metrics_that_are_named(store: Store) -> None:
    metrics = [
        {"id": "passed", "check": "c"},
        {"id": "score", "check": "c", "value": "$.score", "range": [1, 5]},
    ]
    cells = [("a", {"passed": True, "score": 2})] * 40
    plain = sliced(store, cells, metrics=metrics, slices={"by": "topic", "min": 0.8})
    assert [(rule.rule, rule.outcome) for rule in plain.rules] == [("passed: at least 0.8 in each topic", "pass")]
    assert plain.not_judged == ["score"]
    named = sliced(store, cells, metrics=metrics, slices={"by": "topic", "min": {"score": 4}})
    assert [(rule.rule, rule.outcome) for rule in named.rules] == [("score: at least 4 in each topic", "fail")]
