"""On which terms models are asked just now, and what their answers have cost.

Whoever runs a check sets `current`; the door goes by it, and tells it of each request and of each answer that was paid
for. An answer that was there already costs nothing, and is not told.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from fepflow.allowance import Allowance
from fepflow.llm.model import Usage

PLACES = 16
"""Requests at once, for each provider, address and key."""


@dataclass
class Spending:
    """The terms of one check, and its bill. `places` are requests at once, of all who have the same key and number.

    After `patient` is false, each question makes one request, and nobody but its caller tries again.
    """

    allowance: Allowance = field(default_factory=Allowance)
    places: int = PLACES
    patient: bool = True
    requests: int = 0
    answers: int = 0
    tokens: int = 0
    usd: float = 0.0
    without_tokens: int = 0
    without_usd: int = 0
    """Answers of which nobody said what they cost; it is not in `tokens` and `usd`."""

    def paid(self, usage: Usage) -> None:
        """Count an answer, of use or not."""
        self.answers += 1
        told = usage.prompt_tokens is not None and usage.completion_tokens is not None
        tokens = (usage.prompt_tokens or 0) + (usage.completion_tokens or 0) if told else None
        self.allowance.spend({"tokens": tokens, "usd": usage.cost_usd})
        self.tokens += tokens or 0
        self.usd += usage.cost_usd or 0.0
        self.without_tokens += tokens is None
        self.without_usd += usage.cost_usd is None

    def bill(self) -> dict[str, Any]:
        """`{requests, answers, tokens, usd}`, the last two null where no answer's was told, and what was not told."""
        bill: dict[str, Any] = {"requests": self.requests, "answers": self.answers}
        for name, known, unknown in (
            ("tokens", self.tokens, self.without_tokens),
            ("usd", self.usd, self.without_usd),
        ):
            bill[name] = None if unknown and unknown == self.answers else known
            if unknown:
                bill[f"without_{name}"] = unknown
        return bill


current: ContextVar[Spending | None] = ContextVar("fepflow_spending", default=None)


def terms() -> Spending:
    """The terms that hold here; outside of a run, none that hold anybody up."""
    return current.get() or Spending()
