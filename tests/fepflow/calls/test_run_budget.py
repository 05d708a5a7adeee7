from __future__ import annotations

import math

import pytest

from fepflow.calls.policy import RunBudget
from fepflow.errors import RunLimitExceededError
from fepflow.suite.models import Budget


def test_without_limits_everything_is_allowed() -> None:
    allowance = RunBudget()
    allowance.spend({"tokens": 10**12, "usd": 10**12})
    allowance.require()
    assert allowance.left() == math.inf
    assert allowance.ended is None


def test_after_the_deadline_nothing_is() -> None:
    allowance = RunBudget(0.0)
    with pytest.raises(RunLimitExceededError, match="the deadline of 0 s"):
        allowance.require()


def test_a_budget_is_spent_by_reported_usage() -> None:
    allowance = RunBudget(budget=Budget(tokens=100, usd=1.0))
    allowance.spend({"tokens": 60, "usd": 0.2})
    allowance.require()
    allowance.spend({"tokens": 60, "usd": 0.2})
    with pytest.raises(RunLimitExceededError, match=r"the budget of 100 tokens \(budget.tokens; 120 spent\)"):
        allowance.require()


@pytest.mark.parametrize("cost", [None, "12", True, math.nan, math.inf, -5, [1], 10**400])
def test_an_unknown_cost_counts_as_the_highest_known_one(cost: object) -> None:
    allowance = RunBudget(budget=Budget(usd=1.0))
    for known in (0.1, 0.3, 0.2):
        allowance.spend({"usd": known})
    allowance.spend({"usd": cost})
    assert allowance.spent == pytest.approx({"usd": 0.9})
    allowance.spend(None)
    assert allowance.ended is not None


def test_unknown_costs_count_0_until_one_is_known() -> None:
    allowance = RunBudget(budget=Budget(usd=1.0))
    assert allowance.warnings() == []
    allowance.spend({"usd": "0.1"})
    assert allowance.spent == {"usd": 0.0}
    (warning,) = allowance.warnings()
    assert warning == "The budget of 1 usd limited nothing: no answer reported a valid number of usd."
