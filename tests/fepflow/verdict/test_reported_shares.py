"""The verdict on a report of a run is none that the run itself would not have."""

from __future__ import annotations

import math
from math import comb
from random import Random
from typing import Any

import pytest

from fepflow.evalguard.models import Report, Thresholds, thresholds_digest
from fepflow.statistics.proportions import wilson_interval
from fepflow.verdict.report import judge_report
from fepflow.verdict.verdict import Verdict

QA = Thresholds.model_validate(
    {"task": "qa", "thresholds": {"acc": [{"impact": "severe", "max": 0.9}, {"impact": "low", "min": 0.9}]}}
)
GATE = "No metric's impact may be worse than low (95 % intervals)."


def judged(value: float, stderr: float, n: int | None = None, **metadata: Any) -> Verdict:
    task: dict[str, Any] = {"task_ref": "qa", **({"n_samples": {"effective": n}} if n else {})}
    document = {"tasks": [task], "results": [{"acc": {"value": value, "stderr": stderr}}], "metadata": metadata}
    return judge_report(Report.model_validate(document), {"qa": QA})


def share(passed: int, n: int) -> tuple[float, float]:
    """A share and its standard error, as fepflow and lm-evaluation-harness report them."""
    value = passed / n
    return value, math.sqrt(value * (1 - value) / (n - 1))


@pytest.mark.parametrize(("passed", "n"), [(34, 35), (95, 100), (1, 35), (40, 100)])
def test_a_share_has_the_interval_that_it_has_in_a_run(passed: int, n: int) -> None:
    value, stderr = share(passed, n)
    (metric,) = judged(value, round(stderr, 4), n).metrics
    assert metric.method == "wilson"
    assert (metric.low, metric.high) == pytest.approx(wilson_interval(value, n), abs=2e-3)


@pytest.mark.parametrize("n", [10, 35, 100])
@pytest.mark.parametrize("known", [True, False])
def test_an_agent_at_the_minimum_passes_at_most_as_often_as_promised(n: int, known: bool) -> None:
    """Of all that can come of n cases at a rate of 0.9; by value ± z standard errors it is 10 % of 35."""
    passes = sum(
        comb(n, passed) * 0.9**passed * 0.1 ** (n - passed)
        for passed in range(1, n)
        if judged(*share(passed, n), n if known else None).outcome == "pass"
    )
    assert passes < 0.03


def test_a_mean_of_scores_has_an_interval_for_the_worst_scores_of_its_standard_error() -> None:
    (metric,) = judged(0.95, 0.002, 1_000).metrics
    assert metric.method == "bounded-skewed"
    assert (metric.low, metric.high) == pytest.approx((0.94388, 0.95385), abs=5e-5)


@pytest.mark.battery
@pytest.mark.parametrize("n", [10, 35, 100, 500, 2_000])
@pytest.mark.parametrize("good", [0.92, 0.95, 0.99, None])
def test_a_report_of_scores_at_the_minimum_seldom_passes(n: int, good: float | None) -> None:
    """Scores of 0 or `good`, or of a beta distribution; value ± z standard errors passes 13 to 66 % of them."""
    rng, passed, runs = Random(f"{n} {good}"), 0, 300
    for _ in range(runs):
        if good is None:
            scores = [rng.betavariate(9, 1) for _ in range(n)]
        else:
            scores = [good if rng.random() < 0.9 / good else 0.0 for _ in range(n)]
        value = math.fsum(scores) / n
        stderr = math.sqrt(math.fsum((score - value) ** 2 for score in scores) / (n - 1) / n)
        passed += judged(value, stderr, n).outcome == "pass"
    assert passed / runs <= 0.03 + 2 * math.sqrt(0.03 * 0.97 / runs)


@pytest.mark.battery
@pytest.mark.parametrize("n", [10, 35, 100])
def test_scores_of_which_few_are_bad_seldom_pass_at_the_minimum(n: int) -> None:
    """Mostly 0.92, and zero for one in fifty: by value ± z standard errors up to two of three pass at 0.9."""
    rng, runs, passed = Random(n), 2_000, 0
    good = 0.9 / 0.98
    for _ in range(runs):
        scores = [0.0 if rng.random() < 0.02 else good + rng.uniform(-0.01, 0.01) for _ in range(n)]
        value = sum(scores) / n
        stderr = math.sqrt(sum((score - value) ** 2 for score in scores) / (n - 1) / n)
        passed += judged(value, stderr, n).outcome == "pass"
    assert passed / runs <= 0.03 + 2 * math.sqrt(0.03 * 0.97 / runs)


OURS: dict[str, Any] = {"evaluator": "fepflow", "gate": GATE, "thresholds_digest": thresholds_digest([QA])}


@pytest.mark.parametrize(
    ("outcome", "comes_to"), [("pass", "pass"), ("inconclusive", "inconclusive"), ("fail", "inconclusive")]
)
def test_a_report_of_a_run_that_did_not_pass_does_not_pass(outcome: str, comes_to: str) -> None:
    verdict = judged(*share(99, 100), 100, outcome=outcome, **OURS)
    assert (verdict.outcome, verdict.warnings) == (comes_to, [])
    assert verdict.metrics[0].outcome == "pass"
    if outcome != "pass":
        assert verdict.reasons[0].startswith(f"The run itself has the verdict {outcome} (gate: {GATE}): by the same")


def test_a_report_does_not_pass_where_only_the_judges_corrected_share_did_not() -> None:
    gate = GATE.replace(")", "; judges corrected for their errors)")
    verdict = judged(*share(99, 100), 100, outcome="inconclusive", **{**OURS, "gate": gate})
    assert verdict.outcome == "inconclusive"
    assert verdict.reasons[0].startswith(f"The run itself has the verdict inconclusive (gate: {gate})")


def test_a_run_that_did_not_pass_for_other_reasons_is_warned_of() -> None:
    verdict = judged(*share(99, 100), 100, outcome="fail", **{**OURS, "gate": "Every check must pass."})
    assert verdict.outcome == "pass"
    assert verdict.warnings == ["The run itself has the verdict fail (gate: Every check must pass.)."]
    verdict = judged(*share(99, 100), 100, evaluator="fepflow")
    assert verdict.warnings == ["The run itself has no verdict."]


def test_other_thresholds_than_the_runs_are_warned_of() -> None:
    verdict = judged(*share(99, 100), 100, outcome="fail", **{**OURS, "thresholds_digest": "d" * 64})
    assert verdict.outcome == "pass"
    assert verdict.warnings == [
        "The run itself was judged by other thresholds (sha256 dddddddddddd).",
        f"The run itself has the verdict fail (gate: {GATE}).",
    ]


def test_what_the_metadata_of_others_says_is_not_asked() -> None:
    assert judged(*share(99, 100), 100, outcome="fail", evaluator="another").warnings == []
