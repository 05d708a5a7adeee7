"""The interval of the share that passed, of results in memory."""

from __future__ import annotations

from typing import Any

import pytest

from fepflow import EqualsCheck, EvaluationRunResult, TestCase, evaluate
from fepflow.statistics.proportions import wilson_interval

DOCUMENT = "$.test_case.metadata.document"


def results(questions: int) -> EvaluationRunResult:
    """Return results of 200 cases of 20 documents and so many questions, all of which passed."""
    cases = [TestCase(id=str(n), input=f"question {n % questions}", metadata={"document": n % 20}) for n in range(200)]
    return evaluate(cases, ["x"] * 200, [EqualsCheck(actual="$.output.value", expected="x")])


def test_the_interval_counts_clusters_and_contents() -> None:
    cluster: Any
    for questions, cluster, units in [
        (200, None, 200),
        (200, DOCUMENT, 20),
        (200, lambda case: case.metadata["document"] % 10, 10),
        (200, lambda case: None, 200),
        (50, None, 50),
    ]:
        estimate = results(questions).estimate(cluster)
        assert estimate.value == 1
        assert estimate.low == pytest.approx(wilson_interval(1.0, units)[0])


def test_errors_widen_it_at_both_ends() -> None:
    found = evaluate(["a", "b"], ["x", "x"], [EqualsCheck(actual="$.output.nowhere", expected="x")]).estimate()
    assert (found.value, found.counts.error) == (None, 2)
