"""The checks that a suite's gate judges."""

from __future__ import annotations

from typing import Any

import pytest

from fepflow.analysis.metrics import judged_checks
from fepflow.suite.models import Suite

METRICS = [
    {"id": "acc", "check": "answer"},
    {"id": "tone", "check": "style", "value": "$.score"},
    {"id": "broken", "check": "style", "aggregate": "error_rate"},
]


@pytest.mark.parametrize(
    ("sections", "judged"),
    [
        ({}, None),
        ({"gate": {"confidence": 0.9}}, None),
        ({"gate": {"min": {"answer": 0.9}, "checks": "all"}}, None),
        ({"gate": {"min": {"answer": 0.9}}}, {"answer"}),
        ({"gate": {"max": {"acc": 0.9}}, "metrics": METRICS}, {"answer"}),
        ({"gate": {"max": {"broken": 0.1}}, "metrics": METRICS}, set()),
        ({"gate": {"regression": {"margin": 0.1}}}, None),
        ({"gate": {"regression": {"margin": 0.1}}, "metrics": METRICS}, {"answer"}),
        ({"gate": {"regression": {"margin": {"tone": 0.1}}}, "metrics": METRICS}, {"style"}),
        ({"slices": {"by": "topic", "min": 0.5}, "metrics": METRICS}, {"answer"}),
        ({"slices": {"by": "topic", "min": {"style": 0.5}}}, {"style"}),
    ],
)
def test_the_checks_that_a_gate_judges(sections: dict[str, Any], judged: set[str] | None) -> None:
    suite = Suite.model_validate({"name": "s", "target": {"http": {"url": "http://x"}}, "test_cases": [], **sections})
    assert judged_checks(suite) == (None if judged is None else frozenset(judged))
