"""The size of what the checks of a request look at is known, and bounded, before any of them runs."""

from __future__ import annotations

from typing import Any

import pytest

from fepflow.api.evaluations import requests as sizes
from fepflow.api.evaluations.requests import EvaluationRequest
from fepflow.errors import InputError

LONG = "x" * 45_000


def request(output: Any, checks: list[dict[str, Any]], cases: int = 1) -> dict[str, Any]:
    return {
        "test_cases": [{"id": str(index), "input": f"{index}?"} for index in range(cases)],
        "outputs": [{"value": output}] * cases,
        "checks": checks,
    }


def of(path: Any) -> dict[str, Any]:
    return {"type": "is_empty", "arguments": {"value": path}}


@pytest.mark.parametrize(
    ("body", "total"),
    [
        (request(LONG * 10, [of("$.output.value")] * 1_200), 540_000_000),
        (request({"a": [LONG * 10]}, [of("$.output.value.a[0]")] * 1_200), 540_000_000),
        (request({"a": [LONG * 10]}, [of("$..a")] * 1_200), 540_000_000),
        (request({"a": [LONG * 10]}, [of(["no", "$.output.value['a'][*]"])] * 1_200), 540_000_000),
        (request("no", [of(LONG * 10)], cases=1_200), 540_000_000),
        (request(LONG, [of("$.output.value")] * 800), 36_000_000),
        (request("no", [of(LONG)], cases=800), 36_000_000),
        (request("no", [{"type": LONG, "arguments": {}}], cases=800), 72_000_000),
        (
            request({"a": LONG}, [{"type": "llm_judge", "arguments": {"prompt": "{{$.output.value.a}}"}}] * 800),
            36_000_000,
        ),
    ],
)
def test_checks_that_look_at_too_much_together_are_refused_with_the_sum(body: dict[str, Any], total: int) -> None:
    with pytest.raises(InputError) as error:
        EvaluationRequest.read(body)
    (problem,) = error.value.problems
    assert problem.path == "checks"
    told = int(problem.message.split(" characters")[0].rsplit(" ", 1)[1].replace(",", ""))
    assert total <= told < total * 1.01


def test_what_is_left_out_of_results_may_be_looked_at_often() -> None:
    assert EvaluationRequest.read(request(LONG * 10, [of("$.output.value")] * 1_000)).checks
    assert EvaluationRequest.read(request("a", [of("$.output.value")] * 1_000, cases=100)).checks


def test_the_deepest_values_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    deep: Any = "end"
    for _ in range(99):
        deep = [deep]
    monkeypatch.setattr(sizes, "MAX_RESOLVED", 99)
    with pytest.raises(InputError, match="look at"):
        EvaluationRequest.read(request(deep, [of("$.output.value")]))
