"""The budget of a run: time, tokens, money; of its target and of the models that its checks call."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from threading import Lock
from typing import Any

from fepflow.errors import RunLimitExceededError
from fepflow.json.limits import finite
from fepflow.suite.models import Budget


class RunBudget:
    """A deadline, `seconds` from now, and a budget. Once one is reached, no further call is made.

    Models are called from another thread, so it may be used from any.
    """

    def __init__(self, seconds: float | None = None, budget: Budget | None = None) -> None:
        self._seconds = seconds
        self._ends_at = math.inf if seconds is None else time.monotonic() + seconds
        self._budget = budget.limits if budget else {}
        self._lock = Lock()
        self.spent = dict.fromkeys(self._budget, 0.0)
        self._most = dict.fromkeys(self._budget, 0.0)

    @property
    def counts(self) -> bool:
        """Whether there is a budget to be counted for."""
        return bool(self._budget)

    def left(self) -> float:
        """Seconds until the deadline; infinity without one."""
        return self._ends_at - time.monotonic()

    @property
    def ended(self) -> str | None:
        """Why no further call may be made, if none may."""
        if self.left() <= 0:
            return f"the deadline of {self._seconds:g} s (deadline)"
        for name, limit in self._budget.items():
            if self.spent[name] >= limit:
                return f"the budget of {limit:g} {name} (budget.{name}; {self.spent[name]:g} spent)"
        return None

    def require(self) -> None:
        """Raises RunLimitExceededError if no further call may be made."""
        if (self._budget or self._seconds is not None) and (reason := self.ended):
            raise RunLimitExceededError(f"no further call: the run has reached {reason}")

    def spend(self, metadata: Mapping[str, Any] | None) -> None:
        """Count the reported cost of a response; one that reports none counts as the most expensive so far."""
        for name in self._budget:
            known = _cost((metadata or {}).get(name))
            with self._lock:
                cost = self._most[name] if known is None else known
                self._most[name] = max(cost, self._most[name])
                self.spent[name] += cost


def _cost(reported: Any) -> float | None:
    """A reported cost; None for one that is not a finite number from 0 on."""
    cost = None if isinstance(reported, bool) else finite(reported)
    return cost if cost is not None and cost >= 0 else None
